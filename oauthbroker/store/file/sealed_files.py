"""The sealed entries of a file store, and the processes that open them: what a rotation of the keys works on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from itertools import islice
from typing import Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file.locked_writes import Writer
from oauthbroker.store.file.sorted_names import SortedNames
from oauthbroker.store.file.versioned_entries import EntryFiles
from oauthbroker.store.format.port import Conflict, Key
from oauthbroker.store.format.seal import UNOPENED
from oauthbroker.store.keys.live_keyring import LiveKeyring
from oauthbroker.store.posix.folders import Folders, living_marks
from oauthbroker.store.posix.system_calls import Fs

DAMAGED = UNOPENED | {Code.STORE_PERMISSIONS}
_COUNTED: Final = 256  # entries whose seeds are read at a time


class SealedFiles:
    """The `SealedEntries` of a `FileStore`. `names` returns the names of a kind, in their order."""

    def __init__(
        self,
        *,
        fs: Fs,
        folders: Folders,
        keyring: LiveKeyring,
        entries: EntryFiles,
        writer: Writer,
        names: Callable[[str], Awaitable[SortedNames]],
    ) -> None:
        self._fs, self._folders, self._keyring = fs, folders, keyring
        self._entries, self._writer, self._names = entries, writer, names
        self._reported = b""

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self._folders.by_kind)

    async def document(self) -> bytes | None:
        return await self._writer.run(self._entries.document)

    async def report(self, mark: bytes) -> None:
        """Append the mark to the open mark, where the others look for the last one."""
        fd = self._folders.mark
        if fd is not None and mark != self._reported:
            await self._writer.run(partial(self._fs.write, fd, mark))
            self._reported = mark

    async def behind(self, mark: bytes) -> int:
        marks = await self._writer.run(partial(living_marks, self._fs, self._folders.data))
        return sum(each[-len(mark) :] != mark for each in marks)

    async def settle_writers(self) -> None:
        await self._writer.settle()

    async def to_reseal(self, kind: str) -> int:
        return len(await self._names(kind))

    async def reseal(self, kind: str, together: int) -> AsyncIterator[Counter[bool | None]]:
        names = iter(await self._names(kind))
        while some := tuple(islice(names, together)):
            counts = Counter[bool | None]()
            works = [self._resealed(Key(kind, name)) for name in some]
            for outcome in await asyncio.gather(*works, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                counts[outcome] += 1
            yield counts

    async def _resealed(self, key: Key) -> bool | None:
        """Return whether an entry was sealed anew; None for one that cannot be opened."""
        try:
            other = await self._writer.run(partial(self._entries.seed_of, key)) != self._keyring.ring.active.kid
            return other and await self._writer.change(key, partial(self._entries.reseal, key))
        except Conflict:
            return False  # it was removed, or written, which seals it
        except BrokerError as error:
            if error.code not in DAMAGED:
                raise
        return None

    async def seals(self, kind: str) -> AsyncIterator[Counter[bytes]]:
        names = iter(await self._names(kind))
        while some := tuple(islice(names, _COUNTED)):
            yield await self._writer.run(partial(self._seeds, kind, some))

    def _seeds(self, kind: str, names: Iterable[str]) -> Counter[bytes]:
        return Counter(self._entries.seed_of(Key(kind, name)) for name in names)
