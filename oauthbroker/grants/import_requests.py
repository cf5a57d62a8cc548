"""An import over the API: its lines are written as they come, and a repeated request imports nothing twice.

The record of an Idempotency-Key has counts and a digest of the lines that are done, and no line. A request that was cut
off goes on behind them. A batch that was under way is written again: its grants remember their lines.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from oauthbroker.core.clock import from_iso, to_iso
from oauthbroker.core.dataclasses import asdict, dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.grants.import_lines import MOST_PROBLEMS, Incoming, LineChecks
from oauthbroker.grants.importing import Importing
from oauthbroker.grants.line_cutter import LineCutter
from oauthbroker.records.plugin_value import PluginValue
from oauthbroker.repository.plugin_values import PluginValues

PLUGIN: Final = "oauthbroker"  # no plug-in has this name
PREFIX: Final = "import/"
AT_ONCE = 32  # lines under way, and between two writes of the record
KEPT = timedelta(days=7)
COUNTS: Final = ("lines", "imported", "there", "kept", "revoked", "refused", "unverified")
Still = Callable[[], Awaitable[None]]
Checked = tuple[int, Incoming | list[str]]


@dataclass(slots=True, kw_only=True)
class ImportProgress:
    """What the record of a key holds. `line` is the last one that is done, `digest` that of all lines up to it."""

    until: str
    line: int = 0
    digest: str = ""
    done: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    problems: list[dict[str, Any]] = field(default_factory=list)

    def add(self, results: Sequence[ImportedLine]) -> None:
        """Count lines, and note the first that were refused."""
        counts = Counter(self.counts)
        for each in results:
            counts.update(("lines", each.outcome, *(["unverified"] if each.unverified else [])))
            if each.reasons and len(self.problems) < MOST_PROBLEMS:
                self.problems.append({"line": each.line, "reasons": [*each.reasons], "code": each.code})
        self.counts = dict(counts)

    def answer(self) -> dict[str, Any]:
        return {name: self.counts.get(name, 0) for name in COUNTS} | {"problems": self.problems}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedLine:
    """What became of one line. `code` is set where the provider's answer is the reason."""

    line: int
    outcome: str
    unverified: bool = False
    reasons: Sequence[str] = ()
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequests:
    """Runs one import at a time, over all processes of the store."""

    importing: Importing
    values: PluginValues

    async def run(self, caller: str, key: str, pieces: AsyncIterator[bytes], still: Still) -> dict[str, Any]:
        """Import the lines that the pieces hold, and return the counts, with the first refused lines by number. Each
        caller has keys of its own. `still` is asked before each batch.

        Raises `storeLocked` while another import is under way, `idempotencyConflict` for a key that came with other
        lines, store codes, and what `still` and `pieces` raise. Lines written before that stay.
        """
        place = PREFIX + hashlib.sha256(f"{caller} {key}".encode()).hexdigest()
        async with self.values.store.lease(self.values.store.key("plugin", PLUGIN, "import"), wait=0):
            await self._forget_old()
            progress = await self._progress(place)
            start, digest, batch = progress.line, hashlib.sha256(), list[Checked]()
            is_same = start == 0
            checks = LineChecks(self.importing.apps, self.importing.clock.now())
            async for number, data in _lines(pieces):
                digest.update(len(data).to_bytes(4, "big") + data)
                found = checks.check(number, data)
                if number <= start:
                    is_same = number == start and digest.hexdigest() == progress.digest
                    continue
                if progress.done or not is_same:
                    break
                batch.append((number, found))
                if len(batch) == AT_ONCE:
                    await still()
                    await self._write(place, progress, batch, digest.hexdigest())
                    batch = []
            else:
                if is_same and not progress.done:
                    progress.done = True
                    await self._write(place, progress, batch, digest.hexdigest())
                if is_same:
                    return progress.answer()
        raise BrokerError(Code.IDEMPOTENCY_CONFLICT)

    async def _write(self, place: str, progress: ImportProgress, batch: Sequence[Checked], digest: str) -> None:
        """Write a batch, then the record. Nothing is counted of a batch that the store has refused."""
        results = await asyncio.gather(*(self._line(*each) for each in batch), return_exceptions=True)
        for each in results:
            if isinstance(each, BaseException):
                raise each
        progress.add([each for each in results if isinstance(each, ImportedLine)])
        progress.line, progress.digest = batch[-1][0] if batch else progress.line, digest
        await self._save(place, progress)

    async def _line(self, line: int, found: Incoming | list[str]) -> ImportedLine:
        if not isinstance(found, Incoming):
            return ImportedLine(line=line, outcome="refused", reasons=found)
        try:
            outcome = await self.importing.import_grant(found)
            ours = outcome in {"imported", "there"}
            return ImportedLine(
                line=line, outcome=outcome, unverified=ours and await self.importing.is_unverified(found)
            )
        except BrokerError as error:
            if error.retryable and error.code is not Code.CREDENTIAL_UNCHECKED:  # of one provider, not of the store
                raise
            code, sentence = error.code, error.message()
        return ImportedLine(line=line, outcome="refused", reasons=(sentence,), code=code.value)

    async def _progress(self, place: str) -> ImportProgress:
        entry = await self.values.store.get(self.values.key(PLUGIN, place))
        if entry is None:
            return ImportProgress(until=to_iso(self.importing.clock.now() + KEPT))
        return ImportProgress(**self.values.open(entry).value)

    async def _save(self, place: str, progress: ImportProgress) -> None:
        value = PluginValue(plugin=PLUGIN, key=place, value=asdict(progress))
        await self.values.write(value, over=await self.values.store.get(self.values.key(PLUGIN, place)))

    async def _forget_old(self) -> None:
        now = self.importing.clock.now()
        old = [
            found.key
            async for found in self.values.of(PLUGIN)
            if found.key.startswith(PREFIX) and from_iso(found.value["until"]) <= now
        ]
        for key in old:
            await self.values.remove(PLUGIN, key)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    cutter = LineCutter()
    async for piece in pieces:
        for line in cutter.cut(piece):
            yield line
    for line in cutter.end():
        yield line
