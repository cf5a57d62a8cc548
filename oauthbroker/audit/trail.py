"""Read the audit log on disk, all slots as one trail: for the admin page and `oauthbroker audit`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import TypeVar, Unpack

from oauthbroker.audit.chain import AuditKeys, ChainHead
from oauthbroker.audit.checkpoint import read_checkpoint
from oauthbroker.audit.folder import existing_slots, slots_with_lines
from oauthbroker.audit.formatting import Naming
from oauthbroker.audit.lines import AuditLine, Sought, Which, parsed
from oauthbroker.audit.slot_trail import Budget, SlotFollow, SlotTrail
from oauthbroker.audit.verification import TrailVerification
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.progress import Count, Progress, unseen

T = TypeVar("T")
MOST_READ = 64 * 1024 * 1024  # bytes that a search reads


@dataclass(frozen=True, slots=True)
class FileTrail:
    """The trail of a log on disk. Needs the store's keys and no running broker, and writes nothing."""

    folder: Path
    keys: AuditKeys

    @property
    def name(self) -> Naming:
        return self.keys.name

    async def tail(self, n: int, **which: Unpack[Which]) -> list[AuditLine]:
        return await _apart(partial(self._tail, n, parsed(n, which)))

    async def verify(
        self, noted: Mapping[int, ChainHead] | None = None, progress: Progress = unseen
    ) -> TrailVerification:
        """Verify all slots: some seconds for a million lines. `noted`: for a slot, a line that must be there."""
        return await _apart(partial(self._verify, noted or {}, progress))

    def slot(self, number: int) -> SlotTrail:
        return SlotTrail(self.folder, number, self.keys.of_slot(number))

    def _tail(self, n: int, sought: Sought) -> list[AuditLine]:
        budget = Budget(MOST_READ)
        slots = [self.slot(number).backwards(budget) for number in existing_slots(self.folder)]
        newest_first = merge(*slots, key=_order, reverse=True)
        return [*islice((line for line in newest_first if line.fits(sought)), n)][::-1]

    def _verify(self, noted: Mapping[int, ChainHead], progress: Progress) -> TrailVerification:
        checkpoint = read_checkpoint(self.folder, self.keys, patient=True)  # before the lines, which only become more
        listed = checkpoint.chains if checkpoint is not None else {}
        slots = sorted({0, *slots_with_lines(self.folder), *listed, *noted})
        trails = {slot: self.slot(slot) for slot in slots}
        count = Count("bytes of the audit log verified", sum(trail.size() for trail in trails.values()), progress)
        return TrailVerification(
            {
                slot: trail.verify(checkpoint.of(slot) if checkpoint is not None else None, noted.get(slot), count)
                for slot, trail in trails.items()
            }
        )


class Follow:
    """Yields lines that are written from now on, of all slots and by time within each call. Call `more` at any time,
    and `close` at the end."""

    def __init__(self, trail: FileTrail) -> None:
        self._trail = trail
        self._slots: dict[int, SlotFollow] = {}
        self._look_for_slots(from_start=False)

    async def more(self) -> list[AuditLine]:
        """Return the lines since the last call. Raises `storeUnavailable`."""
        return await _apart(self._more)

    def close(self) -> None:
        for slot in self._slots.values():
            slot.close()

    def _more(self) -> list[AuditLine]:
        self._look_for_slots(from_start=True)
        found: Iterable[list[AuditLine]] = [slot.more() for slot in self._slots.values()]
        return [*merge(*found, key=_order)]

    def _look_for_slots(self, *, from_start: bool) -> None:
        for number in existing_slots(self._trail.folder):
            if number not in self._slots:
                self._slots[number] = SlotFollow(self._trail.slot(number), from_start=from_start)


def _order(line: AuditLine) -> tuple[str, int]:
    """Sort by time, with and without microseconds. The lines of a slot keep their order, even if the clock was set
    back."""
    return line.at.removesuffix("Z"), line.slot


async def _apart(work: Callable[[], T]) -> T:
    """Run on a thread. Raises `storeUnavailable` if the disk cannot be read."""
    with suppress(OSError):
        return await asyncio.to_thread(work)
    raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log cannot be read")
