"""What an exchange may grant, through the whole flow: lifetimes, scopes, dialects, identities; and slow providers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.testing import IdentityProvider, Page, TestClock
from oauthbroker.testing.provider.types import Account
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import BOB, TEAM, Harness, running, turn, user_app

YEAR = 365 * 24 * 3600


@pytest.mark.case("28")
@pytest.mark.parametrize(
    "expires_in, seconds",
    [("3600", 3600), (3599.9, 3599), (-5, 0), (0, 0), ("0", 0), (1e30, YEAR), (YEAR + 1, YEAR), (60, 60), (None, None)],
)
@pytest.mark.rule("12.5.6-3")
async def test_a_lifetime_counts_from_the_request_and_is_never_guessed(
    harness: Harness, expires_in: Any, seconds: int | None
) -> None:
    """A planted `expires_at` is ignored."""
    planted = {"expires_in": expires_in, "expires_at": 4_000_000_000}
    harness.idp.script.token.alter(lambda found: {**found, **planted})
    assert 200 == (await harness.connect(await harness.ask_link())).status
    grant = await harness.grant()
    assert grant is not None
    assert grant.token is not None
    expected = None if seconds is None else harness.clock.now() + timedelta(seconds=seconds)
    assert expected == grant.token.expires_at
    ready = await harness.ask()
    assert isinstance(ready, Ready)
    lives = seconds is None or seconds > 0
    assert lives == (ready.access_token == grant.token.access_token), "an expired token is refreshed, never handed out"
    assert (0 if lives else 1) == harness.idp.count("refresh_token")


@pytest.mark.case("28")
async def test_without_expires_in_the_apps_own_default_counts(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    identity_provider.script.token.alter(lambda found: {k: v for k, v in found.items() if k != "expires_in"})
    habits = Habits(always_scopes=("openid",), default_lifetime_seconds=1800)
    async with running(identity_provider, [user_app(identity_provider, habits=habits)], clock=test_clock) as harness:
        ready = await harness.connected()
        assert test_clock.now() + timedelta(seconds=1800) == ready.expires_at


@pytest.mark.case("29")
@pytest.mark.rule("12.5.1-2")
async def test_fewer_scopes_than_asked_are_stored_and_the_agent_is_told_the_missing_ones(harness: Harness) -> None:
    asked = await harness.ask_link(scopes=["read", "write"])
    assert 200 == (await harness.connect(asked, scopes=["openid", "read"])).status
    (event,) = await harness.events()
    payload = event["payload"]
    assert ("auth.granted", ["read"], ["write"]) == (event["type"], payload["scopesGranted"], payload["scopesMissing"])
    ready = await harness.ask(scopes=["read"])
    assert isinstance(ready, Ready)
    assert ("read",) == ready.scopes
    more = await harness.ask_link(scopes=["read", "write"])
    assert "scopesDeclined" == more.reason


@pytest.mark.case("30")
async def test_more_than_the_app_allows_is_dropped_where_the_app_says_ignore(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """`ready` never lists a scope that the app does not have."""
    identity_provider.script.token.alter(lambda found: {**found, "scope": found["scope"] + " everything"})
    habits = Habits(always_scopes=("openid",), extra_scopes="ignore")
    async with running(identity_provider, [user_app(identity_provider, habits=habits)], clock=test_clock) as harness:
        ready = await harness.connected()
        assert ("read", "write", "admin") == ready.scopes
        (event,) = await harness.events()
        assert "everything" not in str(event)


@pytest.mark.case("31")
@pytest.mark.parametrize(
    "separator, said",
    [(",", "read,write"), (",", "read, write"), (" ", "write  read"), (" ", ["read", "write", "read"])],
)
async def test_a_scope_list_is_read_in_the_apps_own_spelling(
    identity_provider: IdentityProvider, test_clock: TestClock, separator: str, said: Any
) -> None:
    identity_provider.script.token.alter(lambda found: {**found, "scope": said})
    habits = Habits(scope_separator=separator)
    app = user_app(
        identity_provider, habits=habits, owner=Owner(user_identity=IdentityRule("userInfo", "idp:user:{sub}"))
    )
    async with running(identity_provider, [app], clock=test_clock) as harness:
        ready = await harness.connected(scopes=["read", "write"])
        assert ("read", "write") == ready.scopes


@pytest.mark.case("31")
async def test_no_scope_in_the_answer_means_the_requested_scopes(harness: Harness) -> None:
    harness.idp.script.token.alter(lambda found: {name: value for name, value in found.items() if name != "scope"})
    assert ("read",) == (await harness.connected(scopes=["read"])).scopes


@pytest.mark.case("21", "26")
async def test_a_provider_with_dialects_of_its_own_is_understood_where_the_app_says_so(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """Slack: the user's token inside `authed_user`, its own type, commas, `ok`; GitHub: a form."""
    slack = user_app(
        identity_provider,
        "slack",
        owner=Owner(user_identity=IdentityRule("tokenResponse", "slack:user:{team.id}:{authed_user.id}")),
        habits=Habits(
            scope_separator=",", scope_param="user_scope", token_path=("authed_user",), token_type_aliases=("user",)
        ),
    )
    github = user_app(
        identity_provider,
        "github",
        owner=Owner(user_identity=IdentityRule("userInfo", "github:user:{id}")),
        habits=Habits(scope_separator=",", token_response_format="form"),
    )
    for app in (slack, github):
        identity_provider.change(app.client.client_id, dialect=app.name)
    async with running(identity_provider, [slack, github], clock=test_clock) as harness:
        for name, subject in (("slack", "slack:user:T111:U234567"), ("github", "github:user:1001")):
            ready = await harness.connected(name, of=turn(user=subject), scopes=["read", "write"])
            assert ("bearer", ("read", "write")) == (ready.token_type, ready.scopes)
            assert harness.idp.is_alive(ready.access_token)


