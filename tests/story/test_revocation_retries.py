"""A provider refuses a revocation, or says nothing: it is told again, and nothing else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.repository.repository import Conflict
from oauthbroker.revocation.revoke import ASK_AGAIN, KEEP_TELLING, Revoke
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from tests.kit.broker_process import Process, ask, complete, connected
from tests.kit.default_store import default_store
from tests.kit.running_broker import ALICE, running, user_app
from tests.story.revocation_kit import audited, grant_of, secret_count


@pytest.fixture
async def process(identity_provider: IdentityProvider) -> AsyncIterator[Process]:
    """A broker whose relay and sweeper run when the test says so, at the provider's time."""
    store: Any = default_store(identity_provider.clock)
    clock: Any = identity_provider.clock
    process = Process.on(store, [user_app(identity_provider), user_app(identity_provider, "files")], clock)
    yield process
    await process.die()


@pytest.mark.rule("12.5.4")
async def test_a_refused_revocation_is_told_again_once_the_operator_fixed_it(process, identity_provider):
    """401: most likely our own secret is wrong. The tokens must not be forgotten while they live over there."""
    assert 200 == await complete(process, identity_provider, await ask(process))
    identity_provider.script.revoke.answer(401, {"error": "invalid_client"})
    assert "refused" == await process.broker.grants.revoke("mail", ALICE)
    grant = await process.grant("mail", ALICE)
    assert grant is not None
    assert grant.token is not None
    assert (True, "pending", 1) == (grant.revoked, grant.revocation, identity_provider.living_tokens("client-mail"))
    assert isinstance(await ask(process), AuthorizationRequired), "it serves no call meanwhile"
    await process.parts.relay.once()
    assert 1 == await process.store.count("due")
    asked = identity_provider.count("revoke")
    await process.parts.bulk_revocation.run_pass()
    assert asked == identity_provider.count("revoke"), "a refusal is not asked about again at every round"
    process.clock.advance(ASK_AGAIN.total_seconds())
    await process.parts.bulk_revocation.run_pass()
    grant = await process.grant("mail", ALICE)
    assert grant is not None
    assert (None, "done", 0) == (grant.token, grant.revocation, identity_provider.living_tokens("client-mail"))
    assert ["failed", "done"] == audited(process)


@pytest.mark.rule("12.5.4")
async def test_tokens_whose_revocation_is_refused_for_a_week_are_erased(process, identity_provider):
    assert timedelta(days=7) == KEEP_TELLING
    assert 200 == await complete(process, identity_provider, await ask(process))
    identity_provider.script.revoke.answer(401, {"error": "invalid_client"}, times=FOREVER)
    assert "refused" == await process.broker.grants.revoke("mail", ALICE)
    process.clock.advance(KEEP_TELLING.total_seconds() - 1)
    await process.parts.relay.once()  # writes the tombstone anew without its event: the week does not begin again
    await process.parts.bulk_revocation.run_pass()
    grant = await process.grant("mail", ALICE)
    assert grant is not None
    assert grant.token is not None
    process.clock.advance(ASK_AGAIN.total_seconds())
    await process.parts.bulk_revocation.run_pass()
    grant = await process.grant("mail", ALICE)
    assert grant is not None
    assert (None, "refused") == (grant.token, grant.revocation)
    assert ["failed", "failed", "failed", "refused"] == audited(process)


@pytest.mark.case("59")
@pytest.mark.rule("12.5.4")
@pytest.mark.parametrize("who", ["is refused", "lacks the app"])
async def test_a_clock_that_is_ahead_for_one_round_erases_no_pending_revocation(start, identity_provider, who):
    able = start([user_app(identity_provider)])
    ahead = start([]) if who == "lacks the app" else able
    await connected(able, identity_provider)
    identity_provider.script.revoke.answer(401, {"error": "invalid_client"}, times=2)
    assert "refused" == await able.broker.grants.revoke("mail", ALICE)
    right = ahead.clock.now()
    ahead.clock.set(right + KEEP_TELLING + timedelta(days=1))
    await ahead.parts.bulk_revocation.run_pass()
    ahead.clock.set(right)
    grant = await grant_of(able)
    assert ("pending", 2) == (grant.revocation, secret_count(grant))
    identity_provider.script.reset()
    able.clock.advance(ASK_AGAIN.total_seconds())
    await able.parts.bulk_revocation.run_pass()
    assert ("done", 0) == ((await grant_of(able)).revocation, identity_provider.living_tokens("client-mail"))


@pytest.mark.case("59")
async def test_a_clock_that_is_ahead_delays_the_end_of_the_week_until_it_has_passed(start, identity_provider):
    process = start([user_app(identity_provider)])
    await connected(process, identity_provider)
    identity_provider.script.revoke.answer(401, {"error": "invalid_client"}, times=FOREVER)
    assert "refused" == await process.broker.grants.revoke("mail", ALICE)
    process.clock.set(process.clock.now() + KEEP_TELLING)
    await process.parts.bulk_revocation.run_pass()
    assert "pending" == (await grant_of(process)).revocation
    process.clock.advance(KEEP_TELLING.total_seconds())
    await process.parts.bulk_revocation.run_pass()
    assert ("refused", 0) == ((await grant_of(process)).revocation, secret_count(await grant_of(process)))


async def test_a_revocation_that_meets_another_process_does_not_end_the_round(process, identity_provider, monkeypatch):
    for app in ("mail", "files"):
        assert 200 == await complete(process, identity_provider, await ask(process, app))
    identity_provider.script.revoke.answer(503, times=2)
    for app in ("mail", "files"):
        assert await process.broker.revoke(app, subject=ALICE)
    resume, met = Revoke.resume, list[str]()

    async def once(self: Any, app: Any, seen: Any, **more: Any) -> Any:
        if not met:
            met.append(seen.record.app)
            raise Conflict
        return await resume(self, app, seen, **more)

    monkeypatch.setattr(Revoke, "resume", once)
    await process.parts.bulk_revocation.run_pass()
    (skipped,) = met
    left = {app: identity_provider.living_tokens(f"client-{app}") for app in ("mail", "files")}
    assert {"mail": 0, "files": 0, skipped: 1} == left


async def test_a_silent_provider_holds_up_no_sessions_end(identity_provider: IdentityProvider, test_clock: TestClock):
    apps = [user_app(identity_provider), user_app(identity_provider, "files")]
    limits = Limits(sweep_seconds=0.02)
    async with running(identity_provider, apps, clock=test_clock, limits=limits) as harness:
        await harness.connected()
        identity_provider.script.revoke.answer(503)
        hold = identity_provider.script.revoke.hang(times=FOREVER)
        assert "later" == await harness.broker.grants.revoke("mail", ALICE)
        await hold.arrived()  # from here on a call waits for the provider
        asked = await harness.ask_link("files")
        test_clock.advance(601)
        async with asyncio.timeout(60):
            while (await harness.session(asked)).open:
                await asyncio.sleep(0.01)
        assert "expired" == (await harness.session(asked)).status
        hold.release()
