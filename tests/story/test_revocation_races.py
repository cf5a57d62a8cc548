"""A revocation, a new login and a renewal at the same time: who wins, and what becomes of tokens that come late (case 53)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oauthbroker.apps import Revocation
from oauthbroker.errors import BrokerError, Code
from oauthbroker.records import Grant
from oauthbroker.repository import Repository
from oauthbroker.results import AuthorizationRequired, Ready
from oauthbroker.secret import Secret
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider import FOREVER
from tests.faults.broker_kit import Process
from tests.house import ALICE, turn, user_app
from tests.story.revocation_kit import ask, connected, grant_of, secret_count
from tests.story.test_recovery import comes_back


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
