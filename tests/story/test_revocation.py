"""Ending grants: at once here, in its own way and at its own pace at the provider, and never one that nobody meant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.apps import OAuthApp, Revocation
from oauthbroker.audit import GrantEnded, GrantRevoked
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.revoke import ASK_AGAIN, KEEP_TELLING
from oauthbroker.records import Grant
from oauthbroker.repository import Repository
from oauthbroker.results import AuthorizationRequired, Ready
from oauthbroker.secret import Secret
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider import FOREVER
from oauthbroker.testing.stores import open_keyring
from tests.faults.broker_kit import Process
from tests.house import ALICE, BOB, TEAM, global_app, turn, user_app
from tests.story.test_recovery import comes_back

Start = Callable[[Iterable[OAuthApp]], Process]


@pytest.fixture
async def start(identity_provider: IdentityProvider, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a broker on the same files; its relay runs when the test says so."""
    ring, started = open_keyring(tmp_path), list[Process]()

    def one(apps: Iterable[OAuthApp]) -> Process:
        process = Process.start(tmp_path / "store", ring, apps, identity_provider.clock.now())
        started.append(process)
        return process

    yield one
    for process in started:
        await process.die()


async def ask(process: Process, app: str = "mail", user: str = ALICE, team: str = TEAM) -> Any:
    return await process.broker.oauth(turn(user, team)).get_access_token(app)


async def connected(
    process: Process, idp: IdentityProvider, app: str = "mail", account: str = "alice", **who: Any
) -> Ready:
    asked = await ask(process, app, **who)
    assert isinstance(asked, AuthorizationRequired), asked
    assert 200 == await comes_back(process, idp, asked, account)
    ready = await ask(process, app, **who)
    assert isinstance(ready, Ready), ready
    return ready


async def grant_of(process: Process, app: str = "mail", subject: str = ALICE) -> Grant:
    grant = await process.grant(app, subject)
    assert grant is not None
    return grant


def secret_count(grant: Grant) -> int:
    """How many tokens the record still holds."""
    ended = grant.ended
    own = 0 if grant.token is None or grant.revoked else 1 + (grant.token.refresh_token is not None)
    return own + (len(ended.refresh) + len(ended.access) if ended is not None else 0)


def audited(process: Process) -> list[str]:
    entries: Any = process.broker.audit
    return [entry.provider for entry in entries.entries if isinstance(entry, GrantRevoked)]


# the provider's own way


def slackish(idp: IdentityProvider) -> OAuthApp:
    """The token is its own proof, and a 200 may mean no."""
    app = user_app(idp)
    way = Revocation(
        "own", "grant", authenticate="bearer", body="none", tokens="access", ok_field="revoked",
        dead_words=("invalid_auth",),
    )  # fmt: skip
    return replace(app, endpoints=replace(app.endpoints, revoke_url=idp.url("/api/auth.revoke")), revocation=way)


def githubish(idp: IdentityProvider) -> OAuthApp:
    """A DELETE with the client's id in the address, HTTP Basic, and the token in a JSON body."""
    app = user_app(idp)
    way = Revocation(
        "own", "token", method="DELETE", authenticate="basic", body="json", token_field="access_token", tokens="access",
        dead_statuses=(404,),
    )  # fmt: skip
    url = idp.url("/applications/") + "{client_id}/token"
    return replace(app, endpoints=replace(app.endpoints, revoke_url=url), revocation=way)


WAYS = {"the standard": user_app, "Slack's": slackish, "GitHub's": githubish}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_provider_is_told_in_its_own_way(start, identity_provider, way):
    process = start([way(identity_provider)])
    await connected(process, identity_provider)
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
    grant = await grant_of(process)
    assert (True, "done", 0) == (grant.revoked, grant.revocation, secret_count(grant))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_token_that_is_dead_already_is_no_trouble(start, identity_provider, way):
    process = start([way(identity_provider)])
    await connected(process, identity_provider)
    identity_provider.revoke_all("client-mail", "alice")
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert 0 == secret_count(await grant_of(process))


@pytest.mark.parametrize("taken, told", [(0, "none"), (1, "done")], ids=["neither", "the refresh token"])
async def test_a_provider_that_takes_no_such_tokens_is_told_of_what_lives_longest_or_of_nothing(
    start, identity_provider, taken, told
):
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)
    for number in range(2):
        if number < taken:
            identity_provider.script.revoke.answer(200)
        else:
            identity_provider.script.revoke.answer(400, {"error": "unsupported_token_type"})
    assert told == await process.broker.grants.revoke("mail", ALICE)
    assert (2, 0) == (identity_provider.count("revoke"), secret_count(await grant_of(process)))


