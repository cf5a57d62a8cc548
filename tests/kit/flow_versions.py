"""Deployed versions of flow tools without a broker: a store in memory for each folder, on an event loop of its own.

The loop runs on a thread, so that the methods, which block, may be called from any test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from threading import RLock, Thread
from typing import Any, TypeVar

from oauthbroker.core.opened_here import OpenedHere, running_loop
from oauthbroker.flowtools.deployment.versions import FlowVersions
from oauthbroker.plugin_services.plugin_state import PluginState
from oauthbroker.plugins import Clock, PluginAudit, SystemClock
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.format.port import Store
from oauthbroker.store.memory import MemoryStore

T = TypeVar("T")
SYSTEM, _LOCK = SystemClock(), RLock()


def _once(make: Callable[..., T]) -> Callable[..., T]:
    """Make each value once, also when threads ask at once: `cache` alone may call twice."""
    cached = cache(make)

    def made(*given: Any) -> T:
        with _LOCK:
            return cached(*given)

    return made


def versions_in(folder: Path, clock: Clock = SYSTEM, audit: PluginAudit = lambda _: None) -> FlowVersions:
    """The versions of a folder, as another process would open them."""
    state = state_of(store_of(folder))
    return on_loop(lambda: FlowVersions(state, clock, audit))


def state_of(store: Store) -> PluginState:
    return PluginState(Repository(store, on_damage=lambda _place, _code: None).plugin_values, "flowtools")


class OfAnyLoop(OpenedHere):
    """The place of a store that stands for a folder: each command opens that on an event loop of its own."""

    def check_open(self) -> None:
        self.loop = running_loop()
        super().check_open()


@_once
def store_of(folder: Path) -> MemoryStore:
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=SYSTEM)
    store._opened_here = OfAnyLoop()
    return store


def on_loop(work: Callable[[], T]) -> T:
    async def done() -> T:
        return work()

    return on_loop_of(done())


def on_loop_of(work: Coroutine[None, None, T]) -> T:
    """Do work on the event loop of the folders."""
    return asyncio.run_coroutine_threadsafe(work, _loop()).result(30)


@_once
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="flow-versions", daemon=True).start()
    return loop


async def damage(state: PluginState, tool: str, version: int) -> None:
    """Change the stored text of a version, as no program of ours does."""
    record = await state.get(f"flow/{tool}")
    (name,) = (each["text"] for each in record["versions"] if each["version"] == version)
    await state.change(f"flow-text/{name}", lambda text: {**text, "specification": text["specification"] + " "})
