"""Tokens that a new consent, a step-up, another account or an import replaces: they are revoked as soon as that ends
nothing else, at the latest with the grant that replaced them (case 53)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.grants.import_lines import Incoming
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.records import Grant, Token
from oauthbroker.repository.repository import Repository
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider import FOREVER
from tests.kit.broker_process import Process, ask, complete, connected
from tests.kit.running_broker import ALICE, BOB, TEAM, device_app, global_app, user_app
from tests.story.revocation_kit import apps_of_one_client, audited, grant_of

Replace = Callable[[Process, IdentityProvider], Awaitable[None]]
REACHES = [("token", "only"), ("token", "token"), ("grant", "grant"), ("grant", "token"), ("grant", "only")]
"""The reach that the app declares, and the provider's real one. The broker assumes `grant` where that is not
known."""


def mail(idp: IdentityProvider, reach: Any, really: str) -> App:
    app = user_app(idp, revocation=Revocation(reach=reach))
    idp.change("client-mail", revoke_reach=really)
    return app


async def by_another_consent(process: Process, idp: IdentityProvider) -> None:
    asked = await ask(process, switch_account=True)
    assert isinstance(asked, AuthorizationRequired)
    assert 200 == await complete(process, idp, asked)


async def by_step_up(process: Process, idp: IdentityProvider) -> None:
    versioned = await process.parts.repository.grant(GrantKey("mail", ALICE))
    assert versioned is not None
    async with process.parts.repository.pair(GrantKey("mail", ALICE)):
        narrow = replace(versioned.record, scopes=("read",))
        await process.parts.repository.save_grant(narrow, expect=versioned.generation)
    await connected(process, idp, scopes=["read", "write"])


async def by_import(process: Process, idp: IdentityProvider) -> None:
    """The line has a token of another consent, which another system got."""
    before = await grant_of(process)
    await by_another_consent(process, idp)
    there, versioned = await grant_of(process), await process.parts.repository.grant(GrantKey("mail", ALICE))
    assert there.token is not None
    assert there.token.refresh_token is not None
    assert versioned is not None
    async with process.parts.repository.pair(GrantKey("mail", ALICE)):
        await process.parts.repository.save_grant(before, expect=versioned.generation)
    token = there.token
    await process.parts.importing.import_grant(
        Incoming(
            line=1, app="mail", subject=ALICE, refresh_token=token.refresh_token or Secret(""),
            access_token=token.access_token, expires_at=token.expires_at, scopes=("read",), mark=str(idp.count("token")),
        ),
        replace=True,
    )  # fmt: skip


async def rounds(process: Process) -> None:
    for _ in range(3):
        await process.parts.relay.once()
        await process.parts.bulk_revocation.run_pass()


def living_families(idp: IdentityProvider, client: str = "client-mail") -> int:
    return sum(family.is_alive for family in idp.families(client))


@pytest.mark.sample(6)
@pytest.mark.case("53")
@pytest.mark.parametrize("reach, really", REACHES)
@pytest.mark.parametrize("replaced", [by_another_consent, by_step_up, by_import], ids=lambda it: it.__name__)
async def test_replaced_tokens_never_outlive_the_end_of_the_grant_and_never_end_it(
    start, identity_provider, replaced: Replace, reach, really
):
    process = start([mail(identity_provider, reach, really)])
    await connected(process, identity_provider)
    for _ in range(2):
        await replaced(process, identity_provider)
        await rounds(process)
    grant = await grant_of(process)
    assert grant.token is not None
    assert identity_provider.is_alive(grant.token.access_token)
    assert not grant.revocation_pending, "nothing is left to do as long as the grant lives"
    assert 0 == await process.store.count("due")
    if reach == "token" and replaced is not by_import:
        assert 1 == living_families(identity_provider) or really == "only"
        assert 1 == identity_provider.living_tokens("client-mail", "alice")
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    await rounds(process)
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
    assert really == "only" or 0 == living_families(identity_provider)
    assert (None, (), None) == ((left := await grant_of(process)).token, left.replaced, left.retired)


@pytest.mark.case("53")
async def test_a_provider_that_is_down_keeps_replaced_tokens_waiting(start, identity_provider):
    process = start([mail(identity_provider, "token", "token")])
    await connected(process, identity_provider)
    identity_provider.script.revoke.answer(503, times=FOREVER)
    await by_another_consent(process, identity_provider)
    await rounds(process)
    assert 2 == identity_provider.living_tokens("client-mail", "alice")
    identity_provider.script.revoke.reset()
    process.clock.advance(120)
    await rounds(process)
    assert 1 == identity_provider.living_tokens("client-mail", "alice")
    assert "done" == audited(process)[-1]


@pytest.mark.case("53")
async def test_a_token_that_the_provider_gives_again_is_not_revoked_with_the_rest(start, identity_provider):
    """The provider repeats the refresh token: its revocation, or that of a token made with it, would end the new one."""
    process = start([mail(identity_provider, "token", "family")])
    await connected(process, identity_provider)
    first = await grant_of(process)
    assert first.token is not None
    identity_provider.script.token.fields(refresh_token=None)  # the broker keeps the one that it has
    await by_another_consent(process, identity_provider)
    await rounds(process)
    grant = await grant_of(process)
    assert grant.token is not None
    assert grant.token.refresh_token == first.token.refresh_token
    assert identity_provider.is_alive(first.token.access_token), "it was made with the token that is kept"
    assert 0 == identity_provider.count("revoke")
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert not identity_provider.is_alive(first.token.access_token)


@pytest.mark.case("53")
@pytest.mark.parametrize("reach", ["token", "grant"])
async def test_replaced_tokens_of_another_account_spare_that_accounts_own_grant(start, identity_provider, reach):
    """Alice's team app was connected by Bob before, and Bob has an own grant at the same client."""
    team = global_app(identity_provider, revocation=Revocation(reach=reach))
    team = replace(team, owner=replace(team.owner, authorizers=(ALICE, BOB)))
    own = replace(user_app(identity_provider, "own"), client=team.client, revocation=Revocation(reach=reach))
    own = replace(own, owner=replace(own.owner, user_identity=team.owner.user_identity))
    identity_provider.change("client-team", revoke_reach=reach, redirect_uris=(team.redirect.uri, own.redirect.uri))
    process = start([team, own])
    await connected(process, identity_provider, "team", "bob")
    bobs = await connected(process, identity_provider, "own", "bob", user=BOB)
    versioned = await process.parts.repository.grant(GrantKey("team", TEAM))
    assert versioned is not None
    asked = await ask(process, "team", switch_account=True)
    assert 200 == await complete(process, identity_provider, asked, "alice")
    await rounds(process)
    await process.broker.grants.revoke("team", TEAM)
    await rounds(process)
    assert identity_provider.is_alive(bobs.access_token)
    assert 0 == identity_provider.living_tokens("client-team", "alice")
    await process.broker.grants.revoke("own", BOB)
    await rounds(process)
    assert 0 == identity_provider.living_tokens("client-team", "bob")