async def test_a_no_with_status_200_is_a_no(start, identity_provider):
    process = start([slackish(identity_provider)])
    await connected(process, identity_provider)
    identity_provider.script.revoke.answer(200, {"ok": False, "error": "not_allowed_token_type"})
    assert "refused" == await process.broker.grants.revoke("mail", ALICE)
    assert 1 == identity_provider.living_tokens("client-mail", "alice")
    assert 2 == secret_count(await grant_of(process)), "so that it can be told once somebody mended it"


async def test_an_expired_token_that_proves_itself_is_renewed_once_more_to_be_ended(start, identity_provider):
    """Otherwise the refresh token would live on: nothing but a living token is taken there."""
    process = start([slackish(identity_provider)])
    identity_provider.change("client-mail", revoke_reach="family")
    await connected(process, identity_provider)
    process.clock.advance(3601)
    identity_provider.expire("client-mail")
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert 1 == identity_provider.count("refresh_token")
    assert [False] == [family.is_alive for family in identity_provider.families("client-mail")]
    assert 0 == secret_count(await grant_of(process))


async def test_an_expired_token_whose_refresh_token_is_dead_has_nothing_left_to_end(start, identity_provider):
    process = start([slackish(identity_provider)])
    await connected(process, identity_provider)
    process.clock.advance(3601)
    identity_provider.revoke_all("client-mail", "alice")
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert (0, 0) == (identity_provider.count("revoke"), secret_count(await grant_of(process)))


# first here, then there


async def test_nobody_gets_the_token_from_the_moment_the_provider_is_asked(start, identity_provider):
    process, other = start([user_app(identity_provider)]), start([user_app(identity_provider)])
    await connected(process, identity_provider)
    hold = identity_provider.script.revoke.hang()
    revoking = asyncio.create_task(process.broker.grants.revoke("mail", ALICE))
    await hold.arrived()
    for broker in (process, other):
        assert "revoked" == (await ask(broker)).reason
    grant = await grant_of(process)
    assert (True, "pending", 2) == (grant.revoked, grant.revocation, secret_count(grant))
    audit: Any = process.broker.audit
    assert (True, []) == (GrantEnded("mail", grant.id) in audit.entries, audited(process))
    hold.release()
    assert "done" == await revoking
    assert 0 == secret_count(await grant_of(process))


@pytest.mark.parametrize("reach, told", [("token", True), ("grant", False)])
async def test_a_new_login_on_top_keeps_in_mind_what_the_provider_has_still_to_hear(
    start, identity_provider, reach, told
):
    """Where a revocation ends no more than the old tokens, they are ended later; elsewhere it would end the new login."""
    process = start([user_app(identity_provider, revocation=Revocation(reach=reach))])
    identity_provider.change("client-mail", revoke_reach=reach)
    old = await connected(process, identity_provider)
    identity_provider.script.revoke.answer(503)
    assert "later" == await process.broker.grants.revoke("mail", ALICE)
    new = await connected(process, identity_provider)
    grant = await grant_of(process)
    assert (False, 4 if told else 2) == (grant.revoked, secret_count(grant))
    await process.house.relay.revocations()
    assert [not told, True] == [identity_provider.is_alive(it.access_token) for it in (old, new)]
    assert 2 == secret_count(await grant_of(process))
    assert isinstance(await ask(process), Ready)
    await process.tend()
    assert 0 == await process.store.count("due")


async def test_a_login_that_comes_while_the_provider_is_being_told_is_not_ended_with_the_second_token(
    start, identity_provider
):
    """The old refresh token is on its way when the person connects again: the old access token is not told any more."""
    process = start([user_app(identity_provider, revocation=Revocation(reach="grant"))])
    identity_provider.change("client-mail", revoke_reach="grant")
    await connected(process, identity_provider)
    hold = identity_provider.script.revoke.hang(after_work=True)
    revoking = asyncio.create_task(process.broker.grants.revoke("mail", ALICE))
    await hold.arrived()
    new = await connected(process, identity_provider)
    hold.release()
    await revoking
    await process.house.relay.revocations()
    assert 1 == identity_provider.count("revoke")
    assert identity_provider.is_alive(new.access_token)
    grant = await grant_of(process)
    assert (False, 2) == (grant.revoked, secret_count(grant))


