"""Read the audit log: its newest lines, for the admin page and `oauthbroker audit`, and its verification."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

from oauthbroker.audit import AuditList, AuditWriter, Naming, rest_of
from oauthbroker.audit.anchor import read_anchor
from oauthbroker.audit.chain import MOST_LINE, AuditKeys, ChainHead, members, parse, starts_anew
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.folder import NAME, files_of, is_named, named, numbers, open_to_read, read, settled_size
from oauthbroker.audit.gap import AuditAnyway
from oauthbroker.audit.verify import Verdict, verify
from oauthbroker.core.clock import from_iso, to_iso
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.token_request import AppRef, app_name

T = TypeVar("T")
BLOCK = 256 * 1024
MOST_READ = 64 * 1024 * 1024  # bytes that a search reads
_OURS = frozenset({"seq", "at", "type", "mac"})


class Which(TypedDict, total=False):
    """The caller's filter; a missing member, or None, selects all."""

    app: AppRef | None
    type: str | None
    grant: str | None
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Sought:
    """The parsed filter; None selects all. `grant` is a pseudonym, `since` and `until` are included."""

    app: str | None = None
    type: str | None = None
    grant: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def spans(self, at: str) -> bool:
        """Tell whether a line's time is in the range. False for an unreadable time."""
        if self.since is None and self.until is None:
            return True
        try:
            moment = from_iso(at)
        except ValueError:
            return False
        return (self.since is None or self.since <= moment) and (self.until is None or moment <= self.until)


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One entry of the log. `fields` are the entry's own members, with grants and conversations as pseudonyms
    (`AuditTrail.name`). `genuine`: its MAC follows the line before; None for a line of an old log without MACs."""

    seq: int | None
    at: str
    type: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    genuine: bool | None = True

    @property
    def grant(self) -> str | None:
        """Return the pseudonym of the entry's grant, also if it is the entry's target."""
        named = (self.fields.get("grant"), self.fields.get("target"))
        return next((name for name in named if isinstance(name, str) and name.startswith("grant-")), None)

    def fits(self, sought: Sought) -> bool:
        if sought.app not in {None, self.fields.get("app")} or sought.type not in {None, self.type}:
            return False
        return sought.grant in {None, self.grant} and sought.spans(self.at)

    def to_json(self) -> dict[str, Any]:
        return {"seq": self.seq, "at": self.at, "type": self.type, **self.fields, "genuine": self.genuine}


class AuditTrail(Protocol):
    """The readable log, as `broker.audit_trail`."""

    async def tail(self, n: int, **which: Unpack[Which]) -> list[AuditLine]:
        """Return the newest `n` matching lines, the newest last.

        `grant` is a pseudonym (`name("grant", ...)`), `since` and `until` are included; `app` takes any form of a
        reference. Reads at most 64 MiB. Raises `storeUnavailable`, and `requestInvalid` for an invalid app reference.
        """
        ...

    def name(self, kind: str, value: str) -> str:
        """Return the log's pseudonym: `name("grant", grantId)`, `name("instance", instanceKey)`."""
        ...


@dataclass(frozen=True, slots=True)
class ListTrail:
    """The trail of a log in memory."""

    written: AuditList
    name: Naming

    async def tail(self, n: int, **which: Unpack[Which]) -> list[AuditLine]:
        found, sought = [], _sought(which)
        for at, entry in reversed(self.written.lines):
            line = _line(members(f'{{"at":"{to_iso(at)}",{rest_of(entry, self.name)}}}'.encode()), genuine=True)
            if line is not None and line.fits(sought):
                found.append(line)
            if len(found) >= n:
                break
        return found[:n][::-1]


@dataclass(frozen=True, slots=True)
class NoTrail:
    """No trail: the embedding runtime keeps the entries itself."""

    name: Naming

    async def tail(self, n: int, **which: Unpack[Which]) -> list[AuditLine]:  # noqa: ARG002
        return []