Spoil = Callable[[IdentityProvider], object]


@pytest.mark.case("34")
@pytest.mark.parametrize(
    "spoil, code",
    [
        (lambda idp: idp.script.userinfo.alter(lambda found: {**found, "sub": "U345678"}), Code.SUBJECT_MISMATCH),
        (lambda idp: idp.script.userinfo.alter(lambda found: {**found, "sub": ""}), Code.SUBJECT_UNVERIFIABLE),
        (lambda idp: idp.script.userinfo.alter(lambda found: {**found, "sub": 7}), Code.SUBJECT_UNVERIFIABLE),
        (lambda idp: idp.script.userinfo.alter(lambda found: {**found, "team": None}), Code.SUBJECT_UNVERIFIABLE),
        (lambda idp: idp.script.userinfo.alter(lambda found: {**found, "team": "a:b"}), Code.SUBJECT_UNVERIFIABLE),
        (lambda idp: idp.script.userinfo.answer(401, {"error": "CANARY"}), Code.SUBJECT_UNVERIFIABLE),
        (lambda idp: idp.script.userinfo.answer(200, "<html>who?</html>"), Code.SUBJECT_UNVERIFIABLE),
        (lambda idp: idp.script.userinfo.answer(200, [1]), Code.SUBJECT_UNVERIFIABLE),
        (lambda idp: idp.script.userinfo.answer(500), Code.PROVIDER_UNREACHABLE),
        (lambda idp: idp.script.userinfo.close_after_accept(), Code.PROVIDER_UNREACHABLE),
    ],
)
async def test_userinfo_without_an_account_connects_no_user(harness: Harness, spoil: Spoil, code: Code) -> None:
    spoil(harness.idp)
    asked = await harness.ask_link("team")
    assert_error_page(await harness.connect(asked), code)
    assert (None, code) == (await harness.grant("team", TEAM), (await harness.session(asked)).failure)
    assert 0 == harness.idp.living_tokens("client-team"), "what came along is revoked, after userinfo too"
    assert [code.value] == [event["payload"]["code"] for event in await harness.events()]