# never a grant that nobody asked to end


def sharing(idp: IdentityProvider, reach: str = "grant") -> list[OAuthApp]:
    """Two apps with one client, where a revocation ends all that a person gave that client."""
    mail = user_app(idp, revocation=Revocation(reach=reach))  # type: ignore[arg-type]
    twin = replace(mail, name="twin", redirect=replace(mail.redirect, callback_path="/oauth/callback/twin"))
    idp.change("client-mail", revoke_reach=reach, redirect_uris=(mail.redirect.uri, twin.redirect.uri))
    return [mail, twin]


@pytest.mark.case("53")
async def test_of_two_grants_that_die_together_only_the_last_one_is_ended_at_the_provider(start, identity_provider):
    process = start(sharing(identity_provider))
    for app in ("mail", "twin"):
        await connected(process, identity_provider, app)
    assert "shared" == await process.broker.grants.revoke("mail", ALICE)
    assert (0, 2) == (identity_provider.count("revoke"), identity_provider.living_tokens("client-mail", "alice"))
    assert isinstance(await ask(process, "twin"), Ready)
    assert 0 == secret_count(await grant_of(process)), "the last of the family tells for it"
    assert "done" == await process.broker.grants.revoke("twin", ALICE)
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
    assert ["shared", "done"] == audited(process)


async def test_both_at_once_end_at_the_provider_too(start, identity_provider):
    process = start(sharing(identity_provider))
    for app in ("mail", "twin"):
        await connected(process, identity_provider, app)
    figures = await process.broker.grants.revoke_all(subject=ALICE)
    assert (2, 2, 0) == (figures.ended, figures.count("done"), figures.left)
    assert 0 == identity_provider.living_tokens("client-mail", "alice")


async def test_another_persons_grant_is_no_kin(start, identity_provider):
    process = start(sharing(identity_provider))
    await connected(process, identity_provider)
    bobs = await connected(process, identity_provider, "twin", "bob", user=BOB)
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
    assert identity_provider.is_alive(bobs.access_token)


async def test_where_a_revocation_reaches_no_further_than_its_token_kin_does_not_matter(start, identity_provider):
    process = start(sharing(identity_provider, "token"))
    for app in ("mail", "twin"):
        await connected(process, identity_provider, app)
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert isinstance(await ask(process, "twin"), Ready)
    assert 1 == identity_provider.living_tokens("client-mail", "alice")


async def test_one_who_connected_an_app_for_everybody_keeps_what_he_connected_for_himself(start, identity_provider):
    team = global_app(identity_provider, revocation=Revocation(reach="grant"))
    own = replace(user_app(identity_provider, "own"), client=team.client, revocation=Revocation(reach="grant"))
    own = replace(own, owner=replace(own.owner, user_identity=team.owner.user_identity))
    identity_provider.change("client-team", revoke_reach="grant", redirect_uris=(team.redirect.uri, own.redirect.uri))
    process = start([team, own])
    await connected(process, identity_provider, "team")
    mine = await connected(process, identity_provider, "own")
    assert "shared" == await process.broker.grants.revoke("team", TEAM)
    assert identity_provider.is_alive(mine.access_token)


# many at once, and providers that are busy


async def test_all_have_ended_here_before_the_first_provider_hears_of_it(start, identity_provider):
    process = start([user_app(identity_provider), user_app(identity_provider, "files")])
    await connected(process, identity_provider)
    await connected(process, identity_provider, account="bob", user=BOB)
    await connected(process, identity_provider, "files")
    hold = identity_provider.script.revoke.hang()
    ending = asyncio.create_task(process.broker.grants.revoke_all(app="mail"))
    await hold.arrived()
    assert ["revoked", "revoked"] == [(await ask(process, user=user)).reason for user in (ALICE, BOB)]
    assert isinstance(await ask(process, "files"), Ready), "nobody asked for that one"
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
    await process.house.relay.revocations()
    assert asked == identity_provider.count("revoke")
    process.clock.advance(1)
    await process.house.relay.revocations()
    assert 0 == identity_provider.living_tokens(f"client-{busy}")


