"""A revocation, a new login and a refresh at the same time: which wins, and the fate of tokens that come late (case 53)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.records import Grant, grant_id
from oauthbroker.repository.repository import Repository
from oauthbroker.revocation.late_tokens import LateTokens
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider import FOREVER
from tests.kit.broker_process import Process, ask, complete, connected
from tests.kit.running_broker import ALICE, turn, user_app
from tests.story.revocation_kit import apps_of_one_client, grant_of, secret_count


async def writeback(process: Process, idp: IdentityProvider, **hang: Any) -> tuple[asyncio.Task[Any], Any]:
    """A grant whose token has just ended, a tool that asks for it, and the provider taking its time."""
    await connected(process, idp)
    for clock in (process.clock, idp.clock):
        clock.advance(3600)  # type: ignore[attr-defined]
    hold = idp.script.refresh.hang(**hang)
    asking = asyncio.create_task(ask(process))
    await hold.arrived()
    return asking, hold


async def ended(process: Process, reported: asyncio.Task[Any] | None = None) -> None:
    """Until the tombstone is written."""
    async with asyncio.timeout(60):
        while not (await grant_of(process)).revoked:
            await asyncio.sleep(0.01)
    assert reported is None or not reported.done()


@pytest.mark.case("53")
@pytest.mark.parametrize("reach", ["token", "grant"])
@pytest.mark.parametrize("after_work", [False, True], ids=["before the provider refreshed", "after it"])
async def test_a_revoke_during_a_refresh_ends_what_comes_of_it(start, identity_provider, after_work, reach):
    process = start([user_app(identity_provider, revocation=Revocation(reach=reach))])
    identity_provider.change("client-mail", revoke_reach=reach)
    asking, hold = await writeback(process, identity_provider, after_work=after_work)
    revoking = asyncio.create_task(process.broker.grants.revoke("mail", ALICE))
    await ended(process)
    hold.release()
    assert "revoked" == (await asking).reason
    assert await revoking in {"done", "later"}, "the holder of the provider lease revokes for both"
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
    assert [False] == [family.is_alive for family in identity_provider.families("client-mail")]
    assert 0 == secret_count(await grant_of(process))


@pytest.mark.case("53")
async def test_a_late_token_outlives_neither_a_busy_provider_nor_the_process_that_got_it(start, identity_provider):
    """Only this process ever had it: lost, it would live on at the provider and never be revoked."""
    process = start([user_app(identity_provider)])
    identity_provider.change("client-mail", revoke_reach="only")
    asking, hold = await writeback(process, identity_provider, after_work=True)
    identity_provider.script.revoke.answer(503, times=2)
    revoking = asyncio.create_task(process.broker.grants.revoke("mail", ALICE))
    await ended(process)
    hold.release()
    assert ("revoked", "later") == ((await asking).reason, await revoking)
    assert 4 == secret_count(await grant_of(process))
    assert 1 == identity_provider.living_tokens("client-mail", "alice")
    second = start([user_app(identity_provider)])
    await second.parts.bulk_revocation.run_pass()
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
    assert 0 == secret_count(await grant_of(second))


@pytest.mark.case("53")
async def test_a_late_token_that_cannot_be_kept_is_told_at_once(start, identity_provider, monkeypatch):
    process = start([user_app(identity_provider)])
    identity_provider.change("client-mail", revoke_reach="only")
    asking, hold = await writeback(process, identity_provider, after_work=True)
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
    await process.parts.bulk_revocation.run_pass()
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
    assert 0 == secret_count(await grant_of(process))


@pytest.mark.case("53")
async def test_a_late_token_that_cannot_be_kept_ends_no_other_grant(start, identity_provider, monkeypatch):
    """Where the provider would end all that she gave this client: her other app is still wanted."""
    process = start(apps_of_one_client(identity_provider))
    await connected(process, identity_provider, "twin")
    asking, hold = await writeback(process, identity_provider, after_work=True)
    twin = await ask(process, "twin")
    save, refused = Repository.save_grant, list[Grant]()

    async def full(self: Repository, grant: Grant, **more: Any) -> Any:
        if grant.retired is not None and not refused:
            refused.append(grant)
            raise BrokerError(Code.STORE_UNAVAILABLE)
        return await save(self, grant, **more)

    monkeypatch.setattr(Repository, "save_grant", full)
    revoking = asyncio.create_task(process.broker.grants.revoke("mail", ALICE))
    await ended(process)
    hold.release()
    assert "revoked" == (await asking).reason
    assert ("shared", 1, 0) == (await revoking, len(refused), identity_provider.count("revoke"))
    assert identity_provider.is_alive(twin.access_token)


@pytest.mark.case("53")
@pytest.mark.parametrize("error", ["locked", "gone"])
@pytest.mark.parametrize("reach, reported", [("token", 2), ("grant", 0)])
async def test_late_tokens_without_their_record_are_told_only_where_nothing_else_dies_with_them(
    start, identity_provider, monkeypatch, reach, reported, error
):
    """What lies there cannot be seen: perhaps a new login."""
    process = start([user_app(identity_provider, revocation=Revocation(reach=reach))])
    logged: list[dict[str, Any]] = []
    log = SimpleNamespace(warning=lambda line, **words: logged.append({"line": line, **words}))
    revoke = replace(process.parts.revoke, log=log)
    if error == "locked":
        monkeypatch.setattr(Repository, "pair", locked)
    late: dict[str, Any] = {"refresh": Secret("late-refresh"), "access": Secret("late-access")}
    await LateTokens(revoke).revoke_tokens(process.broker.bundle.apps["mail"], GrantKey("mail", ALICE), **late)
    assert reported == identity_provider.count("revoke")
    code = {"locked": "storeLocked", "gone": "recordCorrupt"}[error]
    line = "tokens that came late are not kept"
    assert [
        {"line": line, "app": "mail", "grant": grant_id("mail", ALICE)[:15], "code": code, "revoked": reported > 0}
    ] == logged
    assert "late-" not in repr(logged)


@asynccontextmanager
async def locked(*_: Any) -> AsyncIterator[None]:
    raise BrokerError(Code.STORE_LOCKED)
    yield


@pytest.mark.case("53")
@pytest.mark.parametrize("missing, hints", [("access_token", ["refresh_token"]), ("refresh_token", ["access_token"])])
async def test_a_late_token_that_came_alone_is_revoked_with_its_own_hint(start, identity_provider, missing, hints):
    process = start([user_app(identity_provider)])
    identity_provider.change("client-mail", revoke_reach="only")
    identity_provider.script.refresh.fields(**{missing: None})
    asking, hold = await writeback(process, identity_provider, after_work=True)
    revoking = asyncio.create_task(process.broker.grants.revoke("mail", ALICE))
    await ended(process)
    own = (await grant_of(process)).ended
    assert own is not None
    hold.release()
    await asyncio.gather(asking, revoking)
    requests = [request.form for request in identity_provider.requests if request.endpoint == "revoke"]
    late = [form["token_type_hint"] for form in requests if form["token"] not in (*own.refresh, *own.access)]
    assert (hints, len(requests)) == (late, 3)
    assert 0 == secret_count(await grant_of(process))


@pytest.mark.case("53")
async def test_late_tokens_below_a_living_grant_are_left_alone(start, identity_provider):
    """The new login came after the refresh read the grant, and before it stored its answer."""
    process = start([user_app(identity_provider)])
    ready = await connected(process, identity_provider)
    revoke, app = process.parts.revoke, process.broker.bundle.apps["mail"]
    await LateTokens(revoke).revoke_tokens(
        app, GrantKey("mail", ALICE), refresh=Secret("late-refresh"), access=Secret("late-access")
    )
    assert (0, 2) == (identity_provider.count("revoke"), secret_count(await grant_of(process)))
    assert identity_provider.is_alive(ready.access_token)


@pytest.mark.case("53")
async def test_an_ended_grant_is_not_refreshed_while_its_provider_is_told(start, identity_provider):
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
async def test_a_new_login_during_a_refresh_wins_and_late_tokens_end_it_never(
    start, identity_provider, reach, revoked_first
):
    """They may share the grant of the new login: where telling the provider could end that, they wait for its end."""
    process = start([user_app(identity_provider, revocation=Revocation(reach=reach))])
    identity_provider.change("client-mail", revoke_reach=reach)
    asking, hold = await writeback(process, identity_provider, after_work=True)
    if revoked_first:
        identity_provider.script.revoke.answer(503, times=FOREVER)
        assert await process.parts.revoke.write_tombstone(GrantKey("mail", ALICE)) is not None
    again = await process.broker.oauth(turn()).get_access_token("mail", switch_account=True)
    assert isinstance(again, AuthorizationRequired)
    assert 200 == await complete(process, identity_provider, again)
    new = (await grant_of(process)).token
    hold.release()
    answer = await asking
    assert isinstance(answer, Ready)
    assert new is not None
    assert new.access_token == answer.access_token
    identity_provider.script.revoke.reset()
    process.clock.advance(120)
    await process.parts.bulk_revocation.run_pass()
    assert identity_provider.is_alive(new.access_token)
    grant = await grant_of(process)
    assert (False, 2) == (grant.revoked, secret_count(grant))
    if reach == "token":
        assert ((), 1) == (grant.replaced, identity_provider.living_tokens("client-mail", "alice"))
        return
    assert 0 == identity_provider.count("revoke")
    assert 4 == sum(len(each.secrets) for each in grant.replaced), "the old ones, and those that came late"
    assert "done" == await process.broker.grants.revoke("mail", ALICE)
    assert 0 == identity_provider.living_tokens("client-mail", "alice")
