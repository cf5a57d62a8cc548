"""Brokers that are killed, stopped or forked while they hold a lock or write: real processes, real signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Conflict, Key
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing.stores import open_file_store
from tests.kit.forms import is_long

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "tests" / "contract" / "store_worker.py"
PATHS = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
Worker = subprocess.Popen[str]
Start = Callable[..., Worker]


@pytest.fixture
async def store(tmp_path):
    store = open_file_store(tmp_path)
    yield store
    await store.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a broker process with an order; gives it back after its first answer."""
    started: list[Worker] = []

    def run(line: str, *before: str, until: str = "") -> Worker:
        command = [*before, sys.executable, str(WORKER), str(tmp_path)]
        pipe = subprocess.PIPE
        worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT, env=PATHS)
        started.append(worker)
        assert worker.stdin
        worker.stdin.write(line + "\n")
        worker.stdin.flush()
        if until:
            assert "ready" == answer(worker)
            assert until == answer(worker).partition(" ")[0]
        return worker

    yield run
    for worker in started:
        worker.kill()
        worker.communicate()


def answer(worker: Worker) -> str:
    assert worker.stdout
    return worker.stdout.readline().strip()


async def take(store: FileStore, key: Key, wait: float) -> Code | None:
    """Takes the lease and gives it back, or says why not."""
    try:
        async with store.lease(key, wait=wait):
            return None
    except BrokerError as exc:
        return exc.code


@pytest.mark.case("74")
async def test_the_lease_of_a_killed_broker_is_free(store, start):
    key = store.key("provider", "a")
    holder = start("hold a", until="held")
    assert Code.STORE_LOCKED == await take(store, key, 0.05)
    waiter = asyncio.create_task(take(store, key, 10))
    await asyncio.sleep(0.02)
    holder.kill()
    holder.wait()
    assert None is await asyncio.wait_for(waiter, 60)


@pytest.mark.case("74")
async def test_a_waiter_for_a_stopped_broker_is_told_at_its_deadline(store, start):
    key = store.key("provider", "a")
    holder = start("hold a", until="held")
    holder.send_signal(signal.SIGSTOP)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert Code.STORE_LOCKED == await take(store, key, 0.2)
    assert 0.2 <= loop.time() - began < 10
    holder.send_signal(signal.SIGCONT)
    assert holder.stdin
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert None is await take(store, key, 10)


@pytest.mark.case("74")
async def test_a_child_of_a_killed_broker_does_not_keep_its_lease(store, start):
    holder = start("hold_and_fork a")
    assert "ready" == answer(holder)
    held, child = answer(holder).split()
    try:
        assert "held" == held
        holder.kill()
        holder.wait()
        assert None is await take(store, store.key("provider", "a"), 2)
        os.kill(int(child), 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)


@pytest.mark.case("74")
async def test_a_store_that_came_over_a_fork_refuses_to_work(store):
    """Its threads stayed behind and its lock descriptors are closed; another file may bear their numbers by now."""
    key = store.key("grants", "a")
    store._opened_here.pid += 1
    assert Code.STORE_UNAVAILABLE == await take(store, store.key("provider", "a"), 1)
    for call in (store.get(key), store.put(key, b"", expect=0), store.delete(key, expect=1), store.count("grants")):
        with pytest.raises(BrokerError) as caught:
            await call
        assert (Code.STORE_UNAVAILABLE, True) == (caught.value.code, "fork" in str(caught.value))


SYSCALLS = [("fsync", n) for n in range(1, 9, 1 if is_long() else 3)] + [
    ("?rename,?renameat,?renameat2", n) for n in range(1, 4)
]
SYSCALLS += [("?unlink,?unlinkat", 1), ("flock", 8), ("flock", 11), ("flock", 14)]


@pytest.mark.slow
@pytest.mark.case("63")
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: no real kill at a system call")
async def test_a_kill_at_a_system_call_loses_nothing_that_was_acknowledged(store, start, tmp_path):
    """kill -9 at the n-th fsync, rename, unlink or flock of a broker that creates, updates and removes one entry."""
    key, killed_while_writing = store.key("grants", "a"), 0
    for call, number in SYSCALLS:
        await clear(store, key)
        inject = f"inject={call}:signal=KILL:when={number}"
        worker = start("write_on a", "strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}", "-e", inject)
        said = (await asyncio.to_thread(worker.communicate, timeout=30))[0].split("\n")
        tried = [int(line.split()[1]) for line in said if line.startswith("try ")]
        acknowledged = [int(line.split()[1]) for line in said if line.startswith("ack ")]
        allowed = {tried[-1] if tried else 0, acknowledged[-1] if acknowledged else 0}
        killed_while_writing += bool(tried) and len(tried) > len(acknowledged)
        broker = open_file_store(tmp_path)
        entry = await broker.get(key)
        assert (entry.generation if entry else 0) in allowed, (call, number, said)
        assert entry is None or entry.body == f"body {entry.generation}".encode()
        assert [] == list((tmp_path / "store").rglob("*.tmp"))
        await broker.close()
    assert killed_while_writing >= len(SYSCALLS) // 2


async def clear(store: FileStore, key: Key) -> None:
    entry = await store.get(key)
    if entry:
        await store.delete(key, expect=entry.generation)


