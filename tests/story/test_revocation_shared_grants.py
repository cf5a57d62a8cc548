"""Where one revocation ends all grants of a client at the provider, living grants of the account are spared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import ANYONE, App
from oauthbroker.model.connect_links import locator_of
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.token_results import Ready
from oauthbroker.records import Grant
from oauthbroker.repository.repository import Repository
from oauthbroker.revocation.revoke import ASK_AGAIN, KEEP_TELLING, Revoke
from oauthbroker.revocation.shared_grants import SharedGrants
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Entry
from oauthbroker.testing import IdentityProvider
from tests.kit.broker_process import Process, ask, complete, connected
from tests.kit.running_broker import ALICE, BOB, TEAM, global_app, turn, user_app
from tests.story.client_credentials_kit import machine_app
from tests.story.revocation_kit import apps_of_one_client, audited, grant_of, secret_count


@pytest.mark.case("53")
async def test_of_two_grants_that_die_together_only_the_last_one_is_ended_at_the_provider(start, identity_provider):
    process = start(apps_of_one_client(identity_provider))
    for app in ("mail", "twin"):
        await connected(process, identity_provider, app)
    assert "shared" == await process.broker.grants.revoke("mail", ALICE)
    assert (0, 2) == (identity_provider.count("revoke"), identity_provider.living_tokens("client-mail", "alice"))
    assert isinstance(await ask(process, "twin"), Ready)
    assert 0 == secret_count(await grant_of(process)), "the last of the family tells for it"
    assert "done" == await process.broker.grants.revoke("twin", ALICE)
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
    assert ["shared", "done"] == audited(process)


@pytest.mark.case("53")
async def test_what_waited_for_the_last_grant_is_ended_with_it_where_a_revocation_reaches_one_token_after_all(
    start, identity_provider
):
    process = start(three(identity_provider))
    identity_provider.change("client-mail", revoke_reach="only")
    for app in ("mail", "twin", "third"):
        await connected(process, identity_provider, app)
    assert "shared" == await process.broker.grants.revoke("mail", ALICE)
    assert "shared" == await process.broker.grants.revoke("twin", ALICE)
    assert 3 == identity_provider.living_tokens("client-mail", "alice")
    assert isinstance(await ask(process, "third"), Ready)
    assert "done" == await process.broker.grants.revoke("third", ALICE)
    assert (0, 6) == (identity_provider.living_tokens("client-mail", "alice"), identity_provider.count("revoke"))
    assert [0, 0, 0] == [secret_count(await grant_of(process, app)) for app in ("mail", "twin", "third")]


async def test_what_waited_outlives_a_new_login_of_the_grant_that_it_waits_for(start, identity_provider):
    process = start(apps_of_one_client(identity_provider))
    identity_provider.change("client-mail", revoke_reach="only")
    old = await connected(process, identity_provider)
    await connected(process, identity_provider, "twin")
    assert "shared" == await process.broker.grants.revoke("mail", ALICE)
    again = await process.broker.oauth(turn()).get_access_token("twin", switch_account=True)
    assert 200 == await complete(process, identity_provider, again)
    assert identity_provider.is_alive(old.access_token)
    assert "done" == await process.broker.grants.revoke("twin", ALICE)
    assert 0 == identity_provider.living_tokens("client-mail", "alice")


async def test_a_grant_that_ends_while_tokens_are_left_to_it_keeps_none(start, identity_provider, monkeypatch):
    process = start(apps_of_one_client(identity_provider))
    for app in ("mail", "twin"):
        await connected(process, identity_provider, app)
    living = SharedGrants.living

    async def ends_after_the_look(self: SharedGrants, app: App, grant: Grant) -> GrantKey | None:
        found = await living(self, app, grant)
        monkeypatch.setattr(SharedGrants, "living", living)
        assert "later" == await process.broker.grants.revoke("twin", ALICE)
        return found

    monkeypatch.setattr(SharedGrants, "living", ends_after_the_look)
    identity_provider.script.revoke.answer(503)
    assert "later" == await process.broker.grants.revoke("mail", ALICE)
    await process.parts.bulk_revocation.run_pass()
    assert 0 == identity_provider.living_tokens("client-mail", "alice")


async def test_tokens_that_a_crash_left_in_both_records_are_revoked_there_by_one_request_each(
    start, identity_provider, monkeypatch
):
    process = start(apps_of_one_client(identity_provider))
    for app in ("mail", "twin"):
        await connected(process, identity_provider, app)

    async def crashes(*_: Any) -> bool:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    with monkeypatch.context() as patch:
        patch.setattr(Revoke, "_change", crashes)
        with pytest.raises(BrokerError):
            await process.broker.grants.revoke("mail", ALICE)
    assert "pending" == (await grant_of(process)).revocation
    await process.parts.bulk_revocation.run_pass()
    assert ("shared", 0) == ((await grant_of(process)).revocation, secret_count(await grant_of(process)))
    assert "done" == await process.broker.grants.revoke("twin", ALICE)
    assert 4 == identity_provider.count("revoke"), "two tokens of each"


async def test_both_at_once_end_at_the_provider_too(start, identity_provider):
    process = start(apps_of_one_client(identity_provider))
    for app in ("mail", "twin"):
        await connected(process, identity_provider, app)
    figures = await process.broker.grants.revoke_all(subject=ALICE)
    assert (2, 2, 0) == (figures.ended, figures.count("done"), figures.left)
    assert 0 == identity_provider.living_tokens("client-mail", "alice")


async def test_another_persons_grant_is_no_kin(start, identity_provider):
    process = start(apps_of_one_client(identity_provider))
    await connected(process, identity_provider)
    bobs = await connected(process, identity_provider, "twin", "bob", user=BOB)
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
    assert identity_provider.is_alive(bobs.access_token)


async def test_where_a_revocation_reaches_no_further_than_its_token_kin_does_not_matter(start, identity_provider):
    process = start(apps_of_one_client(identity_provider, "token"))
    for app in ("mail", "twin"):
        await connected(process, identity_provider, app)
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert isinstance(await ask(process, "twin"), Ready)
    assert 1 == identity_provider.living_tokens("client-mail", "alice")


async def test_the_user_who_connected_an_app_for_the_team_keeps_their_own_grant(start, identity_provider):
    team = global_app(identity_provider, revocation=Revocation(reach="grant"))
    own = replace(user_app(identity_provider, "own"), client=team.client, revocation=Revocation(reach="grant"))
    own = replace(own, owner=replace(own.owner, user_identity=team.owner.user_identity))
    identity_provider.change("client-team", revoke_reach="grant", redirect_uris=(team.redirect.uri, own.redirect.uri))
    process = start([team, own])
    await connected(process, identity_provider, "team")
    mine = await connected(process, identity_provider, "own")
    assert "shared" == await process.broker.grants.revoke("team", TEAM)
    assert identity_provider.is_alive(mine.access_token)


# a shared grant that cannot be read


async def unreadable(process: Process, app: str) -> Callable[[], Awaitable[None]]:
    """A newer version has written this grant. Return the way back to the old one."""
    await process.tend()
    key = process.store.key("grants", app, ALICE)
    entry = await process.store.get(key)
    assert entry is not None
    newer = await process.store.put(key, entry.body.replace(b'"schema":1', b'"schema":2'), expect=entry.generation)

    async def repaired() -> None:
        await process.store.put(key, entry.body, expect=newer.generation)

    return repaired


@pytest.mark.case("53")
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
async def test_a_shared_grant_that_cannot_be_read_delays_what_the_provider_is_told_and_nothing_else(
    start, identity_provider, many
):
    """Telling might end it. The revocation holds here, is marked, and goes on when the record is repaired."""
    process = start(apps_of_one_client(identity_provider))
    for app in ("mail", "twin"):
        await connected(process, identity_provider, app)
    repaired = await unreadable(process, "twin")
    if many:
        figures = await process.broker.grants.revoke_each([GrantKey("mail", ALICE)], patience=60)
        assert ({GrantKey("mail", ALICE): "later"}, {}) == (figures.outcomes, figures.failed)
    else:
        assert "later" == await process.broker.grants.revoke("mail", ALICE)
    grant = await grant_of(process)
    assert (True, "pending", ["failed"]) == (grant.revoked, grant.revocation, audited(process))
    assert "revoked" == (await ask(process)).reason
    for _ in range(2):
        await process.parts.bulk_revocation.run_pass()
    assert (0, ["failed"]) == (identity_provider.count("revoke"), audited(process)), "an hour of quiet"
    await process.tend()
    assert 1 == await process.store.count("due")
    await repaired()
    process.clock.advance(ASK_AGAIN.total_seconds())
    await process.parts.bulk_revocation.run_pass()
    assert (0, "shared") == (secret_count(await grant_of(process)), audited(process)[-1])


async def test_another_shared_grant_that_is_alive_decides_beside_one_that_cannot_be_read(start, identity_provider):
    process = start(three(identity_provider))
    for app in ("mail", "twin", "third"):
        await connected(process, identity_provider, app)
    await unreadable(process, "twin")
    assert "shared" == await process.broker.grants.revoke("mail", ALICE)


async def test_what_no_repair_comes_for_is_erased_after_a_week_with_an_entry(start, identity_provider):
    process = start(apps_of_one_client(identity_provider))
    for app in ("mail", "twin"):
        await connected(process, identity_provider, app)
    await unreadable(process, "twin")
    assert "later" == await process.broker.grants.revoke("mail", ALICE)
    process.clock.advance(KEEP_TELLING.total_seconds() + 1)
    await process.parts.bulk_revocation.run_pass()
    assert (0, "none") == (secret_count(await grant_of(process)), audited(process)[-1])


# one team's app that two people installed


def installed(idp: IdentityProvider, authorizers: tuple[str, ...] | None, *names: str) -> list[App]:
    """Apps of one client that belong to a team; None for `anyone`, whose name is not asked for."""
    made: list[App] = []
    for name in names:
        app = global_app(idp, name, revocation=Revocation(reach="grant"))
        owner = replace(app.owner, authorizers=authorizers or ANYONE)
        owner = owner if authorizers else replace(owner, user_identity=None)
        made.append(replace(app, owner=owner, client=made[0].client if made else app.client))
    idp.change(made[0].client.client_id, revoke_reach="grant", redirect_uris=tuple(app.redirect.uri for app in made))
    return made


@pytest.mark.case("53")
@pytest.mark.parametrize("authorizers", [(ALICE, BOB), None], ids=["two who may", "anyone"])
async def test_a_teams_bot_outlives_the_end_of_its_other_one_for_any_installer(start, identity_provider, authorizers):
    process = start(installed(identity_provider, authorizers, "team", "bot"))
    await connected(process, identity_provider, "team")
    bot = await connected(process, identity_provider, "bot", "bob", user=BOB)
    assert "shared" == await process.broker.grants.revoke("team", TEAM)
    assert identity_provider.is_alive(bot.access_token)
    assert isinstance(await ask(process, "bot"), Ready)
    assert "done" == await process.broker.grants.revoke("bot", TEAM)
    assert not identity_provider.is_alive(bot.access_token)


async def test_a_machines_token_is_told_although_another_app_has_its_client(start, identity_provider):
    """It has no consent of a person, and if the other one should die too, it is fetched again."""
    one = replace(machine_app(identity_provider), revocation=Revocation(reach="grant"))
    process = start([one, replace(one, name="twin")])
    for app in (one.name, "twin"):
        assert isinstance(await ask(process, app), Ready)
    assert "done" == await process.broker.grants.revoke(one.name, TEAM)


# a login of a moment ago


def three(idp: IdentityProvider) -> list[App]:
    mail, twin = apps_of_one_client(idp)
    third = replace(mail, name="third", redirect=replace(mail.redirect, callback_path="/oauth/callback/third"))
    idp.change("client-mail", redirect_uris=tuple(app.redirect.uri for app in (mail, twin, third)))
    return [mail, twin, third]


async def looked_around(process: Process, idp: IdentityProvider) -> None:
    """Alice's mail is all that lives, and the broker has just found that out."""
    await connected(process, idp)
    await connected(process, idp, account="bob", user=BOB)
    assert "done" == await process.broker.grants.revoke("mail", BOB)


