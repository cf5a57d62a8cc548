"""A caller that is cancelled, once or twice, at every await of every store operation: its lease outlasts its work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Key
from oauthbroker.testing.stores import open_file_store, open_keyring
from tests.kit.crashfs import HookedFs

SLOW = {"fsync", "rename", "unlink", "reserve", "truncate"}
MOST_STEPS = 24  # turns of the event loop before the cancellation: far more than an operation awaits


class SlowFs(HookedFs):
    """Calls that change something take a moment. `busy` counts those under way, `late` those that began unleased."""

    def __init__(self) -> None:
        self.busy = 0
        self.leased = True
        self.late: list[str] = []

    def _step(self, call: str, _args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        if call not in SLOW:
            return run()
        self.busy += 1
        try:
            time.sleep(0.002)
            if not self.leased:
                self.late.append(call)
            return run()
        finally:
            self.busy -= 1


async def put(store: FileStore, key: Key) -> None:
    await store.put(key, b"new", expect=1)


async def create(store: FileStore, key: Key) -> None:
    await store.put(store.key("grants", "another"), b"new", expect=0)


async def delete(store: FileStore, key: Key) -> None:
    await store.delete(key, expect=1)


async def reserve_and_put(store: FileStore, key: Key) -> None:
    async with store.reserve(key, 4096) as reservation:
        await store.put(key, b"new", expect=1, reservation=reservation)


async def reserve_only(store: FileStore, key: Key) -> None:
    async with store.reserve(key, 4096):
        await asyncio.sleep(0)


async def put_and_reserve(store: FileStore, key: Key) -> None:
    async with store.reserve(key, 4096, now=False) as reservation:
        await store.put(key, b"new", expect=1, ahead=reservation)


OPERATIONS: list[Callable[[FileStore, Key], Awaitable[None]]] = [
    put, create, delete, reserve_and_put, reserve_only, put_and_reserve,
]  # fmt: skip


@pytest.mark.sample(6)
@pytest.mark.slow
@pytest.mark.parametrize("cancels", [1, 3])
@pytest.mark.parametrize("operate", OPERATIONS, ids=lambda each: each.__name__)
async def test_a_lease_outlasts_the_work_of_a_cancelled_caller(tmp_path, operate, cancels):
    """Otherwise the next holder acts on a state that is about to change: an event is never queued, a token lives on."""
    store, finished = open_file_store(tmp_path), 0
    await store.close()
    for steps in range(MOST_STEPS):
        fs = SlowFs()
        store = FileStore(
            tmp_path / "store", open_keyring(tmp_path), kinds=KINDS, lease_kinds=LEASES, clock=SystemClock(), fs=fs
        )
        key = store.key("grants", str(steps))
        await store.put(key, b"old", expect=0)
        lease = store.key("pair", "a", "b")

        async def leased(store=store, key=key, lease=lease, fs=fs) -> None:
            async with store.lease(lease, wait=1):
                fs.leased = True
                try:
                    await operate(store, key)
                finally:
                    fs.leased = False

        task = asyncio.create_task(leased())
        finished += await cancelled_after(task, steps, cancels)
        assert fs.busy == 0
        async with store.lease(lease, wait=0.01):
            await asyncio.sleep(0.005)
        assert fs.late == []
        another = await store.get(store.key("grants", "another"))
        if another is not None:
            fs.leased = True
            await store.delete(another.key, expect=another.generation)
        await store.close()
        assert [] == temporary(tmp_path)
    assert finished < MOST_STEPS


async def cancelled_after(task: asyncio.Task[None], steps: int, cancels: int) -> bool:
    """Whether the task was done before it was cancelled."""
    for _ in range(steps):
        await asyncio.sleep(0.0002 if steps % 2 else 0)
    if task.done():
        await task
        return True
    for _ in range(cancels):
        task.cancel()
        await asyncio.sleep(0)
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError), outcome
    return False


async def test_closing_that_is_cancelled_still_lets_go_of_everything(tmp_path):
    store, fs = open_file_store(tmp_path), SlowFs()
    await store.close()
    before = descriptors()
    store = FileStore(
        tmp_path / "store", open_keyring(tmp_path), kinds=KINDS, lease_kinds=LEASES, clock=SystemClock(), fs=fs
    )
    write = asyncio.create_task(store.put(store.key("grants", "a"), b"new", expect=0))
    await asyncio.sleep(0)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await write
    assert fs.busy == 0
    assert descriptors() == before


def temporary(root: Path) -> list[Path]:
    return list(root.rglob("*.tmp"))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
