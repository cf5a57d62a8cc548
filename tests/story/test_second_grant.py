"""One consent brings a bot's and a user's token: two grants of two apps, each of its own subject."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from oauthbroker.audit import TokensDropped
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.token_results import Ready
from oauthbroker.model.turn import TurnAuth
from oauthbroker.records import Grant
from oauthbroker.repository.repository import Repository
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit import postgres
from tests.kit.broker_process import granted_event_ids
from tests.kit.running_broker import ALICE, BOB, MALLORY, TEAM, Harness, running, to_the_end, turn
from tests.kit.slack_apps import SECOND, both_apps
from tests.story.hosts_kit import hosts
from tests.story.refresh_kit import LIFETIME

Change = Callable[[dict[str, Any]], dict[str, Any]]


def about_user(**members: Any) -> Change:
    """The answer with other members in `authed_user`; None removes one."""

    def change(found: dict[str, Any]) -> dict[str, Any]:
        user = {**found["authed_user"], **members}
        return found | {"authed_user": {name: value for name, value in user.items() if value is not None}}

    return change


def dropped_in(harness: Harness) -> list[TokensDropped]:
    return [entry for entry in harness.audit.entries if isinstance(entry, TokensDropped)]


@pytest.mark.case("18", "40")
async def test_one_consent_brings_two_grants_that_are_refreshed_apart(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    apps = both_apps(identity_provider, access_lifetime=LIFETIME)
    async with running(identity_provider, apps, clock=test_clock) as harness:
        asked = await harness.ask_link(scopes=["read"])
        shown = await harness.browser().open(asked.authorization_url)
        assert "search" in shown.text.partition("in your own name")[2]
        url = await harness.to_provider(asked, harness.browser())
        params = parse_qs(urlsplit(url).query)
        assert (["read"], ["search"]) == (params["scope"], params["user_scope"])
        assert 200 == (await harness.connect(asked)).status
        bot, user = await harness.ask(scopes=["read"]), await harness.ask(SECOND)
        assert isinstance(bot, Ready)
        assert isinstance(user, Ready)
        assert (await harness.grant("mail", TEAM)) is not None
        assert (await harness.grant(SECOND, ALICE)) is not None
        assert bot.access_token.reveal() != user.access_token.reveal()
        assert 1 == identity_provider.count("authorization_code")
        (first,) = granted_event_ids(asked)
        assert {first, f"{first}-{SECOND}"} == {event["eventId"] for event in await harness.events(count=2)}
        test_clock.advance(LIFETIME)
        identity_provider.script.refresh.alter(lambda found: found | found["authed_user"], times=None)  # flat
        newer = await harness.ask(SECOND)
        assert isinstance(newer, Ready)
        grant = await harness.grant("mail", TEAM)
        assert grant is not None
        assert grant.token is not None
        assert bot.access_token == grant.token.access_token, "the other grant was not touched"
        assert isinstance(await harness.ask(scopes=["read"]), Ready)
        assert 2 == identity_provider.count("refresh_token")


@pytest.mark.case("18", "40")
@pytest.mark.parametrize("reach, revoked", [("token", True), ("grant", False)])
@pytest.mark.parametrize(
    "user, change, code",
    [
        (BOB, about_user(), Code.SUBJECT_MISMATCH),  # Alice, another authorizer, consents in Bob's conversation
        (ALICE, about_user(token_type="DPoP"), Code.TOKEN_RESPONSE_INVALID),
        (ALICE, about_user(scope="search,admin"), Code.SCOPE_EXCEEDED),
    ],
)
async def test_a_second_token_that_does_not_fit_is_not_stored_and_told(
    identity_provider: IdentityProvider, user: str, change: Change, code: Code, reach: str, revoked: bool
) -> None:
    identity_provider.script.token.alter(change)
    async with running(identity_provider, both_apps(identity_provider, reach=reach)) as harness:
        bot = await harness.connected(scopes=["read"], of=turn(user))
        assert await harness.grant(SECOND, ALICE) is await harness.grant(SECOND, BOB) is None
        (dropped,) = dropped_in(harness)
        assert (SECOND, code.value, revoked) == (dropped.app, dropped.code, dropped.revoked)
        assert "the second token of a consent is not stored" in harness.log.getvalue()
        assert revoked is bool(identity_provider.revocations)
        assert identity_provider.is_alive(bot.access_token)
        assert 1 == len(await harness.events())


@pytest.mark.case("63")
async def test_a_store_that_fails_for_the_second_grant_does_not_cost_the_first(
    identity_provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Repository.save_grant

    async def fails(self: Repository, grant: Grant, **more: Any) -> Any:
        if grant.app == SECOND:
            raise BrokerError(Code.STORE_UNAVAILABLE)
        return await save(self, grant, **more)

    monkeypatch.setattr(Repository, "save_grant", fails)
    async with running(identity_provider, both_apps(identity_provider)) as harness:
        bot = await harness.connected(scopes=["read"])
        assert [(SECOND, "storeUnavailable", True)] == [(it.app, it.code, it.revoked) for it in dropped_in(harness)]
        assert identity_provider.is_alive(bot.access_token)


async def test_declined_user_scopes_are_no_error(identity_provider: IdentityProvider) -> None:
    identity_provider.script.token.alter(lambda found: found | {"authed_user": {"id": found["authed_user"]["id"]}})
    async with running(identity_provider, both_apps(identity_provider)) as harness:
        await harness.connected(scopes=["read"])
        assert await harness.grant(SECOND, ALICE) is None
        assert [] == dropped_in(harness)
        assert "second token" not in harness.log.getvalue()


@pytest.mark.parametrize("subjects", [{"global": TEAM}, {"global": TEAM, "user": MALLORY}])
async def test_the_second_token_is_not_asked_for_from_who_may_not_connect_the_first(
    identity_provider: IdentityProvider, subjects: dict[str, str]
) -> None:
    of = replace(turn(), auth=TurnAuth(subjects=subjects))
    async with running(identity_provider, both_apps(identity_provider)) as harness:
        url = await harness.to_provider(await harness.ask_link(of=of), harness.browser())
        assert "user_scope" not in parse_qs(urlsplit(url).query)


@pytest.mark.case("42")
async def test_a_refused_first_token_takes_the_second_one_with_it(identity_provider: IdentityProvider) -> None:
    identity_provider.script.token.fields(team={"id": "T666"})
    async with running(identity_provider, both_apps(identity_provider)) as harness:
        assert 400 <= (await harness.connect(await harness.ask_link(scopes=["read"]))).status
        assert await harness.grant("mail", TEAM) is await harness.grant(SECOND, ALICE) is None
        assert {"mail", SECOND} == {each.app for each in dropped_in(harness) if each.revoked}
        assert 0 == identity_provider.living_tokens("client-mail")


async def test_a_link_that_waits_for_the_second_app_ends_with_its_grant(identity_provider: IdentityProvider) -> None:
    async with running(identity_provider, both_apps(identity_provider)) as harness:
        waiting = await harness.ask_link(SECOND)
        await harness.connected(scopes=["read"])
        assert "completed" == (await harness.session(waiting)).status


async def test_two_people_of_one_conversation_have_links_of_their_own(identity_provider: IdentityProvider) -> None:
    async with running(identity_provider, both_apps(identity_provider)) as harness:
        first, second = [await harness.ask_link(of=turn(user)) for user in (ALICE, BOB)]
        assert first.authorization_url != second.authorization_url
        assert 200 == (await harness.connect(second, "bob")).status
        assert await harness.grant(SECOND, ALICE) is None
        assert await harness.grant(SECOND, BOB) is not None


async def test_the_link_of_one_host_ends_at_another_one(
    postgres_server: postgres.Server, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    """The subject of the second grant lies in the session, and both hosts answer with both grants."""
    postgres_server.new_database("second_grant")
    url = postgres_server.url("second_grant")
    async with hosts(2, url, tmp_path, identity_provider, apps=both_apps(identity_provider)) as (one, two):
        asked = await one.ask_link(scopes=["read"])
        callback = await two.way_back(asked, browser := two.browser())
        assert 200 == (await to_the_end(browser, callback)).status
        for host in (one, two):
            assert isinstance(await host.ask(scopes=["read"]), Ready)
            assert isinstance(await host.ask(SECOND), Ready)
    assert 1 == identity_provider.count("authorization_code")
