"""A thousand people at one app: a provider in this process, a plan of calls, and what each person is told."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.secret import Secret
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse
from oauthbroker.protocol.network.transport import TransportFailed
from oauthbroker.records import Grant, RefreshState, Token
from tests.kit.running_broker import Harness, turn

LIFETIME = 3600
HEALTHY_ASK, SICK_ASK = 1200, 180  # seconds between two calls for a person, on average


def reported(body: object, status: int, label: str = "application/json", retry_after: int | None = None) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ProviderResponse(status=status, content_type=label, retry_after=retry_after, body=content)


LATE = TransportFailed("no answer in time", sent=True)


@dataclass
class Fleet:
    """`people` are numbered; the first `sick` of them are refused with `trouble`, from `since` seconds on."""

    people: int
    sick: int
    error: ProviderResponse | BrokerError
    since: float
    seconds: float
    began: float = 0.0
    requests: Counter[int] = field(default_factory=Counter)
    answers: dict[int, list[tuple[float, TokenResult]]] = field(default_factory=dict)

    def subject(self, person: int) -> str:
        return f"idp:user:U{person}"

    async def plant(self, harness: Harness) -> None:
        """Store a grant for each person; their tokens end one after another within the first hour."""
        app, now, chance = harness.broker.bundle.apps["mail"], harness.clock.now(), random.Random(3)
        self.began = harness.clock.monotonic()
        for person in range(self.people):
            token = Token(
                access_token=Secret(f"first-{person}"),
                token_type="bearer",
                refresh_token=Secret(f"rt-{person}"),
                expires_at=now + timedelta(seconds=chance.uniform(1, LIFETIME)),
                lifetime_seconds=LIFETIME,
            )
            grant = Grant(
                app="mail", provider="oidc", subject=self.subject(person), flow="authorization_code", scopes=app.scopes,
                token=token, created_at=now, updated_at=now, registration=app.registration,
                refresh_state=RefreshState(worked=True),
            )  # fmt: skip
            await harness.repository.save_grant(grant, expect=0)

    def plan(self) -> list[tuple[float, int]]:
        """Return who calls when. The sick come first at the moment at which they fall ill, one right after another."""
        chance, found = random.Random(7), list[tuple[float, int]]()
        for person in range(self.people):
            is_sick = person < self.sick
            at = self.since + person / 1000 if is_sick else chance.uniform(0, HEALTHY_ASK)
            while at < self.seconds:
                found.append((at, person))
                at += chance.expovariate(1 / (SICK_ASK if is_sick else HEALTHY_ASK))
        return sorted(found)

    async def play(self, harness: Harness, plan: list[tuple[float, int]]) -> None:
        for at, person in plan:
            left = self.began + at - harness.clock.monotonic()
            harness.clock.advance(max(0.0, left))
            answer = await harness.ask(of=turn(user=self.subject(person)))
            self.answers.setdefault(person, []).append((at, answer))

    def answer(self, request: ProviderRequest, now: float) -> ProviderResponse:
        """Answer as the provider's token endpoint."""
        assert request.form is not None
        sent = request.form["refresh_token"]
        assert isinstance(sent, Secret)
        person = int(sent.reveal().removeprefix("rt-"))
        self.requests[person] += 1
        if person < self.sick and now - self.began >= self.since:
            if isinstance(self.error, ProviderResponse):
                return self.error
            raise self.error
        number = self.requests[person]
        body = {"access_token": f"at-{person}-{number}", "token_type": "bearer", "expires_in": LIFETIME}
        answer: ProviderResponse = reported(body, 200)
        return answer

    def healthy(self) -> Iterator[str]:
        for person, answers in self.answers.items():
            if person >= self.sick:
                yield from (word_of(answer) for _, answer in answers)

    def of_sick(self) -> Iterator[list[tuple[float, str]]]:
        for person in range(self.sick):
            yield [(at, word_of(answer)) for at, answer in self.answers[person]]


def word_of(answer: TokenResult) -> str:
    match answer:
        case Ready():
            return "degraded" if answer.degraded else "ready"
        case AuthorizationRequired():
            return answer.reason
        case Failed():
            return answer.code.value
