"""Read one slot of the audit log on disk: backwards from its newest line, onwards from its end, and as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from oauthbroker.audit.chain import MOST_LINE, AuditKeys, ChainHead, members, parse, starts_anew
from oauthbroker.audit.checkpoint import ChainCheckpoint
from oauthbroker.audit.folder import NAME, files_of, folder_of, is_named, named, numbers, open_to_read, read
from oauthbroker.audit.lines import AuditLine, line_from
from oauthbroker.audit.verification import SlotVerification
from oauthbroker.audit.verify import verify
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.progress import Count

BLOCK = 256 * 1024


@dataclass(slots=True)
class Budget:
    """The bytes that a search may still read."""

    left: int

    def spend(self, most: int) -> int:
        size = min(self.left, most)
        self.left -= size
        return size


@dataclass(frozen=True, slots=True)
class SlotTrail:
    """The trail of one slot; `keys` are the slot's."""

    root: Path
    slot: int
    keys: AuditKeys

    @property
    def folder(self) -> Path:
        return folder_of(self.root, self.slot)

    def backwards(self, budget: Budget) -> Iterator[AuditLine]:
        """Yield the lines, the newest first, within the budget."""
        for path in reversed(files_of(self.folder)):
            descriptor = open_to_read(path)
            try:
                for raw, before in _pairs(descriptor, budget):
                    line = self.verified_line(raw, before)
                    if line is not None:
                        yield line
            finally:
                os.close(descriptor)
            if not budget.left:
                return

    def verified_line(self, raw: bytes, before: bytes | None) -> AuditLine | None:
        """Parse a line and verify its MAC; None for bytes that are no line."""
        line, previous = parse(raw), parse(before) if before is not None else None
        if line is None:
            return line_from(members(raw), genuine=None, slot=self.slot)
        genuine = previous is not None and self.keys.follows(previous.mac, line)
        return line_from(members(raw), genuine=genuine or starts_anew(self.keys, line), slot=self.slot)

    def size(self) -> int:
        """Return the bytes of all files, about: one may be rotated meanwhile."""
        sizes = 0
        for path in self._files():
            with suppress(FileNotFoundError):
                sizes += path.stat().st_size
        return sizes

    def verify(
        self, chain_checkpoint: ChainCheckpoint | None, noted: ChainHead | None, count: Count
    ) -> SlotVerification:
        """Verify all lines. `chain_checkpoint` was read before them."""
        begun, newest = count.done, str((self.folder / NAME).relative_to(self.root))
        while True:
            files, count.done = self._files(), begun
            with suppress(FileNotFoundError):
                named_lines = ((str(path.relative_to(self.root)), _lines(path, count)) for path in files)
                verification = verify(named_lines, self.keys, chain_checkpoint, noted, newest=newest)
                if files == self._files():  # else a file was rotated meanwhile
                    return verification

    def _files(self) -> list[Path]:
        return files_of(self.folder) if self.folder.is_dir() else []


class SlotFollow:
    """Yields new lines of a slot, also from later files. Call `more` at any time, and `close` at the end."""

    def __init__(self, trail: SlotTrail, *, from_start: bool) -> None:
        self._trail = trail
        self._before: bytes | None = None
        self._descriptor, self._offset, self._rest = -1, 0, b""
        self._number: int | None = None
        if self._open() and not from_start:
            self._go_to_end()

    def more(self) -> list[AuditLine]:
        """Return the lines since the last call. Raises OSError."""
        if self._descriptor < 0 and not self._open():
            return []
        found = self._new_lines()
        while not is_named(self._trail.folder, self._descriptor):
            found += self._new_lines()  # the last lines before the rotation
            self.close()
            if not self._open():
                break
            found += self._new_lines()
        return found

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _open(self) -> bool:
        """Open the next file: the successor of the one just read, or the current one."""
        with suppress(FileNotFoundError):
            self._descriptor, self._offset, self._rest, self._before = open_to_read(self._next()), 0, b"", None
        return self._descriptor >= 0

    def _go_to_end(self) -> None:
        """Skip the lines until now, and keep the last one, which the next line follows."""
        size = os.lseek(self._descriptor, 0, os.SEEK_END)
        block = read(self._descriptor, max(0, size - MOST_LINE), MOST_LINE)
        lines = block.rpartition(b"\n")[0]
        self._offset = size - (len(block) - len(lines) - 1 if lines else len(block))
        self._before = lines.rpartition(b"\n")[2] if lines else None

    def _next(self) -> Path:
        folder, number = self._trail.folder, self._number
        return folder / (named(number) if number is not None and number in numbers(folder) else NAME)

    def _new_lines(self) -> list[AuditLine]:
        new = read(self._descriptor, self._offset, os.lseek(self._descriptor, 0, os.SEEK_END) - self._offset)
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        found = []
        for raw in lines:
            line = self._trail.verified_line(raw, self._before)
            self._before = raw
            if line is not None and line.type == "LogRotated":
                self._number = int(line.fields["to"]) + 1
            found += [line] if line is not None else []
        return found


def _lines(path: Path, count: Count) -> Iterator[bytes]:
    """Yield lines with their line breaks, in pieces of bounded size, and count their bytes."""
    descriptor = open_to_read(path)
    left = uncounted = os.lseek(descriptor, 0, os.SEEK_END)
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)
        while left and (raw := file.readline(min(left, MOST_LINE))):
            left -= len(raw)
            yield raw
            if uncounted - left >= BLOCK or not left:
                count.add(uncounted - left)
                uncounted = left


def _pairs(descriptor: int, budget: Budget) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield (a line, the one before it), the newest first; None before the first line of a file."""
    position = os.lseek(descriptor, 0, os.SEEK_END)
    rest, whole = b"", False
    while size := budget.spend(min(BLOCK, position)):
        position -= size
        rest = read(descriptor, position, size) + rest
        if not whole:  # without a line break it is not a complete line
            rest = rest[: rest.rfind(b"\n") + 1] or rest
            whole = rest.endswith(b"\n")
        lines = rest[:-1].split(b"\n") if whole else []
        kept = 2 if position else 0  # the first may be partial, so the line before the second is unknown
        for at in range(len(lines) - 1, kept - 1, -1):
            yield lines[at], lines[at - 1] if at else None
        rest = b"".join(line + b"\n" for line in lines[:kept]) if whole else rest