@pytest.mark.slow
@pytest.mark.case("63")
async def test_kills_at_random_moments_lose_nothing_that_was_acknowledged(store, start):
    """The same without strace, wherever the signal happens to fall."""
    key = store.key("grants", "a")
    for turn in range(6):
        await clear(store, key)
        worker = start("write_on a", until="try")
        await asyncio.sleep(0.002 * turn)
        worker.kill()
        assert worker.stdout
        said = ["try 1", *worker.stdout.read().split("\n")]  # `communicate` forgets the lines that were read ahead
        tried = [int(line.split()[1]) for line in said if line.startswith("try ")]
        acknowledged = [int(line.split()[1]) for line in said if line.startswith("ack ") and line[4:].isdigit()]
        entry = await store.get(key)
        assert (entry.generation if entry else 0) in {tried[-1], acknowledged[-1] if acknowledged else 0}


@pytest.mark.case("75")
async def test_a_writer_whose_lock_file_was_removed_is_refused(store, tmp_path):
    """Two brokers then hold "the" lock: the late one must not rename over the other's version."""
    key = store.key("grants", "a")
    await store.put(key, b"one", expect=0)
    other = open_file_store(tmp_path)
    prepared = store._entries.prepare(key, 2, b"late")
    async with store._locks.hold(lock_of(key), 1) as held:
        (tmp_path / "store" / "data" / "locks" / lock_of(key)).unlink()
        await other.put(key, b"two", expect=1)
        with pytest.raises(Conflict):
            store._entries.install(prepared, held)
    assert (2, b"two") == ((await store.get(key)).generation, (await store.get(key)).body)
    await other.close()


@pytest.mark.case("75")
async def test_a_writer_whose_lock_file_was_removed_is_refused_even_if_it_is_first(store, tmp_path):
    """Another process may hold the lock by now; the caller reads again and writes under the new one."""
    key = store.key("grants", "a")
    await store.put(key, b"one", expect=0)
    for replace in (False, True):
        prepared = store._entries.prepare(key, 2, b"two")
        async with store._locks.hold(lock_of(key), 1) as held:
            lock = tmp_path / "store" / "data" / "locks" / lock_of(key)
            lock.unlink()
            if replace:
                lock.touch(mode=0o600)
            with pytest.raises(BrokerError) as caught:
                store._entries.install(prepared, held)
        assert Code.STORE_LOCKED == caught.value.code
        assert caught.value.retryable
    assert [] == list((tmp_path / "store").rglob("*.tmp"))
    assert 2 == (await store.put(key, b"two", expect=1)).generation


@pytest.mark.case("75")
async def test_a_lease_whose_file_was_removed_while_waiting_is_taken_on_the_new_file(store, tmp_path):
    key = store.key("provider", "a")
    other = open_file_store(tmp_path)
    async with store.lease(key, wait=1):
        (tmp_path / "store" / "data" / "locks" / f"provider-{key.name}").unlink()
        async with other.lease(key, wait=1):
            assert Code.STORE_LOCKED == await take(store, key, 0.02)
    assert None is await take(store, key, 0)
    await other.close()


@pytest.mark.case("75")
async def test_a_lock_file_removed_between_opening_and_locking_is_not_held(tmp_path):
    """The locked file has no name any more; holding it would exclude no process."""

    class Removing(Fs):
        victim: Path | None = None

        def try_lock(self, fd: int) -> bool:
            if self.victim:
                self.victim.unlink()
                self.victim = None
            return super().try_lock(fd)

    fs = Removing()
    store, other = open_file_store(tmp_path, fs=fs), open_file_store(tmp_path)
    key = store.key("provider", "a")
    fs.victim = tmp_path / "store" / "data" / "locks" / f"provider-{key.name}"
    async with store.lease(key, wait=1):
        assert Code.STORE_LOCKED == await take(other, key, 0.02)
    await store.close()
    await other.close()


def lock_of(key: Key) -> str:
    return f"write-{int(key.name[:4], 16) % 64:02d}"


@pytest.mark.case("74")
async def test_many_waiters_try_hardly_more_often_than_a_few(store, tmp_path, monkeypatch):
    """Each try opens the lock's file. Tries of one process are counted, a second at a time, until they have come down as
    the waits get longer: a busy machine begins them late."""
    most = {20: 800, 400: 6_000}
    other = open_file_store(tmp_path)
    try:
        for many, bound in most.items():
            async with contextlib.AsyncExitStack() as held:
                for number in range(many):
                    await held.enter_async_context(other.lease(store.key("provider", str(number)), wait=30))
                waiters = [asyncio.create_task(take(store, store.key("provider", str(n)), 120)) for n in range(many)]
                seconds = [await _tries_in_a_second(monkeypatch)]
                while seconds[-1] >= bound and len(seconds) < 30:
                    seconds.append(await _tries_in_a_second(monkeypatch))
                assert seconds[-1] < bound, seconds
            assert {None} == set(await asyncio.gather(*waiters)), "they are let in soon after"
    finally:
        await other.close()


async def _tries_in_a_second(monkeypatch: pytest.MonkeyPatch) -> int:
    tries, began, open_lock = 0, asyncio.get_running_loop().time(), Fs.open_lock

    def count(_: Fs, *name: Any, **folder: Any) -> int:
        nonlocal tries
        tries += 1
        return open_lock(*name, **folder)

    monkeypatch.setattr(Fs, "open_lock", count)
    await asyncio.sleep(1)
    monkeypatch.undo()
    return round(tries / (asyncio.get_running_loop().time() - began))