@pytest.mark.case("53")
@pytest.mark.parametrize("reach", ["token", "grant"])
async def test_of_shared_grants_each_keeps_its_replaced_tokens_until_the_last_one_ends(start, identity_provider, reach):
    process = start(apps_of_one_client(identity_provider, reach))
    twin = await connected(process, identity_provider, "twin")
    await connected(process, identity_provider)
    await by_another_consent(process, identity_provider)
    await rounds(process)
    assert identity_provider.is_alive(twin.access_token)
    await process.broker.grants.revoke("mail", ALICE)
    assert identity_provider.is_alive(twin.access_token)
    await process.broker.grants.revoke("twin", ALICE)
    assert 0 == identity_provider.living_tokens("client-mail", "alice")


@pytest.mark.case("53")
@pytest.mark.parametrize("reach, really", REACHES)
async def test_a_refresh_that_a_consent_overtook_leaves_nothing_behind(start, identity_provider, reach, really):
    process = start([mail(identity_provider, reach, really)])
    await connected(process, identity_provider)
    for clock in (process.clock, identity_provider.clock):
        clock.advance(3600)
    hold = identity_provider.script.refresh.hang(after_work=True)
    asking = asyncio.create_task(ask(process))
    await hold.arrived()
    await by_another_consent(process, identity_provider)
    hold.release()
    answer = await asking
    await rounds(process)
    assert isinstance(answer, Ready)
    assert identity_provider.is_alive(answer.access_token)
    if reach == "token":
        assert 1 == identity_provider.living_tokens("client-mail", "alice")
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert 0 == identity_provider.living_tokens("client-mail", "alice")


@pytest.mark.case("53")
async def test_late_tokens_of_the_same_consent_never_end_the_grant_that_another_attempt_refreshed(
    start, identity_provider
):
    """Both attempts sent one refresh token. The provider forgave that, and made both answers of one family."""
    process = start([mail(identity_provider, "token", "family")])
    await connected(process, identity_provider)
    begun = await grant_of(process)
    for clock in (process.clock, identity_provider.clock):
        clock.advance(3600)
    ready = await ask(process)
    assert isinstance(ready, Ready)
    late, app = process.parts.refresh.writeback.late, process.broker.bundle.apps["mail"]
    await late(app, GrantKey("mail", ALICE), refresh=None, access=Secret("late-access"), begun=begun)
    await rounds(process)
    assert identity_provider.is_alive(ready.access_token)
    assert 0 == identity_provider.count("revoke")
    (kept,) = (await grant_of(process)).replaced
    assert ["late-access"] == [secret.reveal() for secret in kept.secrets]


@pytest.mark.case("53")
async def test_late_tokens_beside_a_living_grant_that_cannot_be_read_are_not_told(
    start, identity_provider, monkeypatch
):
    process = start([mail(identity_provider, "token", "family")])
    await connected(process, identity_provider)
    grant = await grant_of(process)

    async def unreadable(*_: Any) -> Any:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    monkeypatch.setattr(Repository, "grant", unreadable)
    late, app = process.parts.refresh.writeback.late, process.broker.bundle.apps["mail"]
    await late(app, GrantKey("mail", ALICE), refresh=Secret("late-refresh"), access=Secret("late-access"), begun=grant)
    assert 0 == identity_provider.count("revoke")


async def test_a_device_code_replaces_like_a_browser(start, identity_provider):
    app = device_app(identity_provider, revocation=Revocation(reach="grant"))
    identity_provider.change("client-tv", revoke_reach="only")
    process = start([app])
    old = Grant(
        app="tv", provider=app.provider, subject=ALICE, flow="device_code", scopes=app.scopes,
        token=None, created_at=process.clock.now(), updated_at=process.clock.now(), registration=app.registration,
    )  # fmt: skip
    token = Token(
        access_token=Secret("old-access"), token_type="bearer", refresh_token=Secret("old-refresh"),
        expires_at=process.clock.now() + timedelta(hours=1), lifetime_seconds=3600,
    )  # fmt: skip
    await Repository(process.store).save_grant(replace(old, token=token), expect=0)
    asked = await ask(process, "tv", switch_account=True)
    assert asked.device_code is not None
    identity_provider.device_approve(asked.device_code.user_code)
    process.clock.advance(10)
    await process.parts.polling.once()
    (kept,) = (await grant_of(process, "tv")).replaced
    assert {"old-access", "old-refresh"} == {secret.reveal() for secret in kept.secrets}
