"""Redeeming refresh tokens: which one is sent, what each failure tells of it, and which answers are refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.owner_check import OwnerFacts
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.protocol.network.transport import TransportFailed
from oauthbroker.protocol.refresh_call import Redeemed, Redeemer
from oauthbroker.protocol.refresh_messages import RefreshRefused
from oauthbroker.records import Grant, RefreshState
from oauthbroker.testing import TestClock
from tests.kit.samples import NOW, app_with, grant_with, token_with
from tests.unit.protocol.kit import answer

APP = app_with()
GRANT = grant_with(token=token_with(0, refresh_token=Secret("rt-1")))
TOKENS = {"access_token": "at-2", "token_type": "bearer", "refresh_token": "rt-2", "expires_in": 600}
GONE = answer({"error": "invalid_grant"}, 400)


class World:
    """A redeemer with a scripted provider."""

    def __init__(self, *answers: ProviderResponse | Exception) -> None:
        self.answers, self.sent = list(answers), list[str]()
        self.facts: OwnerFacts | Exception = OwnerFacts()
        self.allowed = 9
        others: Any = self
        self.redeemer = Redeemer(others, others, TestClock(NOW))

    async def ask(self, app: App, request: Any, *, kind: str) -> ProviderResponse:
        assert "refresh" == kind
        self.sent.append(request(app).form["refresh_token"].reveal())
        said = self.answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    async def read_again(self, *_: Any) -> OwnerFacts:
        if isinstance(self.facts, Exception):
            raise self.facts
        return self.facts

    async def may_send(self, secret: Secret) -> bool:
        assert secret in SPARE.refresh_tokens
        self.allowed -= 1
        return self.allowed >= 0

    async def redeem(self, grant: Grant = GRANT) -> Redeemed | None:
        return await self.redeemer.redeem(APP, APP.endpoints, grant, self.may_send)

    async def refused(self, grant: Grant = GRANT) -> RefreshRefused:
        with pytest.raises(RefreshRefused) as raised:
            await self.redeem(grant)
        return raised.value


async def test_a_new_token_lives_from_when_it_was_asked_for() -> None:
    redeemed = await World(answer(TOKENS)).redeem()
    assert redeemed is not None
    assert (NOW + timedelta(seconds=600), "at-2") == (redeemed.token.expires_at, redeemed.token.access_token.reveal())
    assert redeemed.refresh_token is not None
    assert "rt-2" == redeemed.refresh_token.reveal()


async def test_what_an_answer_does_not_repeat_is_kept() -> None:
    redeemed = await World(answer({"access_token": "at-2", "token_type": "bearer"})).redeem()
    assert redeemed is not None
    assert redeemed.token.refresh_token is not None
    assert ("rt-1", 3600, ("read",), None) == (
        redeemed.token.refresh_token.reveal(), redeemed.token.lifetime_seconds, redeemed.scopes, redeemed.refresh_token,
    )  # fmt: skip


SPARE = replace(GRANT, refresh_state=RefreshState(spare=Secret("rt-spare")))


@pytest.mark.parametrize(
    ("answers", "sent"),
    [
        ([answer(TOKENS)], ["rt-spare"]),
        ([GONE, answer(TOKENS)], ["rt-spare", "rt-1"]),
    ],
)
async def test_the_newest_token_is_sent_first_and_the_older_one_once_it_is_dead(answers: Any, sent: list[str]) -> None:
    world = World(*answers)
    assert await world.redeem(SPARE) is not None
    assert sent == world.sent


async def test_after_another_refusal_no_older_token_is_sent() -> None:
    world = World(answer({}, 503))
    assert (Code.PROVIDER_UNREACHABLE, ["rt-spare"]) == ((await world.refused(SPARE)).code, world.sent)


@pytest.mark.parametrize("allowed", [0, 1])
async def test_no_token_is_sent_once_that_is_forbidden(allowed: int) -> None:
    world = World(GONE)
    world.allowed = allowed
    assert None is await world.redeem(SPARE)
    assert allowed == len(world.sent)


@pytest.mark.parametrize(
    ("failure", "code", "spent", "reached"),
    [
        (TransportFailed("lost", sent=True), Code.PROVIDER_UNREACHABLE, True, True),
        (TransportFailed("no route", sent=False), Code.PROVIDER_UNREACHABLE, False, False),
        (BrokerError(Code.APP_MISCONFIGURED, note="why"), Code.APP_MISCONFIGURED, False, False),
    ],
)
async def test_a_failure_tells_whether_the_token_may_be_spent_and_the_provider_was_reached(
    failure: BrokerError, code: Code, spent: bool, reached: bool
) -> None:
    refused = await World(failure).refused()
    assert (code, spent, reached, failure.note) == (refused.code, refused.spent, refused.reached, refused.note)


@pytest.mark.parametrize(
    ("facts", "members", "code"),
    [
        (OwnerFacts(user_identity="acme:user:2"), {}, Code.SUBJECT_MISMATCH),
        (OwnerFacts(), {"scope": "read admin"}, Code.SCOPE_EXCEEDED),
        (BrokerError(Code.ID_TOKEN_INVALID), {}, Code.ID_TOKEN_INVALID),
    ],
)
async def test_the_tokens_of_a_refused_answer_come_along_with_the_refusal(facts: Any, members: Any, code: Code) -> None:
    world = World(answer({**TOKENS, **members}))
    world.facts = facts
    refused = await world.refused()
    assert refused.spare is not None
    assert refused.access is not None
    assert (code, True, "rt-2", "at-2") == (
        refused.code,
        refused.spent,
        refused.spare.reveal(),
        refused.access.reveal(),
    )


async def test_a_defect_of_a_check_loses_no_token() -> None:
    world = World(answer(TOKENS))
    world.facts = RuntimeError("at-2")
    refused = await world.refused()
    assert refused.spare is not None
    assert ("rt-2", True) == (refused.spare.reveal(), "at-2" not in refused.note)


SAME = "an-access-token"


@pytest.mark.parametrize(
    ("old", "members", "is_refused"),
    [
        (token_with(0, end_stated=True), {"access_token": SAME, "expires_in": None}, True),
        (token_with(0, end_stated=False), {"access_token": SAME, "expires_in": None}, False),
        (token_with(0, end_stated=False), {"access_token": SAME, "expires_in": 0}, True),
        (token_with(0, end_stated=True), {"access_token": SAME, "expires_in": 600}, False),
        (token_with(0, end_stated=True), {"access_token": "at-2", "expires_in": None}, False),
        (token_with(1, end_stated=True), {"access_token": SAME, "expires_in": None}, False),
    ],
    ids=["no new end", "an assumed end", "ended as stated", "a new end", "another token", "it lives"],
)
async def test_a_token_that_has_ended_may_not_come_back_without_a_new_end(
    old: Any, members: Any, is_refused: bool
) -> None:
    world = World(answer({**TOKENS, **members}))
    grant = replace(GRANT, token=replace(old, refresh_token=Secret("rt-1")))
    if is_refused:
        assert Code.TOKEN_UNCHANGED is (await world.refused(grant)).code
    else:
        assert await world.redeem(grant) is not None


class Owners:
    """Names an owner in the answer to a refresh, and one when it is asked: an error is raised."""

    def __init__(self, again: OwnerFacts, now: OwnerFacts | BrokerError | None) -> None:
        self.again, self.now, self.asked = again, now, 0

    async def read_again(self, *_: Any) -> OwnerFacts:
        return self.again

    async def ask(self, app: App, access: Secret) -> OwnerFacts | None:
        self.asked += 1
        if isinstance(self.now, BrokerError):
            raise self.now
        return self.now


NO_OWNER, ALICE, BOB = OwnerFacts(), OwnerFacts(user_identity="acme:user:1"), OwnerFacts(user_identity="acme:user:2")


@pytest.mark.parametrize(
    ("again", "now", "asked", "verified"),
    [
        (ALICE, NO_OWNER, 0, True),
        (NO_OWNER, ALICE, 1, True),
        (NO_OWNER, None, 1, False),
        (NO_OWNER, BrokerError(Code.PROVIDER_UNREACHABLE), 1, False),
        (NO_OWNER, BOB, 1, Code.SUBJECT_MISMATCH),
    ],
    ids=["said in the answer", "said when asked", "never said", "cannot say now", "another user"],
)
async def test_the_owner_of_an_unverified_grant_is_compared_as_soon_as_the_provider_names_one(
    again: OwnerFacts, now: Any, asked: int, verified: bool | Code
) -> None:
    world, owners, grant = World(answer(TOKENS)), Owners(again, now), replace(GRANT, unverified=True)
    others: Any = world
    scripted: Any = owners
    world.redeemer = Redeemer(others, scripted, TestClock(NOW))
    if isinstance(verified, Code):
        assert verified is (await world.refused(grant)).code
    else:
        redeemed = await world.redeem(grant)
        assert redeemed is not None
        assert verified is redeemed.verified
    assert asked == owners.asked