async def test_whoever_has_patience_waits_for_it(start, identity_provider):
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)
    await connected(process, identity_provider, account="bob", user=BOB)
    identity_provider.script.revoke.answer(429, headers={"retry-after": "120"}, times=2)
    before = process.clock.monotonic()
    figures = await process.broker.grants.revoke_all(app="mail", patience=300)
    assert (2, 0) == (figures.count("done"), figures.left)
    assert 240 <= process.clock.monotonic() - before < 260
    assert 0 == identity_provider.living_tokens("client-mail")


async def test_what_was_left_is_gone_on_with_by_whoever_comes_next(start, identity_provider):
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


async def test_a_client_that_is_refused_is_not_refused_for_everybody(start, identity_provider, monkeypatch):
    monkeypatch.setattr("oauthbroker.revocations.REFUSALS_IN_A_ROW", 1)
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
    await second.house.relay.revocations()
    assert 1 == identity_provider.count("revoke"), "only an operator can mend that"
    second.clock.advance(ASK_AGAIN.total_seconds())
    await second.house.relay.revocations()
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
    telling = asyncio.create_task(process.house.relay.revocations())
    await hold.arrived()
    async with asyncio.timeout(5):
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
        assert await one.house.broker.grants._revoke.bury("mail", user) is not None
    hold = identity_provider.script.revoke.hang(times=1)
    telling = [asyncio.create_task(broker.house.relay.revocations()) for broker in (one, other)]
    await hold.arrived()
    hold.release()
    await asyncio.gather(*telling)
    await one.house.relay.revocations()
    assert (4, 0) == (identity_provider.count("revoke"), identity_provider.living_tokens("client-mail"))
    assert [0, 0] == [secret_count(await grant_of(one, subject=user)) for user in (ALICE, BOB)]


async def test_retired_tokens_that_are_refused_for_a_week_are_forgotten(start, identity_provider):
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)
    identity_provider.script.revoke.answer(401, {"error": "invalid_client"}, times=FOREVER)
    assert "refused" == await process.broker.grants.revoke("mail", ALICE)
    await connected(process, identity_provider)
    await process.house.relay.revocations()
    assert 4 == secret_count(await grant_of(process))
    process.clock.advance(KEEP_TELLING.total_seconds() + 1)
    await process.house.relay.revocations()
    assert 2 == secret_count(await grant_of(process))


# a renewal under way


async def renewing(process: Process, idp: IdentityProvider, **hang: Any) -> tuple[asyncio.Task[Any], Any]:
    """A grant whose token has just ended, a tool that asks for it, and the provider taking its time."""
    await connected(process, idp)
    for clock in (process.clock, idp.clock):
        clock.advance(3600)  # type: ignore[attr-defined]
    hold = idp.script.refresh.hang(**hang)
    asking = asyncio.create_task(ask(process))
    await hold.arrived()
    return asking, hold


async def ended(process: Process, told: asyncio.Task[Any] | None = None) -> None:
    """Until the tombstone is written."""
    async with asyncio.timeout(5):
        while not (await grant_of(process)).revoked:
            await asyncio.sleep(0.01)
    assert told is None or not told.done()


@pytest.mark.case("53")
@pytest.mark.parametrize("reach", ["token", "grant"])
@pytest.mark.parametrize("after_work", [False, True], ids=["before the provider renewed", "after it"])
async def test_a_revoke_during_a_renewal_ends_what_comes_of_it(start, identity_provider, after_work, reach):
    process = start([user_app(identity_provider, revocation=Revocation(reach=reach))])
    identity_provider.change("client-mail", revoke_reach=reach)
    asking, hold = await renewing(process, identity_provider, after_work=after_work)
    revoking = asyncio.create_task(process.broker.grants.revoke("mail", ALICE))
    await ended(process)
    hold.release()
    assert "revoked" == (await asking).reason
    assert await revoking in {"done", "later"}, "whoever holds the flight tells for both"
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
    assert [False] == [family.is_alive for family in identity_provider.families("client-mail")]
    assert 0 == secret_count(await grant_of(process))


@pytest.mark.case("53")
async def test_a_late_token_outlives_neither_a_busy_provider_nor_the_process_that_got_it(start, identity_provider):
    """Nobody but this process ever had it: lost, it would live on over there with nobody to end it."""
    process = start([user_app(identity_provider)])
    identity_provider.change("client-mail", revoke_reach="only")
    asking, hold = await renewing(process, identity_provider, after_work=True)
    identity_provider.script.revoke.answer(503, times=2)
    revoking = asyncio.create_task(process.broker.grants.revoke("mail", ALICE))
    await ended(process)
    hold.release()
    assert ("revoked", "later") == ((await asking).reason, await revoking)
    assert 4 == secret_count(await grant_of(process))
    assert 1 == identity_provider.living_tokens("client-mail", "alice")
    second = start([user_app(identity_provider)])
    await second.house.relay.revocations()
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
    assert 0 == secret_count(await grant_of(second))


