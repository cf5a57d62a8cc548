"""Where the queues of a crash story are kept: in memory, with a crash at each call, or on a disk that stops."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Entry, Key, Store
from oauthbroker.store.memory import MemoryStore
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing import TestClock
from oauthbroker.testing.stores import open_keyring
from tests.faults.crash_kit import CrashAtChange
from tests.faults.queue_crash_kit import Step, queues_on
from tests.faults.sync_kit import different
from tests.kit.crashfs import Crash


class Survivor(Protocol):
    """What a crash has left. Each opening is of a new copy."""

    def open(self) -> Any: ...


@dataclass(frozen=True)
class Crashed:
    """The state after a crash, or after a loss of power once the step was `answered`."""

    left: list[Survivor]
    answered: bool


class Place(Protocol):
    """Where the queues of one story are kept."""

    async def run(self, step: Step, clock: TestClock) -> Any:
        """Run a step to its end."""
        ...

    async def crashed(self, step: Step, clock: TestClock, number: int) -> Crashed:
        """Run the step on a copy, and crash at its `number`-th change, or after its end if it has fewer."""
        ...

    def survivor(self) -> Survivor:
        """Return the present state."""
        ...


class CrashingStore(MemoryStore):
    """Its process dies before the `number`-th change after `arm`, counted from 0."""

    def __init__(self, clock: TestClock) -> None:
        super().__init__(kinds=KINDS, lease_kinds=LEASES, clock=clock)
        self._left: int | None = None
        self.died = False

    def arm(self, number: int) -> None:
        self._left = number

    def copied(self) -> CrashingStore:
        other = CrashingStore(TestClock())
        other._label_macs, other._name_of = self._label_macs, self._name_of
        other._entries = {kind: dict(entries) for kind, entries in self._entries.items()}
        return other

    def _change(self) -> None:
        if self._left is not None:
            self._left -= 1
            self.died = self.died or self._left < 0
        self._live()

    def _live(self) -> None:
        if self.died:
            raise Crash

    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        self._change()
        return await super().put(key, body, **more)

    async def delete(self, key: Key, *, expect: int) -> None:
        self._change()
        await super().delete(key, expect=expect)

    async def get(self, key: Key) -> Entry | None:
        self._live()
        return await super().get(key)


@dataclass(frozen=True)
class Copied:
    """A store in memory that survives."""

    store: CrashingStore

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Store]:
        yield self.store.copied()


@dataclass
class InMemory:
    """Crashes at each call of the store."""

    store: CrashingStore

    async def run(self, step: Step, clock: TestClock) -> Any:
        return await step.run(queues_on(self.store, clock), clock)

    async def crashed(self, step: Step, clock: TestClock, number: int) -> Crashed:
        dying = self.store.copied()
        dying.arm(number)
        with suppress(Crash):
            await step.run(queues_on(dying, clock), clock)
        return Crashed([Copied(dying)], answered=not dying.died)

    def survivor(self) -> Survivor:
        return Copied(self.store)


class NoSync(Fs):
    """A disk that loses no power, so that nothing waits for it."""

    def fsync(self, fd: int) -> None:
        """Done."""


@dataclass(frozen=True)
class Folder:
    """A store in a folder, and the key file beside it."""

    root: Path
    ring: Any

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Store]:
        copied = self.root.with_name(f"{self.root.name}-copy")
        shutil.copytree(self.root, copied)
        store = self.opened(copied, TestClock(), NoSync())
        try:
            yield store
        finally:
            await store.close()
            shutil.rmtree(copied)

    def opened(self, root: Path, clock: TestClock, fs: Fs) -> FileStore:
        return FileStore(root, self.ring, kinds=KINDS, lease_kinds=LEASES, clock=clock, fs=fs)


@dataclass
class OnDisk:
    """Crashes at each change of a file."""

    place: Path

    def __post_init__(self) -> None:
        self.folder = Folder(self.place / "store", open_keyring(self.place))

    async def run(self, step: Step, clock: TestClock) -> Any:
        store = self.folder.opened(self.folder.root, clock, NoSync())
        try:
            return await step.run(queues_on(store, clock), clock)
        finally:
            await store.close()

    async def crashed(self, step: Step, clock: TestClock, number: int) -> Crashed:
        scratch = self.place / "crash"
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(self.folder.root, scratch / "store")
        fs = CrashAtChange(scratch / "store")
        store = self.folder.opened(scratch / "store", clock, fs)
        fs.arm(number)
        try:
            await step.run(queues_on(store, clock), clock)
        except Crash:
            await asyncio.sleep(0)
        left = [Folder(clone, self.folder.ring) for clone in different(fs.clones(scratch, seeds=1))]
        fs.restore()
        await store.close()
        return Crashed([*left], answered=fs.fired is None)

    def survivor(self) -> Survivor:
        return self.folder
