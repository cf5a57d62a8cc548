"""A store in files with a few records, places to move or restore it to, and a raw store that dies at a change."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError
from oauthbroker.repository.repository import KINDS
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.keys.key_encryption_keys import FileKek
from oauthbroker.store.keys.keyring_home import KeyringFile
from oauthbroker.store.migration.copying import Copied, Migration, reopen
from oauthbroker.store.migration.raw import RawStore
from oauthbroker.store.migration.raw_files import RawFiles
from oauthbroker.store.migration.raw_rows import RawRows
from oauthbroker.store.posix.migration_marker import MigrationState
from oauthbroker.store.postgres.schema import SCHEMAS, KeyringTable
from tests.kit import postgres

RECORDS = {"grants": 5, "sessions": 2, "events": 1, "tombstones": 1}


class Killed(Exception):
    """The process ends here."""


class Dying:
    """A raw store whose process ends at the change with this number, before or after it is made."""

    def __init__(self, store: RawStore, steps: Iterator[int], at: int, *, after: bool) -> None:
        self._store, self._steps, self._at, self._after = store, steps, at, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return found if name not in {"put_keyring", "set_mark", "write", "remove"} else self._dying(found)

    def _dying(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            dies = next(self._steps) == self._at
            if dies and not self._after:
                raise Killed
            change(*given, **named)
            if dies:
                raise Killed

        return call


class World:
    """A store in files with a few records, and places to move it to."""

    def __init__(self, folder: Path, server: postgres.Server) -> None:
        self.folder, self.server = folder, server
        self.kek = FileKek.create(folder / "kek")
        self.ring = KeyringFile(folder / "files" / "data" / "keyring", self.kek).create()

    def place(self, word: str, *, make: bool = False) -> RawStore:
        if word == "database":
            return RawRows(self.server.url("migration"), "env:DATABASE", make=make)
        return RawFiles(self.folder / word, make=make)

    async def opens(self, word: str) -> bool:
        """Tell whether a broker that starts now opens this store with its keyring."""
        if word == "database":
            try:
                KeyringTable(self.server.url("migration"), self.kek).load()
            except BrokerError:
                return False
            return True
        with suppress(BrokerError):
            KeyringFile(self.folder / word / "data" / "keyring", self.kek).load()
            await self.store(word).close()
            return True
        return False

    def store(self, word: str = "files") -> FileStore:
        return FileStore(self.folder / word, self.ring, kinds=KINDS, clock=SystemClock())

    async def filled(self) -> None:
        store = self.store()
        for kind, count in RECORDS.items():
            for number in range(count):
                tags = [store.tag(kind, "app", "mail")] if kind == "grants" else []
                await store.put(store.key(kind, str(number)), f"{kind} {number}".encode(), expect=0, tags=tags)
        await store.close()

    def move(self, source: str, target: str, *, at: int = -1, after: bool = False, cut_over: bool = True) -> Copied:
        with closing(self.place(source)) as here, closing(self.place(target, make=True)) as there:
            steps = iter(range(1_000))
            ends: list[Any] = [Dying(each, steps, at, after=after) for each in (here, there)]
            move = Migration(source=ends[0], target=ends[1], ring=self.ring, kinds=KINDS, clock=SystemClock())
            return move.cut_over() if cut_over else move.copy()

    def begin_anew(self) -> None:
        for each in ("database", "files", "others"):
            self.empty(each)
        self.ring = KeyringFile(self.folder / "files" / "data" / "keyring", self.kek).create()
        asyncio.run(self.filled())

    def empty(self, word: str) -> None:
        shutil.rmtree(self.folder / word, ignore_errors=True)
        for schema in set(SCHEMAS.values()) if word == "database" else ():
            self.server.run(f"drop schema if exists {schema} cascade", "migration")

    def go_back(self, word: str) -> None:
        """Reopen the source of an unfinished move: its brokers work again, and the next copy brings the rest."""
        with closing(self.place(word)) as store:
            mark = store.mark()
            if mark is not None and mark.state is MigrationState.CLOSING:
                assert reopen(store, abandon=False)
                assert store.mark() is None

    def all(self, word: str) -> dict[str, list[Any]]:
        with closing(self.place(word)) as store:
            return {kind: store.records(kind) for kind in KINDS if store.records(kind)}
