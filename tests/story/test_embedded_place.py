"""A broker that is used where it cannot work: after its block, in another event loop, after a fork. Each call says so,
and that waiting does not help."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from oauthbroker.broker import Broker
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.opened_here import CLOSED, FORKED, OTHER_LOOP
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, Harness, running, turn, user_app

SESSION = "as-" + "A" * 22
Call = Callable[[Broker], Coroutine[Any, Any, object]]


async def _granted(broker: Broker) -> None:
    async with broker.on_granted("planner", _never):
        raise AssertionError("no event can come")


async def _never(_lease: object) -> None:
    raise AssertionError("no event can come")


CALLS: dict[str, Call] = {
    "lease": lambda broker: broker.events.lease("planner"),
    "enqueue": lambda broker: broker.events.enqueue("planner", "tool.completed", {}, turn=turn()),
    "on_granted": _granted,
    "begin": lambda broker: broker.turns.begin(turn()),
    "wait": lambda broker: broker.wait(SESSION, 0),
    "links": lambda broker: broker.links(turn()),
    "revoke": lambda broker: broker.revoke("mail", subject=ALICE),
    "erase": lambda broker: broker.erase(ALICE),
    "reload": lambda broker: broker.reload(),
    "sessions": lambda broker: broker.sessions.list(),
    "link": lambda broker: broker.connections.link({"user": ALICE}),
}


async def assert_refused(call: Coroutine[Any, Any, object], cause: str) -> None:
    with pytest.raises(BrokerError) as caught:
        await call
    error = caught.value
    assert (Code.STORE_UNAVAILABLE, cause, False) == (error.code, error.message(), error.retryable)


@pytest.mark.parametrize("name", CALLS)
async def test_a_closed_broker_refuses_each_call_for_good(
    identity_provider: IdentityProvider, test_clock: TestClock, name: str
) -> None:
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock) as harness:
        pass
    await assert_refused(CALLS[name](harness.broker), CLOSED)


async def test_a_closed_broker_is_not_healthy(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock) as harness:
        assert "ok" == harness.broker.health().status
    assert ("storeUnavailable",) == harness.broker.health().problems


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_in_another_event_loop_than_the_brokers_says_so(harness: Harness, name: str) -> None:
    await asyncio.to_thread(asyncio.run, assert_refused(CALLS[name](harness.broker), OTHER_LOOP))
    assert "ok" == harness.broker.health().status


@pytest.mark.slow
async def test_a_token_call_in_another_event_loop_begins_no_refresh_there(harness: Harness) -> None:
    await harness.connected()
    harness.clock.advance(3000)

    async def calls() -> list[Any]:
        oauth = harness.broker.oauth(turn())
        return await asyncio.gather(*(oauth.get_access_token("mail", min_ttl_seconds=3000) for _ in range(4)))

    for failed in await asyncio.to_thread(asyncio.run, calls()):
        assert (Code.STORE_UNAVAILABLE, OTHER_LOOP, False) == (failed.code, failed.message, failed.retryable)
    assert 0 == harness.idp.count("refresh_token")
    sync = harness.broker.oauth(turn()).sync
    assert "ready" == (await asyncio.to_thread(sync.get_access_token, "mail")).status


def test_a_store_is_used_by_the_next_event_loop_when_the_first_has_ended(test_clock: TestClock) -> None:
    store = MemoryStore(kinds=("grants",), clock=test_clock)

    async def read() -> object:
        return await store.get(store.key("grants", "mail"))

    for _ in range(2):
        assert asyncio.run(read()) is None


def test_a_child_process_is_told_that_the_broker_was_opened_before_its_fork(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async def told(harness: Harness) -> str:
        failed: Any = await harness.broker.oauth(turn()).get_access_token("mail")
        await assert_refused(harness.broker.events.lease("planner"), FORKED)
        await assert_refused(harness.broker.turns.begin(turn()), FORKED)
        return f"{failed.message} {failed.retryable} {harness.broker.health().status}"

    async def forked() -> str:
        async with running(identity_provider, [user_app(identity_provider)], clock=test_clock) as harness:
            receives, sends = os.pipe()
            if not (child := os.fork()):
                asyncio._set_running_loop(None)
                try:
                    os.write(sends, asyncio.run(told(harness)).encode())
                finally:
                    os._exit(0)
            os.close(sends)
            await asyncio.to_thread(os.waitpid, child, 0)
            said = os.read(receives, 4096)
            os.close(receives)
            return said.decode()

    assert f"{FORKED} False red" == asyncio.run(forked())
