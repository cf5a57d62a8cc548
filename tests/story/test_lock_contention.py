"""Background work that finds a lock held comes back and logs no error: rounds, device codes, forwarding, plug-ins (case 74)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker.authorization.device_polling import BUSY_SECONDS, Polling
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Life, Notifier
from oauthbroker.events.forwarding.agent_forwarder import AgentForwarder, ForwardingParts
from oauthbroker.observability.held_locks import LASTS_SECONDS
from oauthbroker.observability.logging import json_log
from oauthbroker.plugins.running_plugin import Background
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.wiring.plugin_lifecycle import PluginTask
from tests.kit.running_broker import Harness, device_app, running, user_app
from tests.kit.waiting import until

pytestmark = pytest.mark.case("74")


@pytest.fixture
async def quiet(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps = [user_app(identity_provider), device_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock, background=False) as harness:
        yield harness


def loud(harness: Harness) -> list[dict[str, Any]]:
    found = map(json.loads, harness.log.getvalue().splitlines())
    return [line for line in found if line["level"] in {"warning", "error"} and line["event"] != "a check is off"]


async def locked(*_: Any, **__: Any) -> Any:
    raise BrokerError(Code.STORE_LOCKED)


async def test_a_pass_that_finds_a_lock_held_is_no_failure_until_that_lasts(quiet: Harness) -> None:
    for _ in range(3):
        await quiet.running._try("relay", locked)
        quiet.clock.advance(30)
    assert [] == loud(quiet)
    quiet.clock.advance(LASTS_SECONDS)
    await quiet.running._try("relay", locked)
    (line,) = loud(quiet)
    assert ("warning", "a lock stays held", "relay") == (line["level"], line["event"], line["task"])


async def test_a_pass_that_fails_is_an_error_as_before(quiet: Harness) -> None:
    async def broken() -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    for task in ("relay", "sweep", "relay"):  # an outage is one failure
        await quiet.running._try(task, broken)
    said = [(line["event"], line["code"]) for line in loud(quiet)]
    assert [("the store is away", "storeUnavailable"), ("tending failed", "storeUnavailable")] == said


@pytest.mark.embedded_only("the lock of a queue is a transaction's on PostgreSQL")
async def test_an_event_whose_queue_was_locked_for_a_moment_comes_soon(identity_provider, test_clock) -> None:
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock) as harness:
        async with harness.repository.queue_parts.lock("planner"):
            await harness.connected()
            await until(lambda: "relay" in harness.running._held_locks._since)
        assert await harness.event() is not None


async def test_a_device_code_is_asked_about_again_soon(quiet: Harness, monkeypatch) -> None:
    asked = await quiet.ask("tv")
    monkeypatch.setattr(Polling, "_poll", locked)
    waits: list[float] = []
    monkeypatch.setattr(Polling, "_schedule", lambda self, locator, wait: waits.append(wait))
    await quiet.parts.polling._turn(asked.auth_session_id.removeprefix("as-"))
    assert ([], [BUSY_SECONDS]) == (loud(quiet), waits)


async def test_a_plugins_pass_that_finds_a_lock_held_is_no_failure(quiet: Harness) -> None:
    plugin_task, rounds = PluginTask("own", json_log(quiet.log, quiet.clock), quiet.clock), asyncio.Event()

    async def work() -> None:
        if quiet.clock.monotonic() > began + LASTS_SECONDS:
            rounds.set()
        quiet.clock.advance(200)
        await locked()

    began = quiet.clock.monotonic()
    task = asyncio.create_task(plugin_task.repeat(Background(name="dig", seconds=0.001, work=work)))
    await rounds.wait()
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert {("warning", "a lock stays held", "dig")} == {(it["level"], it["event"], it["task"]) for it in loud(quiet)}


async def test_a_plugins_pass_that_fails_each_time_is_a_line_a_minute(quiet: Harness) -> None:
    plugin_task, passes, enough = PluginTask("own", json_log(quiet.log, quiet.clock), quiet.clock), 0, asyncio.Event()

    async def work() -> None:
        nonlocal passes
        passes += 1
        quiet.clock.advance(10)
        if passes > 12:
            enough.set()
            await asyncio.Event().wait()
        raise BrokerError(Code.STORE_UNAVAILABLE)

    task = asyncio.create_task(plugin_task.repeat(Background(name="dig", seconds=0.001, work=work)))
    await asyncio.wait_for(enough.wait(), 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert ["background work of a plug-in failed"] * 2 == [line["event"] for line in loud(quiet)]


async def test_a_reload_beside_a_held_lock_is_no_error(quiet: Harness, monkeypatch) -> None:
    monkeypatch.setattr(type(quiet.parts.sweep), "end_outdated", locked)
    await quiet.broker.reload(quiet.broker.bundle)
    assert [] == loud(quiet)
    assert '"authorizations of before are still open"' in quiet.log.getvalue()


async def test_forwarding_waits_for_a_held_lock_of_its_queue_without_a_word(quiet: Harness, monkeypatch) -> None:
    waits = 0

    async def rest(self: AgentForwarder, seconds: float) -> None:
        nonlocal waits
        waits += 1
        self._life.stop()

    monkeypatch.setattr(AgentForwarder, "_rest", rest)
    own = quiet.parts
    queues: Any = SimpleNamespace(lease=locked, listen=lambda: None)
    log = json_log(quiet.log, quiet.clock)
    parts = ForwardingParts(
        queues=queues, repository=own.repository, clock=quiet.clock, limits=own.limits, metrics=own.metrics,
        notifier=Notifier(), log=log,
    )  # fmt: skip
    sender: Any = None
    forwarder = AgentForwarder(parts, sender, name="hook", agent="planner", life=Life())
    lease: Any = SimpleNamespace(lost=False)
    assert await forwarder._next(lease) is None
    assert ([], 1) == (loud(quiet), waits)