@pytest.mark.case("53")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["in this broker", "in another one"])
async def test_a_login_of_a_moment_ago_is_kin(start, identity_provider, elsewhere):
    apps = three(identity_provider)
    process, other = start(apps), start(apps)
    await looked_around(process, identity_provider)
    new = await connected(other if elsewhere else process, identity_provider, "twin")
    assert "shared" == await process.broker.grants.revoke("mail", ALICE)
    assert identity_provider.is_alive(new.access_token)


def scans_are_slow(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan of the store takes ten seconds: so its answer is believed for a while."""
    scan = FileStore.scan

    async def slow(store: FileStore, kind: str, **skip: Any) -> AsyncIterator[Entry]:
        process.clock.advance(10)
        async for entry in scan(store, kind, **skip):
            yield entry

    monkeypatch.setattr(FileStore, "scan", slow)


@pytest.mark.case("53")
async def test_a_login_for_another_subject_is_kin_by_who_agreed_although_the_last_scan_is_young(
    start, identity_provider, monkeypatch
):
    """Alice disconnects her own account a moment after she has connected her team."""
    team = global_app(identity_provider, revocation=Revocation(reach="grant"))
    own = replace(user_app(identity_provider, "own"), client=team.client, revocation=Revocation(reach="grant"))
    own = replace(own, owner=replace(own.owner, user_identity=team.owner.user_identity))
    identity_provider.change("client-team", revoke_reach="grant", redirect_uris=(team.redirect.uri, own.redirect.uri))
    process = start([team, own])
    scans_are_slow(process, monkeypatch)
    for account, user in (("bob", BOB), ("alice", ALICE)):
        await connected(process, identity_provider, "own", account, user=user)
    assert "done" == await process.broker.grants.revoke("own", BOB)
    teams = await connected(process, identity_provider, "team")
    assert "shared" == await process.broker.grants.revoke("own", ALICE)
    assert identity_provider.is_alive(teams.access_token)


@pytest.mark.case("53")
async def test_a_login_elsewhere_while_the_provider_is_being_told_is_not_ended_with_the_second_token(
    start, identity_provider
):
    process = start(apps_of_one_client(identity_provider))
    await connected(process, identity_provider)
    hold = identity_provider.script.revoke.hang(after_work=True)
    revoking = asyncio.create_task(process.broker.grants.revoke("mail", ALICE))
    await hold.arrived()
    new = await connected(process, identity_provider, "twin")
    hold.release()
    assert "later" == await revoking
    await process.parts.bulk_revocation.run_pass()
    assert (1, 0) == (identity_provider.count("revoke"), secret_count(await grant_of(process)))
    assert identity_provider.is_alive(new.access_token)


# a login whose tokens are out, and not stored yet


@pytest.mark.case("53")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["in this broker", "in another one"])
@pytest.mark.parametrize("app", ["twin", "mail"])
async def test_a_login_that_is_being_redeemed_is_waited_for(start, identity_provider, app, elsewhere):
    """She disconnects the one while she connects the other, or more of the same, and its code is at the provider."""
    apps = three(identity_provider)
    process, other = start(apps), start(apps)
    asked = await process.broker.oauth(turn()).get_access_token("mail", ["read"])
    assert 200 == await complete(process, identity_provider, asked)
    where = other if elsewhere else process
    asked = await where.broker.oauth(turn()).get_access_token(app, ["write"])
    hold = identity_provider.script.token.hang(after_work=True)
    coming = asyncio.create_task(complete(where, identity_provider, asked))
    await hold.arrived()
    assert "later" == await process.broker.grants.revoke("mail", ALICE)
    hold.release()
    assert 200 == await coming
    await process.parts.bulk_revocation.run_pass()
    ready = await process.broker.oauth(turn()).get_access_token(app, ["write"])
    assert isinstance(ready, Ready)
    assert (True, 0) == (identity_provider.is_alive(ready.access_token), identity_provider.count("revoke"))


@pytest.mark.case("53")
async def test_a_login_that_came_to_nothing_keeps_no_revocation_back(start, identity_provider):
    process = start(apps_of_one_client(identity_provider))
    await connected(process, identity_provider)
    asked = await ask(process, "twin")
    hold = identity_provider.script.token.hang(after_work=True)
    coming = asyncio.create_task(complete(process, identity_provider, asked, "bob"))
    await hold.arrived()
    assert "later" == await process.broker.grants.revoke("mail", ALICE)
    assert identity_provider.living_tokens("client-mail", "alice")
    hold.release()
    assert 403 == await coming, "it was Bob who agreed"
    await process.parts.bulk_revocation.run_pass()
    assert (0, 0) == (identity_provider.living_tokens("client-mail", "alice"), secret_count(await grant_of(process)))


async def claimed_by_who_died(process: Process, longest: timedelta) -> None:
    """A user came back to the twin's link, to a process that has ended."""
    asked = await ask(process, "twin")
    repository = Repository(process.store)
    versioned = await repository.session(locator_of(asked.auth_session_id))
    assert versioned is not None
    claimed = versioned.record.claimed("who died", process.clock.now() + longest)
    await repository.save_session(claimed, expect=versioned.generation)


@pytest.mark.case("53")
async def test_a_login_whose_process_died_keeps_a_revocation_back_no_longer_than_its_claim(start, identity_provider):
    process = start(apps_of_one_client(identity_provider))
    await connected(process, identity_provider)
    await claimed_by_who_died(process, timedelta(seconds=70))
    assert "later" == await process.broker.grants.revoke("mail", ALICE)
    process.clock.advance(71)
    await process.parts.bulk_revocation.run_pass()
    assert 0 == identity_provider.living_tokens("client-mail", "alice")


@pytest.mark.case("56")
async def test_a_provider_that_was_not_asked_has_not_recovered(start, identity_provider):
    process = start(apps_of_one_client(identity_provider))
    await connected(process, identity_provider)
    asked = await ask(process, "twin")
    circuits = process.parts.revoke.circuits
    for _ in range(5):
        circuits.failed("mail", BrokerError(Code.PROVIDER_UNREACHABLE))
    process.clock.advance(61)
    token = identity_provider.script.token.hang(after_work=True)
    coming = asyncio.create_task(complete(process, identity_provider, asked))
    await token.arrived()
    assert "later" == await process.broker.grants.revoke("mail", ALICE)
    assert 0 == identity_provider.count("revoke")
    circuits.failed("mail", BrokerError(Code.PROVIDER_UNREACHABLE))
    assert circuits.open_now(), "its failures count on"
    token.release()
    await coming


async def test_a_claim_by_a_clock_that_went_a_day_ahead_holds_no_revocation_up(start, identity_provider):
    process = start(apps_of_one_client(identity_provider))
    await connected(process, identity_provider)
    await claimed_by_who_died(process, timedelta(days=1, seconds=70))
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert 0 == identity_provider.living_tokens("client-mail", "alice")


@pytest.mark.case("53")
async def test_who_finds_that_another_one_was_quicker_says_what_the_provider_really_knows(start, identity_provider):
    """The relay may have told, or found that it cannot, between the tombstone and the caller's own turn."""
    process = start(apps_of_one_client(identity_provider))
    for app in ("mail", "twin"):
        await connected(process, identity_provider, app)
    revoke = process.parts.revoke
    for app, known in (("mail", "shared"), ("twin", "done")):
        seen = await revoke.write_tombstone(GrantKey(app, ALICE))
        assert seen is not None
        assert known == await revoke.resume(process.broker.bundle.apps[app], seen)
        assert known == await revoke.resume(process.broker.bundle.apps[app], seen)
