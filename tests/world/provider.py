"""The provider of a world: it rotates refresh tokens, and ends a grant whose spent token comes again.

The real protocol code speaks to it: only the connections below httpx are replaced.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpcore2
import httpx2

from tests.world.loop import Process, current_process

HOME = "https://provider.example"
LIFETIME = 8  # seconds that an access token lives: it is refreshed in the second half
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Mood:
    """How often a request meets a fault, and how slow answers are, in seconds."""

    refused: float = 0.0  # no connection
    unheard: float = 0.0  # the request is lost
    lost: float = 0.0  # the answer is lost
    busy: float = 0.0  # 429 or 503
    latency: tuple[float, float] = (0.01, 0.3)
    late: float = 0.0  # how often an answer comes too late


@dataclass(eq=False)
class Answered:
    """One answer with tokens: to whom, and whether it came through."""

    process: Process
    at: float
    number: int
    delivered: bool = False


@dataclass(eq=False)
class Family:
    """What follows from one consent: its refresh tokens, of which the newest is not spent."""

    number: int
    app: str
    account: str
    code: str
    alive: bool = True
    answers: list[Answered] = field(default_factory=list)
    reused: list[int] = field(default_factory=list)  # spent tokens that came again

    @property
    def newest(self) -> int:
        return len(self.answers)

    def token(self, kind: str, number: int) -> str:
        return f"{kind}-{self.number:04}-{number:04}-{'x' * 20}"


@dataclass(eq=False)
class Provider:
    """All grants, by what the provider knows. `spent_again` is called with a spent refresh token before it ends
    a family, `code_again` with a code that comes again, and `refreshed` before the answer to a refresh leaves."""

    dice: Random
    later: Callable[..., None]
    now: Callable[[], float]
    mood: Mood = Mood()
    spent_again: Callable[[Family, int, Process], None] = lambda *_: None
    code_again: Callable[[str, Process], None] = lambda *_: None
    refreshed: Callable[[], None] = lambda: None
    trace: Callable[..., None] = lambda *_: None
    families: list[Family] = field(default_factory=list)
    codes: dict[str, tuple[str, str, str]] = field(default_factory=dict)  # app, account, challenge
    agreed: int = 0

    def agree(self, url: str, account: str) -> bytes:
        """Return the query with which the browser of a person who agrees comes back."""
        asked = dict(parse_qsl(urlsplit(url).query))
        self.agreed += 1
        code = f"code-{self.agreed:04}-{'y' * 20}"
        self.codes[code] = asked["client_id"], account, asked["code_challenge"]
        return f"code={code}&state={asked['state']}".encode()

    def family_of(self, token: str) -> tuple[Family, int]:
        _, family, number, _ = token.split("-")
        return self.families[int(family)], int(number)

    def answer(self, path: str, form: dict[str, str], process: Process) -> tuple[int, dict[str, Any], Answered | None]:
        if path == "/revoke":
            family, _ = self.family_of(form["token"])
            family.alive = False
            return 200, {}, None
        if form["grant_type"] == "authorization_code":
            return self._redeem_code(form, process)
        return self._refresh(form["refresh_token"], process)

    def _redeem_code(self, form: dict[str, str], process: Process) -> tuple[int, dict[str, Any], Answered | None]:
        app, account, challenge = self.codes.get(form["code"], ("", "", ""))
        seen = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if any(each.code == form["code"] for each in self.families):
            self.code_again(form["code"], process)
        if not app or seen.decode() != challenge:
            return 400, {"error": "invalid_grant"}, None
        del self.codes[form["code"]]
        family = Family(len(self.families), app, account, form["code"])
        self.families.append(family)
        return self._issue(family, process)

    def _refresh(self, token: str, process: Process) -> tuple[int, dict[str, Any], Answered | None]:
        family, number = self.family_of(token)
        if number != family.newest:
            self.spent_again(family, number, process)
            family.reused.append(number)
            family.alive = False
        if not family.alive:
            return 400, {"error": "invalid_grant"}, None
        self.refreshed()
        return self._issue(family, process)

    def _issue(self, family: Family, process: Process) -> tuple[int, dict[str, Any], Answered]:
        answered = Answered(process, self.now(), family.newest + 1)
        family.answers.append(answered)
        body = {
            "access_token": family.token("access", answered.number),
            "refresh_token": family.token("refresh", answered.number),
            "token_type": "Bearer",
            "expires_in": LIFETIME,
            "sub": family.account,
        }
        return 200, body, answered


class WorldTransport(httpx2.AsyncBaseTransport):
    """Carries requests to the provider of a world, or loses them."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        provider, mood = self._provider, self._provider.mood
        there, back = (provider.dice.uniform(*mood.latency) for _ in range(2))
        fate = self._fate(mood)
        await asyncio.sleep(there / 2)
        if fate == "refused":
            raise httpcore2.ConnectError
        await request.extensions["trace"]("http11.send_request_headers.started", {})
        form = dict(parse_qsl((await request.aread()).decode()))
        answer: asyncio.Future[httpx2.Response] = asyncio.get_running_loop().create_future()
        back = 12.0 if fate == "late" else back
        provider.later(there / 2, self._arrive, request.url.path, form, current_process(), fate, back, answer)
        return await answer

    def _fate(self, mood: Mood) -> str:
        luck = self._provider.dice.random()
        for fate in ("refused", "unheard", "lost", "busy", "late"):
            luck -= getattr(mood, fate)
            if luck < 0:
                return fate
        return ""

    def _arrive(
        self, path: str, form: dict[str, str], process: Process, fate: str, back: float,
        answer: asyncio.Future[httpx2.Response],
    ) -> None:  # fmt: skip
        provider = self._provider
        status, body, answered = 429, dict[str, Any](), None
        if fate not in {"unheard", "busy"}:
            status, body, answered = provider.answer(path, form, process)
        provider.trace("request", process, path, form.get("refresh_token", ""), status, fate)

        def deliver() -> None:
            if answer.done():
                return
            if fate in {"unheard", "lost"}:
                answer.set_exception(httpcore2.RemoteProtocolError())
                return
            if answered is not None:
                answered.delivered = True
            answer.set_result(httpx2.Response(status, headers=JSON, content=json.dumps(body)))

        provider.later(back, deliver)