@dataclass(frozen=True, slots=True)
class FileTrail:
    """The trail of a log on disk. Needs the store's keys and no running broker, and writes nothing."""

    folder: Path
    keys: AuditKeys

    @property
    def name(self) -> Naming:
        return self.keys.name

    async def tail(self, n: int, **which: Unpack[Which]) -> list[AuditLine]:
        return await _apart(partial(self._tail, n, _sought(which)))

    async def verify(self, noted: ChainHead | None = None) -> Verdict:
        """Verify the whole log: some seconds for a million lines. `noted`: a line that must be in the log."""
        return await _apart(partial(self._verify, noted))

    def follow(self) -> Follow:
        """Follow the log from its end on."""
        return Follow(self)

    def _tail(self, n: int, sought: Sought) -> list[AuditLine]:
        fitting = (line for line in self._backwards() if line.fits(sought))
        return [*islice(fitting, n)][::-1]

    def _backwards(self) -> Iterator[AuditLine]:
        """Yield the lines, the newest first, up to the limit."""
        left = MOST_READ
        for path in reversed(files_of(self.folder)):
            descriptor = open_to_read(path)
            try:
                end = os.lseek(descriptor, 0, os.SEEK_END)
                for raw, before in _pairs(descriptor, end, left):
                    line = self.judged(raw, before)
                    if line is not None:
                        yield line
            finally:
                os.close(descriptor)
            left -= end
            if left <= 0:
                return

    def judged(self, raw: bytes, before: bytes | None) -> AuditLine | None:
        """Parse a line and verify its MAC; None for bytes that are no line."""
        line, previous = parse(raw), parse(before) if before is not None else None
        if line is None:
            return _line(members(raw), genuine=None)
        genuine = previous is not None and self.keys.follows(previous.mac, line)
        return _line(members(raw), genuine=genuine or starts_anew(self.keys, line))

    def _verify(self, noted: ChainHead | None) -> Verdict:
        while True:
            files = files_of(self.folder)
            with suppress(FileNotFoundError):
                anchor = read_anchor(self.folder, self.keys)
                verdict = verify(((path.name, _lines(path)) for path in files), self.keys, anchor, noted)
                if files == files_of(self.folder):  # else a file was rotated meanwhile
                    return verdict


class Follow:
    """Yields new lines, also from later files. Call `more` at any time, and `close` at the end."""

    def __init__(self, trail: FileTrail) -> None:
        self._trail = trail
        self._before: bytes | None = None
        self._descriptor, self._offset, self._rest = -1, 0, b""
        self._number: int | None = None
        if self._open():
            self._offset = settled_size(self._descriptor)

    async def more(self) -> list[AuditLine]:
        """Return the lines since the last call. Raises `storeUnavailable`."""
        return await _apart(self._more)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _more(self) -> list[AuditLine]:
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

    def _open(self) -> bool:
        """Open the next file: the successor of the one just read, or the current one."""
        with suppress(FileNotFoundError):
            self._descriptor, self._offset, self._rest, self._before = open_to_read(self._next()), 0, b"", None
        return self._descriptor >= 0

    def _next(self) -> Path:
        folder, number = self._trail.folder, self._number
        return folder / (named(number) if number is not None and number in numbers(folder) else NAME)

    def _new_lines(self) -> list[AuditLine]:
        new = read(self._descriptor, self._offset, os.lseek(self._descriptor, 0, os.SEEK_END) - self._offset)
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        found = []
        for raw in lines:
            line = self._trail.judged(raw, self._before)
            self._before = raw
            if line is not None and line.type == "LogRotated":
                self._number = int(line.fields["to"]) + 1
            found += [line] if line is not None else []
        return found


def trail_of(writer: AuditWriter, name: Naming) -> AuditTrail:
    """Return the trail of this writer's log."""
    if isinstance(writer, AuditAnyway):
        return trail_of(writer.kept, name)
    if isinstance(writer, AuditFile):
        return FileTrail(writer.folder, writer.keys)
    return ListTrail(writer, name) if isinstance(writer, AuditList) else NoTrail(name)


def _sought(which: Which) -> Sought:
    """Parse the filter. Raises `requestInvalid` for an invalid app reference."""
    app, others = which.get("app"), {name: value for name, value in which.items() if name != "app"}
    return Sought(None if app is None else app_name(app), **others)  # type: ignore[arg-type]


def _line(found: Mapping[str, Any], *, genuine: bool | None) -> AuditLine | None:
    at, kind = found.get("at"), found.get("type")
    if not isinstance(at, str) or not isinstance(kind, str):
        return None
    fields = {name: value for name, value in found.items() if name not in _OURS}
    return AuditLine(found.get("seq"), at, kind, fields, genuine)


def _lines(path: Path) -> Iterator[bytes]:
    """Yield lines with their line breaks, in pieces of bounded size."""
    descriptor = open_to_read(path)
    left = settled_size(descriptor)
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)
        while left and (raw := file.readline(min(left, MOST_LINE))):
            left -= len(raw)
            yield raw


def _pairs(descriptor: int, end: int, most: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield (a line, the one before it), the newest first; None before the first line of a file."""
    position, floor = end, max(0, end - most)
    rest, whole = b"", False
    while position > floor:
        size = min(BLOCK, position - floor)
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


async def _apart(work: Callable[[], T]) -> T:
    """Run on a thread. Raises `storeUnavailable` if the disk cannot be read."""
    with suppress(OSError):
        return await asyncio.to_thread(work)
    raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log cannot be read")
