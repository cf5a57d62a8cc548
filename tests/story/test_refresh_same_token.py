"""A provider that gives the token that it gave before: its answer overrules the end that we assumed, and only a token
whose own stated end has passed, and that comes back without a new one, is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.token_results import Failed, Ready, TokenResult
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from tests.kit.running_broker import Harness, running, turn, user_app

HOUR = 3600
ASSUMED = Habits(always_scopes=("openid",), default_lifetime_seconds=2 * HOUR)
PLAIN = Habits(always_scopes=("openid",))
NONE, TWO_HOURS, ENDED = {"expires_in": None}, {"expires_in": 2 * HOUR}, {"expires_in": 0}
# (habits, what the consent's answer states, what each refresh states, what a tool is told)
ANSWERS = [
    pytest.param(PLAIN, TWO_HOURS, TWO_HOURS, "ready", id="a new end each time"),
    pytest.param(ASSUMED, NONE, NONE, "ready", id="never an end, and we assume it"),
    pytest.param(ASSUMED, NONE, TWO_HOURS, "ready", id="an end that it had not stated before"),
    pytest.param(PLAIN, TWO_HOURS, NONE, Code.TOKEN_UNCHANGED, id="no new end"),
    pytest.param(ASSUMED, TWO_HOURS, NONE, Code.TOKEN_UNCHANGED, id="no new end, and we would assume one"),
    pytest.param(PLAIN, TWO_HOURS, ENDED, Code.TOKEN_UNCHANGED, id="an end that has come"),
    pytest.param(ASSUMED, NONE, ENDED, Code.TOKEN_UNCHANGED, id="an end that has come, instead of the assumed one"),
]


@pytest.fixture
async def harness(request: Any, identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    app = user_app(identity_provider, habits=getattr(request, "param", PLAIN))
    async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
        yield harness


def gives_again(harness: Harness, first: Ready, states: Mapping[str, Any]) -> None:
    again = {"access_token": first.access_token.reveal(), "id_token": None}  # its hash is that of another token
    harness.idp.script.refresh.fields(times=FOREVER, **again, **states)


def reported(answer: TokenResult) -> Code | str:
    return answer.code if isinstance(answer, Failed) else answer.status


@pytest.mark.parametrize("harness, consent, refresh, outcome", ANSWERS, indirect=["harness"])
async def test_the_same_token_is_taken_as_the_provider_states_it(
    harness: Harness, consent: Mapping[str, Any], refresh: Mapping[str, Any], outcome: Code | str
) -> None:
    harness.idp.script.token.fields(**consent)
    first = await harness.connected()
    gives_again(harness, first, refresh)
    for day in range(1, 4):
        harness.clock.advance(24 * HOUR)
        answers = [await harness.ask() for _ in range(3)]
        assert [outcome] * 3 == [reported(answer) for answer in answers]
        assert day == harness.idp.count("refresh_token")


async def test_a_new_token_without_an_end_keeps_the_lifetime_as_an_assumption(harness: Harness) -> None:
    harness.idp.script.token.fields(expires_in=2 * HOUR)
    await harness.connected()
    harness.idp.script.refresh.fields(expires_in=None)
    harness.clock.advance(2 * HOUR)
    second = await harness.ask()
    gives_again(harness, second, NONE)
    harness.clock.advance(3 * HOUR)
    assert "ready" == reported(await harness.ask())


async def test_a_reported_token_that_comes_back_has_an_error_of_its_own(harness: Harness) -> None:
    first = await harness.connected()
    gives_again(harness, first, TWO_HOURS)
    oauth = harness.broker.oauth(turn())
    answers = [await oauth.report_rejected("mail", first.access_token) for _ in range(10)]
    assert {Code.TOKEN_UNCHANGED, Code.RATE_LIMITED} == {reported(answer) for answer in answers}
    assert Code.TOKEN_UNCHANGED == reported(answers[0])
    assert isinstance(answers[0], Failed)
    assert not answers[0].retryable
    assert 6 == harness.idp.count("refresh_token")
    assert "ready" == reported(await harness.ask())


async def test_a_minimum_beyond_the_rest_of_a_token_is_met_by_the_next_token(harness: Harness) -> None:
    """The provider gives the same token while more than an hour of it is left."""
    harness.idp.script.token.fields(expires_in=6 * HOUR)
    first = await harness.connected()
    harness.clock.advance(4.5 * HOUR)
    rest: dict[str, Any] = {
        "access_token": first.access_token.reveal(),
        "id_token": None,
        "expires_in": int(1.5 * HOUR),
    }
    harness.idp.script.refresh.fields(**rest)
    assert Code.MIN_TTL_UNSATISFIABLE == reported(await harness.ask(min_ttl_seconds=2 * HOUR))
    harness.clock.advance(2 * HOUR)
    harness.idp.script.refresh.fields(expires_in=6 * HOUR)
    assert "ready" == reported(await harness.ask(min_ttl_seconds=2 * HOUR))
