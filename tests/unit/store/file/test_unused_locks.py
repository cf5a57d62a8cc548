"""Lock files that no process needs are removed, and no two holders of a lock ever come of it."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.store.file import file_store, locks
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.file.locks import HeldLock, Locks
from oauthbroker.testing.stores import open_file_store
from tests.kit.crashfs import HookedFs
from tests.kit.forms import examples

KINDS = ("pair", "provider")
NAME = "provider-" + "a" * 64
ORDERS = 2000
EACH = 4  # times that each of two processes takes the lock


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    store = open_file_store(tmp_path)
    yield store
    await store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store/data/locks"


def make_old(folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path, (0, 0))


async def use(store: FileStore, kind: str, name: str) -> str:
    key = store.key(kind, name)
    async with store.lease(key, wait=0):
        return f"{key.kind}-{key.name}"


async def test_free_locks_of_the_kinds_are_removed_and_all_others_stay(store: FileStore, folder: Path) -> None:
    await store.put(store.key("grants", "a"), b"a", expect=0)
    others = {path.name for path in folder.iterdir()} | {await use(store, "queue", "a")}
    assert 3 == len(others), "the probe, a lock for writing, and a lease of another kind"
    removed = {await use(store, kind, name) for kind in KINDS for name in "abc"}
    held, key = open_file_store(folder.parents[2]), store.key("pair", "held")
    async with held.lease(key, wait=0):
        make_old(folder)
        young = await use(store, "provider", "young")
        await store.tidy(KINDS)
        left = {path.name for path in folder.iterdir()}
        assert others | {f"pair-{key.name}", young} == left
        assert not removed & left
    await held.close()


async def test_many_locks_are_removed_in_pieces(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_store, "_LOCKS", 8)
    monkeypatch.setattr(file_store, "_LOCKS_PAUSE", 0)
    pieces, remove = list[int](), Locks.remove_unused

    def counted(self: Locks, names: Iterable[str], kinds: Collection[str]) -> int:
        pieces.append(remove(self, names, kinds))
        return pieces[-1]

    monkeypatch.setattr(Locks, "remove_unused", counted)
    for number in range(100):
        (folder / f"pair-{number:064x}").touch(0o600)
    make_old(folder)
    await store.tidy(KINDS)
    assert ["probe"] == [path.name for path in folder.iterdir()]
    assert 8 == max(pieces)


@pytest.mark.case("76")
async def test_on_a_network_file_system_they_stay(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a process may still see the name of a file that another one has removed."""
    monkeypatch.setattr(file_store, "file_system", lambda _: "nfs4")
    name = await use(store, "pair", "a")
    make_old(folder)
    await store.tidy(KINDS)
    assert (folder / name).exists()


class Actor(threading.Thread):
    """Does its work one step at a time: a step ends before the next system call of a lock."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.work, self.over = work, False
        self.turn, self.paused = threading.Semaphore(0), threading.Semaphore(0)

    def run(self) -> None:
        self.turn.acquire()
        try:
            self.work()
        finally:
            self.over = True
            self.paused.release()

    def step(self) -> None:
        self.turn.release()
        self.paused.acquire()

    def pause(self) -> None:
        self.paused.release()
        self.turn.acquire()


class StepFs(HookedFs):
    """Stops before each call but those that a lock makes while no fork may happen."""

    def _step(self, call: str, _args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        actor = threading.current_thread()
        if isinstance(actor, Actor) and call not in {"open_lock", "close"}:
            actor.pause()
        return run()


def in_order(folder: Path, seed: int) -> tuple[int, int, int, int]:
    """Let two processes take a lock again and again while two others remove its file, in an order by chance. Return
    the most holders at once, how often it was taken and lost, and how often the file was removed."""
    fs, dice, inside, most, taken, lost = StepFs(), random.Random(seed), 0, 0, 0, 0
    fd = fs.open_root(folder)

    def take() -> None:
        nonlocal inside, most, taken, lost
        mine = Locks(fs, fd, SystemClock())
        for _ in range(EACH):
            held: HeldLock | None = None
            while held is None:
                held = mine.try_now(NAME)
            taken += 1
            inside += 1
            most = max(most, inside)
            fs.stat(".", dir_fd=fd)
            lost += held.lost
            inside -= 1
            held.release()

    def remove() -> None:
        mine = Locks(fs, fd, SystemClock())
        while taken < 2 * EACH:
            mine.remove_unused([NAME], KINDS)

    actors = [Actor(work) for work in (take, take, remove, remove)]
    for actor in actors:
        actor.start()
    removed, now = 0, (folder / NAME).exists()
    while alive := [actor for actor in actors if not actor.over]:
        actor = dice.choice(alive)
        for _ in range(dice.choice((1, 2, 4, 8))):  # others stand still for long
            if not actor.over:
                actor.step()
        before, now = now, (folder / NAME).exists()
        removed += before and not now
    os.close(fd)
    return most, taken, lost, removed


def orders(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int, int]]:
    monkeypatch.setattr(locks, "_YOUNG", -60)  # the files of a moment ago are old
    return [in_order(folder, seed) for seed in range(examples(ORDERS))]


@pytest.mark.slow
@pytest.mark.case("75")
def test_in_no_order_has_a_lock_two_holders_while_its_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = orders(tmp_path, monkeypatch)
    assert {(1, 2 * EACH, 0)} == {each[:3] for each in found}
    assert sum(each[3] for each in found) > len(found)


@pytest.mark.slow
def test_a_lock_that_does_not_look_at_its_name_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldLock, "still_named", lambda _: True)
    assert 2 == max(each[0] for each in orders(tmp_path, monkeypatch))


@pytest.mark.slow
def test_a_file_that_is_removed_without_its_lock_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def blindly(self: Locks, name: str) -> None:
        self._fs.unlink(name, dir_fd=self._folder)

    monkeypatch.setattr(Locks, "_remove", blindly)
    assert 2 == max(each[0] for each in orders(tmp_path, monkeypatch))