@pytest.mark.case("40")
async def test_an_app_that_cannot_identify_the_account_connects_no_user(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = user_app(identity_provider, owner=Owner(user_identity=None))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        assert_error_page(await harness.connect(await harness.ask_link()), Code.SUBJECT_UNVERIFIABLE)
        assert await harness.grant() is None


@pytest.mark.slow
@pytest.mark.case("23")
async def test_twenty_people_at_a_slow_provider_end_at_the_deadline_uncertain(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    limits = Limits(provider_seconds=2)
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, limits=limits) as harness:
        token = identity_provider.script.token
        token.drip(1, headers_too=True, times=7)
        token.drip(1, times=7)
        hold = token.hang(times=6)
        asked, slow = await twenty_at_the_provider(harness)
        pages = await asyncio.gather(*slow)
        hold.release()
        for name, page in zip(asked, pages, strict=True):
            assert_error_page(page, Code.EXCHANGE_UNCERTAIN)
            assert Code.EXCHANGE_UNCERTAIN is (await harness.session(asked[name])).failure
            assert ["exchangeUncertain"] == [event["payload"]["code"] for event in await harness.events(name)]


@pytest.mark.slow
@pytest.mark.case("23")
async def test_twenty_people_at_a_silent_provider_hold_no_other_person_up(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    limits = Limits(provider_seconds=60)
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, limits=limits) as harness:
        hold = identity_provider.script.token.hang(times=20)
        _, slow = await twenty_at_the_provider(harness)
        normal = await harness.connected(of=turn(user=BOB), account="bob")
        assert harness.idp.is_alive(normal.access_token)
        assert not any(task.done() for task in slow)
        hold.release()
        assert {200} == {page.status for page in await asyncio.gather(*slow)}


async def twenty_at_the_provider(
    harness: Harness,
) -> tuple[dict[str, AuthorizationRequired], list[asyncio.Task[Page]]]:
    """Let twenty people consent, and return when the provider has all their codes."""
    names = [f"slow{number}" for number in range(20)]
    for name in names:
        harness.idp.add_account(Account(name, sub=name.upper()))
    asked = {name: await harness.ask_link(of=turn(user=f"idp:user:{name.upper()}", agent=name)) for name in names}
    slow = [asyncio.create_task(harness.connect(asked[name], name)) for name in names]
    await harness.idp.wait_for("token", 20, timeout=30)
    return asked, slow


@pytest.mark.case("23")
async def test_a_provider_that_cannot_be_reached_has_not_seen_the_code(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = user_app(identity_provider)
    app = replace(app, endpoints=replace(app.endpoints, token_url="http://127.0.0.1:1/token"))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        assert_error_page(await harness.connect(await harness.ask_link()), Code.PROVIDER_UNREACHABLE)
        assert ["providerUnreachable"] == [event["payload"]["code"] for event in await harness.events()]


@pytest.mark.case("33")
async def test_keys_rotated_just_before_signing_are_fetched_and_a_dead_key_set_is_a_passing_failure(
    harness: Harness,
) -> None:
    await harness.connected(scopes=["read"])
    harness.idp.keys.rotate()
    harness.clock.advance(61)
    assert 200 == (await harness.connect(await harness.ask_link(scopes=["write"]))).status
    harness.idp.keys.rotate()
    harness.clock.advance(61)
    harness.idp.script.jwks.answer(500, times=None)
    asked = await harness.ask_link("files")
    assert_error_page(await harness.connect(asked), Code.PROVIDER_UNREACHABLE)
    assert await harness.grant("files") is None


async def test_a_second_login_of_the_same_account_replaces_the_grant_and_revokes_nothing(harness: Harness) -> None:
    first = await harness.connected(scopes=["read"])
    asked = await harness.ask(scopes=["read"], switch_account=True)
    assert isinstance(asked, AuthorizationRequired)
    await harness.connect(asked)
    second = await harness.ask(scopes=["read"])
    assert isinstance(second, Ready)
    assert first.access_token.reveal() != second.access_token.reveal()
    assert [True, True] == [harness.idp.is_alive(ready.access_token) for ready in (first, second)]
    assert 0 == harness.idp.count("revoke")
