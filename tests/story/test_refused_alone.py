"""A refresh token that the provider refuses in its own words, while it refreshes another person's: the user gets a link,
and the token is kept."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, BOB, Harness, running, turn, user_app
from tests.story.refresh_docs import another
from tests.story.refresh_kit import LIFETIME

BOBS = turn(user=BOB)
Refuse = Callable[[Any], None]


def answers(status: int, body: Any, label: str = "application/json") -> Refuse:
    def refuse(refresh: Any) -> None:
        refresh.answer(status, body, {"content-type": label})

    return refuse


def to_login(refresh: Any) -> None:
    refresh.redirect("/login")


REFUSALS: dict[str, Refuse] = {
    "401 invalid_token": answers(401, {"error": "invalid_token"}),
    "401 message": answers(401, {"message": "Unauthorized"}),
    "400 token_expired": answers(400, {"error": "token_expired"}),
    "403 access_denied": answers(403, {"error": "access_denied"}),
    "403 page": answers(403, "<h1>Forbidden</h1>", "text/html"),
    "400 page": answers(400, "<h1>Bad Request</h1>", "text/html"),
    "404": answers(404, {"message": "not found"}),
    "410": answers(410, {"message": "gone"}),
    "422": answers(422, {"errors": [{"code": "refresh_token_invalid"}]}),
    "500 invalid_grant": answers(500, {"error": "invalid_grant"}),
    "200 success false": answers(200, {"success": False, "message": "Refresh token expired"}),
    "200 errcode": answers(200, {"errcode": 40030, "errmsg": "invalid refresh_token"}),
    "200 empty": answers(200, {}),
    "200 page": answers(200, "<html>Sign in</html>", "text/html"),
    "302": to_login,
    "401 invalid_client": answers(401, {"error": "invalid_client"}),
    "400 unauthorized_client": answers(400, {"error": "unauthorized_client"}),
    "400 interaction_required": answers(400, {"error": "interaction_required"}),
    "200 bad_refresh_token": answers(200, {"error": "bad_refresh_token"}),
}


@pytest.fixture
async def two(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    """Alice and Bob are connected, and both tokens have been refreshed once and have ended."""
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, background=False) as harness:
        await harness.connected()
        await harness.connected(account="bob", of=BOBS)
        harness.clock.advance(LIFETIME)
        assert isinstance(await harness.ask(), Ready)
        assert isinstance(await harness.ask(of=BOBS), Ready)
        harness.clock.advance(LIFETIME)
        yield harness


async def refused(harness: Harness, refuse: Refuse) -> Any:
    """Bob's answer while the provider refuses that grant alone."""
    refuse(harness.idp.script.refresh)
    answer = await harness.ask(of=BOBS)
    harness.idp.script.reset()
    return answer


async def given_up(harness: Harness, refuse: Refuse) -> list[Any]:
    """Bob's answers, minute by minute, until there is a link. Alice is refreshed meanwhile."""
    found = list[Any]()
    while not found or isinstance(found[-1], Failed):
        assert len(found) < 20
        found.append(await refused(harness, refuse))
        assert isinstance(await harness.ask(), Ready)
        harness.clock.advance(60)
    return found


@pytest.mark.sample(8)
@pytest.mark.case("52", "54")
@pytest.mark.parametrize("refuse", REFUSALS.values(), ids=REFUSALS)
async def test_a_grant_that_is_refused_alone_becomes_a_link_and_is_tried_again(two: Harness, refuse: Refuse) -> None:
    harness = two
    first, *others, link = await given_up(harness, refuse)
    assert isinstance(first, Failed)
    assert {Code.REFRESH_REFUSED, Code.PROVIDER_UNREACHABLE} >= {each.code for each in others}, (
        "no app is misconfigured"
    )
    assert isinstance(link, AuthorizationRequired)
    assert ("expired", True) == (link.reason, 5 <= len([first, *others]) <= 12)
    grant = await harness.grant(subject=BOB)
    assert grant is not None
    assert (1, "", True) == (len(grant.refresh_tokens), grant.refresh_state.ended, grant.refresh_state.given_up)
    asked = harness.idp.count("refresh_token")
    again = await harness.ask_link(of=BOBS)
    assert (link.auth_session_id, asked) == (again.auth_session_id, harness.idp.count("refresh_token"))
    harness.clock.advance(900)
    assert isinstance(await harness.ask(of=BOBS), Ready), "the provider takes it again: the link is not needed"
    assert "error" not in {json.loads(line)["level"] for line in harness.log.getvalue().splitlines()}