@pytest.mark.case("53")
async def test_a_late_token_that_cannot_be_kept_is_told_at_once(start, identity_provider, monkeypatch):
    process = start([user_app(identity_provider)])
    identity_provider.change("client-mail", revoke_reach="only")
    asking, hold = await renewing(process, identity_provider, after_work=True)
    save = Repository.save_grant

    async def full(self: Repository, grant: Grant, **more: Any) -> Any:
        if grant.retired is not None:
            raise BrokerError(Code.STORE_UNAVAILABLE)
        return await save(self, grant, **more)

    monkeypatch.setattr(Repository, "save_grant", full)
    revoking = asyncio.create_task(process.broker.grants.revoke("mail", ALICE))
    await ended(process)
    hold.release()
    await asyncio.gather(asking, revoking)
    await process.house.relay.revocations()
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
    assert 0 == secret_count(await grant_of(process))


@pytest.mark.case("53")
async def test_late_tokens_below_a_living_grant_are_left_alone(start, identity_provider):
    """The new login came after the renewal looked, and before it said what it had got."""
    process = start([user_app(identity_provider)])
    ready = await connected(process, identity_provider)
    app, late = process.broker.bundle.apps["mail"], (Secret("late-refresh"), Secret("late-access"))
    await process.house.broker.grants._revoke.late(app, ALICE, late)
    assert (0, 2) == (identity_provider.count("revoke"), secret_count(await grant_of(process)))
    assert identity_provider.is_alive(ready.access_token)


async def test_a_log_that_cannot_be_written_keeps_no_grant_alive(start, identity_provider, monkeypatch):
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)

    def refuse(*_: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    with monkeypatch.context() as patch:
        patch.setattr(process.broker.audit, "write", refuse)
        assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert "revoked" == (await ask(process)).reason
    assert 0 == identity_provider.living_tokens("client-mail", "alice")


@pytest.mark.case("53")
async def test_while_a_provider_is_told_of_an_end_nobody_renews_what_has_ended(start, identity_provider):
    process, other = start([user_app(identity_provider)]), start([user_app(identity_provider)])
    await connected(process, identity_provider)
    for broker in (process, other):
        broker.clock.advance(3600)
    hold = identity_provider.script.revoke.hang()
    revoking = asyncio.create_task(process.broker.grants.revoke("mail", ALICE))
    await hold.arrived()
    assert ["revoked", "revoked"] == [(await ask(broker)).reason for broker in (process, other)]
    hold.release()
    assert "done" == await revoking
    assert 0 == identity_provider.count("refresh_token")


@pytest.mark.case("53")
@pytest.mark.parametrize("revoked_first", [False, True], ids=["a new login", "a revoke and a new login"])
@pytest.mark.parametrize("reach", ["token", "grant"])
async def test_a_new_login_during_a_renewal_wins_and_late_tokens_are_left_alone(
    start, identity_provider, reach, revoked_first
):
    """They may share the grant of the new login: telling the provider could end that."""
    process = start([user_app(identity_provider, revocation=Revocation(reach=reach))])
    identity_provider.change("client-mail", revoke_reach=reach)
    asking, hold = await renewing(process, identity_provider, after_work=True)
    if revoked_first:
        identity_provider.script.revoke.answer(503, times=FOREVER)
        assert await process.house.broker.grants._revoke.bury("mail", ALICE) is not None
    again = await process.broker.oauth(turn()).get_access_token("mail", switch_account=True)
    assert isinstance(again, AuthorizationRequired)
    assert 200 == await comes_back(process, identity_provider, again)
    new = (await grant_of(process)).token
    hold.release()
    answer = await asking
    assert isinstance(answer, Ready)
    assert new is not None
    assert new.access_token == answer.access_token
    assert identity_provider.is_alive(new.access_token)
    assert 0 == identity_provider.count("revoke")
    identity_provider.script.revoke.reset()
    await process.house.relay.revocations()
    assert identity_provider.is_alive(new.access_token)
    grant = await grant_of(process)
    assert (False, 2) == (grant.revoked, secret_count(grant))
