"""Ending many grants: all here before any provider hears of it, then each provider at its own pace, also in another process."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from oauthbroker.core.secret import Secret
from oauthbroker.grants.import_lines import Incoming
from oauthbroker.model.apps import App, Client
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import Ready
from oauthbroker.revocation import bulk
from oauthbroker.revocation.bulk import RevocationFigures
from oauthbroker.revocation.revoke import ASK_AGAIN, KEEP_TELLING, Revoke
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider import FOREVER
from oauthbroker.testing.provider.types import Client as Registration
from tests.kit.broker_process import Process, ask, complete, connected
from tests.kit.running_broker import ALICE, BOB, TEAM, user_app
from tests.story.client_credentials_kit import MACHINE, machine_app, team_turn
from tests.story.revocation_kit import grant_of, secret_count


async def test_all_have_ended_here_before_the_first_provider_hears_of_it(start, identity_provider):
    process = start([user_app(identity_provider), user_app(identity_provider, "files")])
    await connected(process, identity_provider)
    await connected(process, identity_provider, account="bob", user=BOB)
    await connected(process, identity_provider, "files")
    hold = identity_provider.script.revoke.hang()
    ending = asyncio.create_task(process.broker.grants.revoke_all(app="mail"))
    await hold.arrived()
    assert ["revoked", "revoked"] == [(await ask(process, user=user)).reason for user in (ALICE, BOB)]
    assert isinstance(await ask(process, "files"), Ready), "its end was not asked for"
    hold.release()
    figures = await ending
    assert (2, 2, 2, 0) == (figures.chosen, figures.ended, figures.count("done"), figures.left)
    assert 0 == identity_provider.living_tokens("client-mail")


async def test_a_busy_provider_is_left_in_peace_as_long_as_it_said_and_the_other_ones_are_told(
    start, identity_provider
):
    apps = [user_app(identity_provider), user_app(identity_provider, "files")]
    process = start(apps)
    for app in ("mail", "files"):
        await connected(process, identity_provider, app)
        await connected(process, identity_provider, app, "bob", user=BOB)
    identity_provider.script.revoke.answer(429, headers={"retry-after": "120"})
    figures = await process.broker.grants.revoke_all()
    busy = "mail" if identity_provider.living_tokens("client-mail") else "files"
    assert (4, 2, 2) == (figures.ended, figures.count("done"), figures.left)
    assert 2 == identity_provider.living_tokens(f"client-{busy}")
    asked = identity_provider.count("revoke")
    process.clock.advance(119)
    await process.parts.bulk_revocation.run_pass()
    assert asked == identity_provider.count("revoke")
    process.clock.advance(1)
    await process.parts.bulk_revocation.run_pass()
    assert 0 == identity_provider.living_tokens(f"client-{busy}")


async def test_a_call_with_patience_waits_for_it(start, identity_provider):
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)
    await connected(process, identity_provider, account="bob", user=BOB)
    identity_provider.script.revoke.answer(429, headers={"retry-after": "120"}, times=2)
    before = process.clock.monotonic()
    figures = await process.broker.grants.revoke_all(app="mail", patience=300)
    assert (2, 0) == (figures.count("done"), figures.left)
    assert 240 <= process.clock.monotonic() - before < 260
    assert 0 == identity_provider.living_tokens("client-mail")


async def test_the_next_broker_continues_unfinished_revocations(start, identity_provider):
    """The first run was stopped after its tombstones; the second one, in another process, finds and tells them."""
    first = start([user_app(identity_provider)])
    await connected(first, identity_provider)
    identity_provider.script.revoke.answer(503, times=2)
    assert 1 == (await first.broker.grants.revoke_all(app="mail")).left
    second = start([user_app(identity_provider)])
    figures = await second.broker.grants.revoke_all(app="mail", patience=60)
    assert (1, 0, 1) == (figures.chosen, figures.ended, figures.count("done"))
    assert 0 == (await second.broker.grants.revoke_all(app="mail")).chosen
    await second.tend()
    assert 0 == await second.store.count("due")


async def test_after_a_refused_client_the_other_grants_are_left_for_later(start, identity_provider, monkeypatch):
    monkeypatch.setattr("oauthbroker.revocation.bulk.REFUSALS_IN_A_ROW", 1)
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)
    await connected(process, identity_provider, account="bob", user=BOB)
    identity_provider.script.revoke.answer(401, {"error": "invalid_client"}, times=FOREVER)
    figures = await process.broker.grants.revoke_all(app="mail", patience=60)
    assert (2, 1, 1) == (figures.ended, figures.count("refused"), figures.count("later"))
    assert 1 == identity_provider.count("revoke")


async def test_a_refusal_is_remembered_by_the_next_process_too(start, identity_provider):
    first = start([user_app(identity_provider)])
    await connected(first, identity_provider)
    identity_provider.script.revoke.answer(401, {"error": "invalid_client"})
    assert "refused" == await first.broker.grants.revoke("mail", ALICE)
    second = start([user_app(identity_provider)])
    await second.parts.bulk_revocation.run_pass()
    assert 1 == identity_provider.count("revoke"), "only an operator can fix that"
    second.clock.advance(ASK_AGAIN.total_seconds())
    await second.parts.bulk_revocation.run_pass()
    assert 0 == secret_count(await grant_of(second))
    assert 0 == identity_provider.living_tokens("client-mail")


async def test_a_provider_that_hangs_keeps_no_other_one_from_hearing(start, identity_provider):
    process = start([user_app(identity_provider), user_app(identity_provider, "files")])
    for app in ("mail", "files"):
        await connected(process, identity_provider, app)
    identity_provider.script.revoke.answer(503, times=2)
    assert 2 == (await process.broker.grants.revoke_all()).left
    process.clock.advance(60)
    hold = identity_provider.script.revoke.hang()
    telling = asyncio.create_task(process.parts.bulk_revocation.run_pass())
    await hold.arrived()
    async with asyncio.timeout(60):
        while identity_provider.living_tokens("client-mail") and identity_provider.living_tokens("client-files"):
            await asyncio.sleep(0.01)
    hold.release()
    await telling
    assert (0, 0) == tuple(identity_provider.living_tokens(f"client-{app}") for app in ("mail", "files"))


async def test_two_brokers_tell_a_provider_once(start, identity_provider):
    one, other = start([user_app(identity_provider)]), start([user_app(identity_provider)])
    await connected(one, identity_provider)
    await connected(one, identity_provider, account="bob", user=BOB)
    for user in (ALICE, BOB):
        assert await one.parts.revoke.write_tombstone(GrantKey("mail", user)) is not None
    hold = identity_provider.script.revoke.hang(times=1)
    telling = [asyncio.create_task(broker.parts.bulk_revocation.run_pass()) for broker in (one, other)]
    await hold.arrived()
    hold.release()
    await asyncio.gather(*telling)
    await one.parts.bulk_revocation.run_pass()
    assert (4, 0) == (identity_provider.count("revoke"), identity_provider.living_tokens("client-mail"))
    assert [0, 0] == [secret_count(await grant_of(one, subject=user)) for user in (ALICE, BOB)]


async def test_retired_tokens_that_are_refused_for_a_week_are_forgotten(start, identity_provider):
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)
    identity_provider.script.revoke.answer(401, {"error": "invalid_client"}, times=FOREVER)
    assert "refused" == await process.broker.grants.revoke("mail", ALICE)
    await connected(process, identity_provider)
    await process.parts.bulk_revocation.run_pass()
    assert 4 == secret_count(await grant_of(process))
    process.clock.advance(KEEP_TELLING.total_seconds() + 1)
    await process.parts.bulk_revocation.run_pass()
    assert 2 == secret_count(await grant_of(process))


def without_the_app(_: IdentityProvider) -> list[App]:
    return []


def with_another_client(idp: IdentityProvider) -> list[App]:
    return [user_app(idp, client=Client("client-mistyped", Secret("another-secret")))]


@pytest.mark.parametrize("apps", [without_the_app, with_another_client])
@pytest.mark.parametrize("who_revokes", ["the one that cannot tell", "the one that can"])
async def test_a_broker_that_cannot_tell_a_provider_leaves_it_to_one_that_can(
    start, identity_provider, apps, who_revokes
):
    able = start([user_app(identity_provider)])
    await connected(able, identity_provider)
    blind = start(apps(identity_provider))
    if who_revokes == "the one that can":
        identity_provider.script.revoke.answer(503)
        assert "later" == await able.broker.grants.revoke("mail", ALICE)
        able.clock.advance(3600)
    else:
        assert "later" == await blind.broker.grants.revoke("mail", ALICE)
    for _ in range(3):
        blind.clock.advance(24 * 3600)
        await blind.parts.relay.once()
        await blind.parts.bulk_revocation.run_pass()
    began = blind.clock.monotonic()
    figures = RevocationFigures()
    await blind.broker.grants.revoke_each([GrantKey("mail", ALICE)], figures, patience=60)
    assert ({GrantKey("mail", ALICE): "later"}, began) == (figures.outcomes, blind.clock.monotonic()), (
        "waiting does not help"
    )
    assert identity_provider.living_tokens("client-mail", "alice")
    await able.parts.bulk_revocation.run_pass()
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
    assert 0 == secret_count(await grant_of(able))


@pytest.mark.parametrize("apps", [without_the_app, with_another_client])
async def test_what_no_broker_can_tell_a_provider_is_erased_after_a_week(start, identity_provider, apps):
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)
    blind = start(apps(identity_provider))
    await blind.broker.grants.revoke("mail", ALICE)
    blind.clock.advance(KEEP_TELLING.total_seconds() - 1)
    await blind.parts.bulk_revocation.run_pass()
    assert 0 < secret_count(await grant_of(blind))
    blind.clock.advance(2)
    await blind.parts.bulk_revocation.run_pass()
    await blind.parts.relay.once()
    grant = await grant_of(blind)
    assert (0, "untold", 0) == (secret_count(grant), grant.revocation, (await blind.counts())["due"])


async def import_anew(process: Process) -> None:
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


async def sign_in_anew(process: Process, idp: IdentityProvider) -> None:
    await complete(process, idp, await ask(process))


@pytest.mark.parametrize("way", ["import", "login"])
async def test_tokens_of_one_client_are_never_sent_to_the_provider_of_another(start, identity_provider, way):
    """The app has moved to another provider while a revocation at the first one is pending."""
    with IdentityProvider() as second:
        before, after = start([user_app(identity_provider)]), start([user_app(second)])
        ready = await connected(before, identity_provider)
        grant = await grant_of(before)
        assert grant.token is not None
        identity_provider.script.revoke.answer(503, times=50)
        assert "later" == await before.broker.grants.revoke("mail", ALICE)
        await (import_anew(after) if way == "import" else sign_in_anew(after, second))
        await after.parts.bulk_revocation.run_pass()
        sent = [request.form.get("token") for request in second.seen("revoke")]
        assert [] == [token for token in (ready.access_token, grant.token.refresh_token) if token in sent]


async def test_a_client_that_fetches_tokens_for_itself_revokes_none_of_another_client(start, identity_provider):
    app = machine_app(identity_provider)
    registration = identity_provider.register(Registration("client-two", redirect_uris=()))
    other = replace(app, client=Client(registration.client_id, registration.client_secret))
    one, two = start([app]), start([other])
    ready = await one.broker.oauth(team_turn()).get_access_token(MACHINE)
    identity_provider.script.revoke.answer(503)
    await one.broker.grants.revoke(MACHINE, TEAM)
    asked = identity_provider.count("revoke")
    assert isinstance(await two.broker.oauth(team_turn()).get_access_token(MACHINE), Ready)
    await two.parts.bulk_revocation.run_pass()
    assert ready.access_token not in [request.form.get("token") for request in identity_provider.seen("revoke")[asked:]]


async def test_a_run_that_is_cancelled_counts_each_grant_whose_end_was_written(start, identity_provider, monkeypatch):
    process = start([user_app(identity_provider), user_app(identity_provider, "files")])
    await connected(process, identity_provider)
    await connected(process, identity_provider, account="bob", user=BOB)
    await connected(process, identity_provider, "files")
    written, write = list[GrantKey](), Revoke.write_tombstone

    async def write_and_stop(revoke: Revoke, key: GrantKey) -> object:
        found = await write(revoke, key)
        written.append(key)
        if len(written) == 2:
            ending.cancel()
            await asyncio.sleep(0)
        return found

    monkeypatch.setattr(bulk, "AT_ONCE", 1)
    monkeypatch.setattr(Revoke, "write_tombstone", write_and_stop)
    figures, pairs = RevocationFigures(), [GrantKey("mail", ALICE), GrantKey("mail", BOB), GrantKey("files", ALICE)]
    ending = asyncio.create_task(process.broker.grants.revoke_each(pairs, figures))
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert (pairs[:2], 2, 2, 1) == (written, figures.ended, figures.left, figures.unended)
    assert 0 == identity_provider.count("revoke")
