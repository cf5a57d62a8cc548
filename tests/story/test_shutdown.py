"""A broker that is ending finishes its work and begins nothing more: tokens that a provider gives then are never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import Code
from oauthbroker.core.opened_here import OpenedHere
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.format.port import Entry, Key
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from tests.kit.running_broker import Harness, running, user_app
from tests.story.refresh_kit import with_expired_token

Late = Callable[[], Coroutine[Any, Any, object]]


class LastWrites(MemoryStore):
    """Report when the broker writes down the uses: its last step before the network goes."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(kinds=KINDS, lease_kinds=LEASES, clock=clock)
        self.reached: Callable[[], Awaitable[None]] | None = None

    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        if key.kind == "uses" and self.reached is not None:
            reached, self.reached = self.reached, None
            await reached()
        return await super().put(key, body, **more)


def in_the_last_moments(harness: Harness, late: Late, kind: str) -> asyncio.Future[asyncio.Task[object]]:
    """Arranges that `late` is begun then. The broker goes on when it is over, or once the provider has its request,
    which is not answered before the network is gone."""
    begun: asyncio.Future[asyncio.Task[object]] = asyncio.get_running_loop().create_future()
    before = harness.idp.count(kind)

    async def begin() -> None:
        task = asyncio.create_task(late())
        begun.set_result(task)
        while not task.done() and harness.idp.count(kind) == before:
            await asyncio.sleep(0.001)

    assert isinstance(harness.store, LastWrites)
    harness.store.reached = begin
    harness.parts.uses.note("sha256:0", "planner", None, harness.clock.now())
    return begun


@pytest.mark.case("50")
@pytest.mark.parametrize("seconds, ready", [(3600, False), (3600 - 200, True)], ids=["ended", "near its end"])
async def test_a_refresh_that_is_asked_for_in_the_last_moments_is_left_to_the_next_broker(
    identity_provider: IdentityProvider, test_clock: TestClock, seconds: int, ready: bool
) -> None:
    store, apps = LastWrites(test_clock), [user_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock, store=store) as harness:
        await harness.connected()
        test_clock.advance(seconds)
        hold = identity_provider.script.refresh.hang(after_work=True)
        begun = in_the_last_moments(harness, harness.ask, "refresh_token")
    hold.release()
    answer = await begun.result()
    if ready:
        assert isinstance(answer, Ready)
        assert answer.degraded
    else:
        assert isinstance(answer, Failed)
        assert (Code.BROKER_UNREACHABLE, True, 1) == (answer.code, answer.retryable, answer.retry_after_seconds)
    assert 0 == identity_provider.count("refresh_token")
    store._opened_here = OpenedHere()  # the next broker's
    async with running(identity_provider, apps, clock=test_clock, store=store) as harness:
        test_clock.advance(200)
        assert isinstance(await harness.ask(), Ready)
    assert 1 == identity_provider.count("refresh_token")


@pytest.mark.case("50")
async def test_a_callback_in_the_last_moments_is_taken_by_the_next_broker(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    store, apps = LastWrites(test_clock), [user_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock, store=store) as harness:
        person = harness.browser()
        url = await harness.way_back(await harness.ask_link(), person)
        hold = identity_provider.script.token.hang(after_work=True)
        begun = in_the_last_moments(harness, lambda: person.open(url), "authorization_code")
    hold.release()
    page = await begun.result()
    assert isinstance(page, Page)
    assert (503, 0) == (page.status, identity_provider.count("authorization_code"))
    store._opened_here = OpenedHere()  # the next broker's
    async with running(identity_provider, apps, clock=test_clock, store=store) as harness:
        person.serve(harness.origin, harness.broker.asgi.app)
        assert 303 == (await person.open(url)).status
        assert isinstance(await harness.ask(), Ready)


@pytest.mark.case("50")
async def test_a_refresh_that_began_while_others_are_waited_for_is_waited_for_too(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    store = LastWrites(test_clock)
    apps = [user_app(identity_provider), user_app(identity_provider, "files")]
    async with running(identity_provider, apps, clock=test_clock, store=store) as harness:
        await with_expired_token(harness)
        person = harness.browser()
        url = await harness.way_back(await harness.ask_link("files"), person)
        script = identity_provider.script
        exchange, refresh = script.token.hang(), script.refresh.hang(after_work=True)
        coming = asyncio.create_task(person.open(url))
        await exchange.arrived()

        async def late() -> object:
            await harness.broker.life.over()
            asking = asyncio.create_task(harness.ask())
            await refresh.arrived()
            exchange.release()
            await coming
            asyncio.get_running_loop().call_later(0.02, refresh.release)
            return await asking

        asked = asyncio.create_task(late())
        await asyncio.sleep(0)
    assert isinstance(await asked, Ready)
    assert 303 == (await coming).status
    store._opened_here = OpenedHere()  # a second look
    for app in ("mail", "files"):
        grant = await harness.grant(app)
        assert grant is not None
        assert grant.refresh_state.intent is None
