"""The backends of queues that keep the contract, and wrong ones that do not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError
from oauthbroker.events.port import Queues
from oauthbroker.events.queue import StoreQueues
from oauthbroker.observability.metrics import Metrics
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.format.port import Store
from oauthbroker.store.memory import MemoryStore
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing import TestClock
from oauthbroker.testing.stores import open_file_store, open_keyring
from tests.contract.queue_contract import LIMITS, QueueContract, Setting
from tests.contract.queue_processes import QueueProcesses
from tests.kit.crashfs import CrashFs


def queues_on(store: Store, clock: TestClock) -> StoreQueues:
    return StoreQueues(repository=Repository(store), clock=clock, limits=LIMITS, metrics=Metrics())


async def in_memory(clock: TestClock, stack: AsyncExitStack) -> Setting:
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    stack.push_async_callback(store.close)
    queues = queues_on(store, clock)

    async def power_loss() -> list[Queues]:
        return [queues_on(store, clock)]

    return Setting(queues, queues_on(store, clock), clock, power_loss)


async def on_disk(place: Path, clock: TestClock, stack: AsyncExitStack, make_fs: type[CrashFs]) -> Setting:
    open_keyring(place)
    fs = make_fs(place / "store")

    def view(folder: Path, layer: Fs | None = None) -> StoreQueues:
        store = open_file_store(folder, clock=clock, fs=layer)
        stack.push_async_callback(store.close)
        return queues_on(store, clock)

    async def power_loss() -> list[Queues]:
        found = list[Queues]()
        for clone in fs.clones(place / "clones", seeds=1):
            home = place / f"home-{clone.name}"
            home.mkdir()
            clone.rename(home / "store")
            (home / "test.kek").write_bytes((place / "test.kek").read_bytes())
            (home / "test.kek").chmod(0o600)
            found.append(view(home))
        return found

    return Setting(view(place, fs), view(place, fs), clock, power_loss)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


class SyncsNowhere(CrashFs):
    """Writes down which syncs there were, and waits for no real disk."""

    def _step(self, call: str, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        return super()._step(call, args, nothing if call == "fsync" else run)


def nothing() -> None:
    """Done."""


class TestMemory(QueueContract):
    @pytest.fixture
    async def here(self, stack: AsyncExitStack) -> Setting:
        return await in_memory(TestClock(), stack)


class TestFiles(QueueProcesses, QueueContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> list[str]:
        open_keyring(tmp_path)
        return [str(tmp_path)]

    @pytest.fixture
    async def here(self, tmp_path: Path, stack: AsyncExitStack) -> Setting:
        return await on_disk(tmp_path, TestClock(), stack, SyncsNowhere)


class SyncsNothing(CrashFs):
    """A disk whose syncs are only said to be done."""

    def _step(self, call: str, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        if call == "fsync":
            return None
        return super()._step(call, args, run)


async def test_a_backend_that_syncs_nothing_fails_the_loss_of_power(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        here = await on_disk(tmp_path, TestClock(), stack, SyncsNothing)
        with pytest.raises((AssertionError, BrokerError)):
            await QueueContract().test_an_acknowledged_change_survives_a_loss_of_power(here)
