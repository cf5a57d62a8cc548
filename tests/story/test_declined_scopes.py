"""A scope that was asked for and not granted: the grant remembers it, and the person is not asked for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from oauthbroker.diagnostics.forecast import AppFacts
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.records.grant_view import GrantView
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.web.words import PAGES
from tests.kit.running_broker import ALICE, BASE, SCOPES, Harness, running, turn, user_app
from tests.unit.diagnostics.kit import of_grants

GRANTED = ("openid", "read", "write")


@pytest.fixture
async def quiet(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, background=False) as harness:
        yield harness


async def consent(harness: Harness, *granted: str, wanted: Sequence[str] | None = None) -> AuthorizationRequired:
    """A user consents to some of the scopes; the answer of the next call."""
    page = await harness.connect(await harness.ask_link(scopes=wanted), scopes=granted or GRANTED)
    assert 200 == page.status
    return await harness.ask_link(scopes=wanted)


@pytest.mark.case("29")
@pytest.mark.rule("12.5.1-5")
async def test_the_next_call_that_needs_it_is_told_which_scopes_were_asked_for_and_not_granted(quiet: Harness) -> None:
    asked = await consent(quiet)
    assert "scopesDeclined" == asked.reason
    assert "admin" in asked.message
    assert "write" not in asked.message
    assert isinstance(await quiet.ask(scopes=["read"]), Ready), "granted scopes are served"
    korean = await quiet.ask_link(of=replace(turn(), locale="ko"))
    assert "admin" in korean.message


@pytest.mark.case("29")
@pytest.mark.parametrize(
    "granted, is_partly", [(("openid",), True), (("openid", "read"), True), (("openid", *SCOPES), False)]
)
async def test_the_page_says_whether_all_that_was_asked_for_was_allowed(
    quiet: Harness, granted: tuple[str, ...], is_partly: bool
) -> None:
    page = await quiet.connect(await quiet.ask_link(), scopes=granted)
    assert (200, is_partly) == (page.status, PAGES["en"].connected_partly in page.text)


@pytest.mark.case("29")
@pytest.mark.rule("12.5.8")
async def test_it_is_one_open_session_and_no_item_of_its_own_in_the_pending_block(quiet: Harness) -> None:
    asked = await consent(quiet)
    again = [await quiet.ask_link() for _ in range(3)]
    assert {asked.auth_session_id} == {each.auth_session_id for each in again}
    assert await quiet.broker.pending(turn()) is None


@pytest.mark.case("29")
@pytest.mark.rule("12.5.8")
async def test_a_request_of_another_conversation_for_declined_scopes_is_no_longer_listed(quiet: Harness) -> None:
    other = turn(instance="another")
    theirs = await quiet.ask_link(of=other)
    block = await quiet.broker.pending(other)
    assert block is not None
    assert [theirs.auth_session_id] == [item["authSessionId"] for item in block["items"]]
    await consent(quiet)
    assert await quiet.broker.pending(other) is None
    assert "scopesDeclined" == (await quiet.ask_link(of=other)).reason


@pytest.mark.case("29")
async def test_who_agrees_after_all_is_ready_and_nothing_is_remembered(quiet: Harness) -> None:
    asked = await consent(quiet)
    await quiet.connect(asked)
    assert isinstance(await quiet.ask(), Ready)
    grant = await quiet.grant()
    assert grant is not None
    assert ({}, SCOPES) == (grant.declined, grant.scopes)


@pytest.mark.case("29")
async def test_a_scope_that_was_never_asked_for_is_simply_missing(quiet: Harness) -> None:
    asked = await consent(quiet, "openid", "read", wanted=["read", "write"])
    assert "scopesDeclined" == asked.reason
    other = await quiet.ask_link(scopes=["admin"])
    assert "scopes" == other.reason


@pytest.mark.case("29")
async def test_after_the_second_consent_in_a_row_log_doctor_and_admin_say_that_the_provider_does_not_list_it(
    quiet: Harness,
) -> None:
    first = await consent(quiet)
    assert "a provider does not list scopes" not in quiet.log.getvalue()
    await quiet.connect(first, scopes=GRANTED)
    (line,) = [line for line in quiet.log.getvalue().splitlines() if "a provider does not list scopes" in line]
    assert '"admin"' in line
    grant = await quiet.grant()
    assert grant is not None
    assert ({"admin": 2}, ("admin",)) == (grant.declined, grant.unlisted)
    grant = replace(grant, retired=None)  # without the tokens that the second consent replaced
    found = of_grants([GrantView.of(grant, None, grant.updated_at)], {"mail": AppFacts(scopes=SCOPES)})
    (finding,) = [it for it in found if it.severity == "warning"]
    assert ("mail", True) == (finding.about, "admin" in finding.text)
    assert "unlistedScopes" in finding.hint
    _, key = await quiet.broker.api_keys.create("ops", {"operator"})
    operator = quiet.browser()
    await operator.open(f"{BASE}/admin/login")
    await operator.submit({"key": key.reveal()})
    assert "does not list" in (await operator.open(f"{BASE}/admin")).text


@pytest.mark.case("29")
async def test_in_a_row_means_that_a_grant_in_between_starts_anew(quiet: Harness) -> None:
    asked = await consent(quiet)
    await quiet.connect(asked)
    assert await quiet.broker.revoke("mail", subject=ALICE)
    asked = await consent(quiet)
    grant = await quiet.grant()
    assert grant is not None
    assert ("scopesDeclined", {"admin": 1}) == (asked.reason, grant.declined)


OFFLINE = ("read", "offline_access")


@pytest.mark.case("29")
@pytest.mark.parametrize("wanted", [None, ["offline_access"], ["read", "offline_access"]])
async def test_offline_access_never_counts_as_missing(
    identity_provider: IdentityProvider, test_clock: TestClock, wanted: list[str] | None
) -> None:
    app = user_app(identity_provider, scopes=OFFLINE)
    async with running(identity_provider, [app], clock=test_clock) as harness:
        asked, other = await harness.ask_link(scopes=wanted), await harness.ask_link(of=turn(instance="another"))
        ticked = [each for each in wanted or OFFLINE if each != "offline_access"]
        assert 200 == (await harness.connect(asked, scopes=ticked)).status
        assert isinstance(await harness.ask(scopes=wanted), Ready)
        event = await harness.event()
        assert event is not None
        assert "scopesMissing" not in event["payload"]
        if wanted is None:
            assert "completed" == (await harness.session(other)).status, "who waited for the same is not left waiting"


@pytest.mark.case("29")
async def test_an_older_grant_without_offline_access_needs_no_new_consent(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with running(identity_provider, [user_app(identity_provider, scopes=OFFLINE)], clock=test_clock) as harness:
        await harness.connected()
        await harness.change_grant(scopes=("read",))
        assert isinstance(await harness.ask(), Ready)
