"""An app gets another client id while a revocation is pending: the old client's tokens wait for a broker that has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from oauthbroker.core.secret import Secret
from oauthbroker.grants.import_lines import Incoming
from oauthbroker.model.apps import App, Client
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.records import Grant
from oauthbroker.records.grant_view import GrantView
from oauthbroker.records.unrevoked_tokens import parts_of
from oauthbroker.revocation.revoke import ASK_AGAIN, KEEP_TELLING
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.broker_process import Process, ask, connected
from tests.kit.running_broker import ALICE, running, user_app
from tests.story.client_credentials_kit import MACHINE, machine_app, team_turn
from tests.story.revocation_kit import apps_of_one_client, audited, grant_of

OLD, NEW = "client-mail", "client-other"
Replace = Callable[[Process, IdentityProvider], Awaitable[None]]


def with_new_client(idp: IdentityProvider, app: App) -> App:
    """The same app with another client id at the same provider."""
    other = user_app(idp, "other").client
    idp.change(NEW, redirect_uris=(app.redirect.uri,))
    return replace(app, client=Client(other.client_id, other.client_secret))


async def pending(process: Process, idp: IdentityProvider) -> Grant:
    """Connect and revoke, while the provider does not answer. Return the tombstone."""
    await connected(process, idp)
    idp.script.revoke.answer(503)
    assert "later" == await process.broker.grants.revoke("mail", ALICE)
    process.clock.advance(60)
    return await grant_of(process)


async def by_login(process: Process, idp: IdentityProvider) -> None:
    await connected(process, idp)


async def by_import(process: Process, _: IdentityProvider) -> None:
    line = Incoming(
        line=1,
        app="mail",
        subject=ALICE,
        refresh_token=Secret("imported-refresh"),
        scopes=("read",),
        account=None,
        mark="m",
    )
    await process.parts.importing.import_grant(line, replace=True)


@pytest.mark.case("53")
@pytest.mark.parametrize("replaced", [by_login, by_import])
@pytest.mark.parametrize("reach", ["token", "grant"])
async def test_tokens_of_a_pending_revocation_wait_for_the_client_that_may_send_them(
    start, identity_provider, reach, replaced: Replace
):
    app = user_app(identity_provider, revocation=Revocation(reach=reach))
    old, new = start([app]), start([with_new_client(identity_provider, app)])
    tombstone = await pending(old, identity_provider)
    await replaced(new, identity_provider)
    grant = await grant_of(new)
    assert [False, True] == [part.revoked for part in (grant, *parts_of(grant))]
    assert GrantView.of(grant, None, new.clock.now()).revocation_pending
    asked = identity_provider.count("revoke")
    await new.tend()
    await new.parts.bulk_revocation.run_pass()
    assert (1, asked) == (identity_provider.living_tokens(OLD, "alice"), identity_provider.count("revoke"))
    await old.parts.bulk_revocation.run_pass()
    assert 0 == identity_provider.living_tokens(OLD, "alice")
    left = await grant_of(new)
    assert (False, ()) == (left.revocation_pending, left.elsewhere)
    assert left.token is not None
    assert left.token.access_token != getattr(tombstone.token, "access_token", None)
    assert ["failed", "done"] == audited(old)
    await new.tend()
    assert 0 == await new.store.count("due")


async def test_after_a_reload_with_another_client_they_wait_for_a_reload_back(
    identity_provider: IdentityProvider, test_clock: TestClock
):
    app = user_app(identity_provider)
    other = with_new_client(identity_provider, app)
    async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
        await harness.connected()
        identity_provider.script.revoke.answer(503)
        assert "later" == await harness.broker.grants.revoke("mail", ALICE)
        test_clock.advance(60)
        await harness.broker.reload(replace(harness.broker.bundle, apps={"mail": other}))
        new = await harness.connected()
        await harness.parts.bulk_revocation.run_pass()
        assert 1 == identity_provider.living_tokens(OLD, "alice")
        await harness.broker.reload(replace(harness.broker.bundle, apps={"mail": app}))
        await harness.parts.bulk_revocation.run_pass()
        assert 0 == identity_provider.living_tokens(OLD, "alice")
        assert identity_provider.is_alive(new.access_token)


@pytest.mark.parametrize("first", ["old", "new"])
async def test_revoking_again_from_either_broker_ends_both(start, identity_provider, first):
    app = user_app(identity_provider)
    brokers = {"old": start([app]), "new": start([with_new_client(identity_provider, app)])}
    await pending(brokers["old"], identity_provider)
    await connected(brokers["new"], identity_provider)
    second = brokers["new" if first == "old" else "old"]
    assert "later" == await brokers[first].broker.grants.revoke("mail", ALICE), "it can tell of one client alone"
    own, others = (OLD, NEW) if first == "old" else (NEW, OLD)
    assert 0 == identity_provider.living_tokens(own, "alice")
    assert 1 == identity_provider.living_tokens(others, "alice")
    await second.parts.bulk_revocation.run_pass()
    assert [0, 0] == [identity_provider.living_tokens(client, "alice") for client in (OLD, NEW)]
    grant = await grant_of(second)
    assert (True, None, False) == (grant.revoked, grant.token, grant.revocation_pending)


async def test_a_login_back_with_the_first_client_takes_them_over(start, identity_provider):
    app = user_app(identity_provider)
    old, new = start([app]), start([with_new_client(identity_provider, app)])
    await pending(old, identity_provider)
    await connected(new, identity_provider)
    ready = await connected(old, identity_provider)
    (others,) = (await grant_of(old)).elsewhere
    assert others.registration == new.broker.bundle.apps["mail"].registration, "only the new client may revoke them"
    await old.parts.bulk_revocation.run_pass()
    assert [1, 1] == [identity_provider.living_tokens(client, "alice") for client in (OLD, NEW)]
    await new.parts.bulk_revocation.run_pass()
    assert [1, 0] == [identity_provider.living_tokens(client, "alice") for client in (OLD, NEW)]
    assert identity_provider.is_alive(ready.access_token)


async def test_a_login_back_that_a_revocation_would_end_keeps_them_until_its_own_end(start, identity_provider):
    app = user_app(identity_provider, revocation=Revocation(reach="grant"))
    identity_provider.change(OLD, revoke_reach="only")
    old, new = start([app]), start([with_new_client(identity_provider, app)])
    await pending(old, identity_provider)
    await connected(new, identity_provider)
    ready = await connected(old, identity_provider)
    for broker in (old, new):
        await broker.parts.bulk_revocation.run_pass()
    assert (False, ["failed"]) == ((await grant_of(old)).revocation_pending, audited(old))
    assert identity_provider.is_alive(ready.access_token)
    assert "later" == await old.broker.grants.revoke("mail", ALICE), "it cannot tell of the other client"
    await new.parts.bulk_revocation.run_pass()
    assert [0, 0] == [identity_provider.living_tokens(client, "alice") for client in (OLD, NEW)]
    assert not (await grant_of(new)).revocation_pending


async def test_they_are_kept_as_long_as_refused_ones_and_then_given_up_with_an_entry(start, identity_provider):
    app = user_app(identity_provider)
    old, new = start([app]), start([with_new_client(identity_provider, app)])
    await pending(old, identity_provider)
    await connected(new, identity_provider)
    new.clock.advance(KEEP_TELLING.total_seconds() - 61)
    await new.parts.bulk_revocation.run_pass()
    assert (await grant_of(new)).revocation_pending
    new.clock.advance(120)
    await new.parts.bulk_revocation.run_pass()
    grant = await grant_of(new)
    assert (False, False, ["none"]) == (grant.revoked, grant.revocation_pending, audited(new))
    assert grant.token is not None, "the new grant stays"


async def test_a_refusal_of_one_client_delays_no_revocation_of_the_other(start, identity_provider):
    app = user_app(identity_provider)
    old, new = start([app]), start([with_new_client(identity_provider, app)])
    await pending(old, identity_provider)
    await connected(new, identity_provider)
    await new.parts.revoke.write_tombstone(GrantKey("mail", ALICE))
    identity_provider.script.revoke.answer(401, {"error": "invalid_client"})
    await old.parts.bulk_revocation.run_pass()
    asked = identity_provider.count("revoke")
    await old.parts.bulk_revocation.run_pass()
    assert asked == identity_provider.count("revoke"), "the refusing provider is left alone"
    await new.parts.bulk_revocation.run_pass()
    assert [1, 0] == [identity_provider.living_tokens(client, "alice") for client in (OLD, NEW)]
    old.clock.advance(ASK_AGAIN.total_seconds())
    await old.parts.bulk_revocation.run_pass()
    assert 0 == identity_provider.living_tokens(OLD, "alice")


async def test_of_shared_grants_of_the_first_client_only_the_last_one_is_told(start, identity_provider):
    """Where the provider ends all that the account gave the client: its other app is still wanted."""
    mail, twin = apps_of_one_client(identity_provider)
    old, new = start([mail, twin]), start([with_new_client(identity_provider, mail)])
    await connected(old, identity_provider)
    await pending_alone(old, identity_provider)
    await connected(new, identity_provider)
    ready = await connected(old, identity_provider, "twin")
    await old.parts.bulk_revocation.run_pass()
    assert identity_provider.is_alive(ready.access_token)
    assert (False, "shared") == ((await grant_of(old)).revocation_pending, audited(old)[-1])


async def pending_alone(process: Process, idp: IdentityProvider) -> None:
    idp.script.revoke.answer(503)
    assert "later" == await process.broker.grants.revoke("mail", ALICE)
    process.clock.advance(60)


async def test_a_refresh_that_ends_after_a_login_with_another_client_joins_the_pending_revocation(
    start, identity_provider
):
    """Its answer rotates the refresh token that waits: without the new one nothing could be revoked."""
    app = user_app(identity_provider)
    identity_provider.change(OLD, revoke_reach="only")
    old, new = start([app]), start([with_new_client(identity_provider, app)])
    await connected(old, identity_provider)
    for clock in (old.clock, new.clock, identity_provider.clock):
        clock.advance(3600)
    hold = identity_provider.script.refresh.hang(after_work=True)
    asking = asyncio.create_task(ask(old))
    await hold.arrived()
    assert await old.parts.revoke.write_tombstone(GrantKey("mail", ALICE)) is not None
    await connected(new, identity_provider)
    hold.release()
    assert isinstance(await asking, AuthorizationRequired)
    await old.parts.bulk_revocation.run_pass()
    assert 0 == identity_provider.living_tokens(OLD, "alice")
    assert isinstance(await ask(new), Ready)


async def test_a_machines_tokens_wait_for_their_client_too(start, identity_provider):
    app = machine_app(identity_provider)
    one, two = start([app]), start([with_new_client(identity_provider, app)])
    ready = await one.broker.oauth(team_turn()).get_access_token(MACHINE)
    identity_provider.script.revoke.answer(503)
    (grant,) = [versioned.record async for versioned in one.parts.repository.grants()]
    assert "later" == await one.broker.grants.revoke(MACHINE, grant.subject)
    one.clock.advance(60)
    assert isinstance(await two.broker.oauth(team_turn()).get_access_token(MACHINE), Ready)
    await two.parts.bulk_revocation.run_pass()
    assert identity_provider.is_alive(ready.access_token)
    await one.parts.bulk_revocation.run_pass()
    assert not identity_provider.is_alive(ready.access_token)


async def test_a_machines_token_that_comes_after_its_revocation_is_revoked(start, identity_provider):
    process = start([machine_app(identity_provider)])
    await process.broker.oauth(team_turn()).get_access_token(MACHINE)
    (grant,) = [versioned.record async for versioned in process.parts.repository.grants()]
    hold = identity_provider.script.token.hang(after_work=True)
    for clock in (process.clock, identity_provider.clock):
        clock.advance(3600)
    asking = asyncio.create_task(process.broker.oauth(team_turn()).get_access_token(MACHINE))
    await hold.arrived()
    assert await process.parts.revoke.write_tombstone(grant.key) is not None
    hold.release()
    result = await asking
    await process.parts.bulk_revocation.run_pass()
    assert not isinstance(result, Ready)
    assert 0 == identity_provider.living_tokens(f"client-{MACHINE}")