async def test_a_link_that_is_followed_makes_a_grant_of_which_nothing_is_doubted(two: Harness) -> None:
    harness = two
    link = (await given_up(harness, REFUSALS["401 invalid_token"]))[-1]
    await harness.connect(link, "bob")
    assert isinstance(await harness.ask(of=BOBS), Ready)
    grant = await harness.grant(subject=BOB)
    assert grant is not None
    assert (None, False) == (grant.refresh_state.refused_at, grant.refresh_state.given_up)


@pytest.mark.parametrize("error", ["503", "its circuit", "metadata"])
async def test_a_link_stays_a_link_while_the_provider_is_down(
    two: Harness, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = two
    await given_up(harness, REFUSALS["404"])
    harness.clock.advance(900)
    if error == "503":
        harness.idp.script.refresh.answer(503)
    if error == "its circuit":
        harness.parts.manager.refresh.circuits.failed("mail", _waits(3600))
    if error == "metadata":
        monkeypatch.setattr(type(harness.parts.manager.refresh.discovery), "endpoints", _unreachable)
    assert "expired" == (await harness.ask_link(of=BOBS)).reason


def _waits(seconds: int) -> BrokerError:
    return BrokerError(Code.PROVIDER_UNREACHABLE, retry_after_seconds=seconds)


async def _unreachable(*_: Any) -> Any:
    raise _waits(1)


async def test_another_process_neither_sends_a_token_that_was_given_up_nor_forgets_it(two: Harness) -> None:
    harness = two
    await given_up(harness, REFUSALS["410"])
    asked = harness.idp.count("refresh_token")
    async with another(harness) as other:
        assert "expired" == (await other.ask_link(of=BOBS)).reason
        assert asked == harness.idp.count("refresh_token")
        other.clock.advance(900)
        REFUSALS["410"](harness.idp.script.refresh)
        assert "expired" == (await other.ask_link(of=BOBS)).reason, "although it knows of no success of Alice's"
        assert asked + 1 == harness.idp.count("refresh_token")


@pytest.mark.case("60")
async def test_a_reported_token_whose_refresh_is_refused_alone_is_not_handed_out_again(two: Harness) -> None:
    harness = two
    bad, found = await harness.ask(of=BOBS), list[Any]()
    for number in range(12):
        REFUSALS["404"](harness.idp.script.refresh)
        found.append(await harness.broker.oauth(BOBS).report_rejected("mail", bad.access_token))
        harness.idp.script.reset()
        if number == 1:
            assert isinstance(await harness.ask(), Ready)
        harness.clock.advance(90)
    assert isinstance(found[0], Failed)
    assert isinstance(found[-1], AuthorizationRequired)
    assert "expired" == (await harness.ask_link(of=BOBS)).reason


@pytest.mark.case("54")
async def test_where_nothing_is_proven_the_operator_gets_one_line(
    two: Harness,
) -> None:
    """Bob is alone: perhaps our secret has expired."""
    harness = two
    for _ in range(60):
        assert isinstance(await refused(harness, REFUSALS["401 invalid_client"]), Failed)
        harness.clock.advance(60)
    lines = [json.loads(line) for line in harness.log.getvalue().splitlines()]
    (line,) = [line for line in lines if line["level"] == "error"]
    assert ("mail", "appMisconfigured", "invalid_client") == (line["app"], line["code"], line["note"])
    assert "connect again" in line["hint"]
    grant = await harness.grant(subject=BOB)
    assert grant is not None
    assert grant.refresh_state.refused_at is not None
    assert isinstance(await harness.ask(), Ready)
    assert await harness.grant(subject=ALICE) is not None
    answer = await refused(harness, REFUSALS["401 invalid_client"])
    assert isinstance(answer, AuthorizationRequired), "Alice shows that the client is good"


@pytest.mark.case("52")
async def test_a_consent_of_another_person_shows_that_the_client_is_good(two: Harness) -> None:
    harness = two
    assert isinstance(await refused(harness, REFUSALS["401 invalid_client"]), Failed)
    harness.clock.advance(1)
    await harness.connect(await harness.ask_link(of=turn(user="idp:user:U666666")), "mallory")
    harness.clock.advance(300)
    assert isinstance(await refused(harness, REFUSALS["401 invalid_client"]), AuthorizationRequired)
