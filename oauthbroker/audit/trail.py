"""Reading the audit log: its newest lines, for the admin page and `oauthbroker audit`, and whether it is sound."""

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

from oauthbroker.audit.anchor import read_anchor
from oauthbroker.audit.chain import MOST_LINE, AuditKeys, Head, members, parse, starts_anew
from oauthbroker.audit.entries import AuditList, AuditWriter, Naming, rest_of
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.folder import NAME, files_of, is_named, named, numbers, open_to_read, read, settled_size
from oauthbroker.audit.gap import AuditAnyway
from oauthbroker.audit.verify import Verdict, verify
from oauthbroker.clock import from_iso, to_iso
from oauthbroker.errors import BrokerError, Code
from oauthbroker.token_request import AppRef, app_name

T = TypeVar("T")
BLOCK = 256 * 1024
MOST_READ = 64 * 1024 * 1024  # bytes that are looked through for lines that somebody asked for
_OURS = frozenset({"seq", "at", "type", "mac"})


class Which(TypedDict, total=False):
    """How a caller says what it wants; a member that is left out, or None, stands for all."""

    app: AppRef | None
    type: str | None
    grant: str | None
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Sought:
    """Which lines a reader wants; None stands for all. `grant` is a keyed name, `since` and `until` are included."""

    app: str | None = None
    type: str | None = None
    grant: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def spans(self, at: str) -> bool:
        """Whether the moment of a line lies between the two. One that cannot be read lies nowhere."""
        if self.since is None and self.until is None:
            return True
        try:
            moment = from_iso(at)
        except ValueError:
            return False
        return (self.since is None or self.since <= moment) and (self.until is None or moment <= self.until)


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One entry as it stands in the log. `fields` are the entry's own members, grants and conversations by keyed names
    (`AuditTrail.name`). `genuine`: its MAC follows the line before; None for a line of an old log, which has none."""

    seq: int | None
    at: str
    type: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    genuine: bool | None = True

    @property
    def grant(self) -> str | None:
        """The keyed name of the grant that it speaks of, also as what somebody did something to."""
        named = (self.fields.get("grant"), self.fields.get("target"))
        return next((name for name in named if isinstance(name, str) and name.startswith("grant-")), None)

    def fits(self, sought: Sought) -> bool:
        if sought.app not in {None, self.fields.get("app")} or sought.type not in {None, self.type}:
            return False
        return sought.grant in {None, self.grant} and sought.spans(self.at)

    def to_json(self) -> dict[str, Any]:
        return {"seq": self.seq, "at": self.at, "type": self.type, **self.fields, "genuine": self.genuine}


class AuditTrail(Protocol):
    """`broker.audit_trail`: the log, to be read."""

    async def tail(self, n: int, **which: Unpack[Which]) -> list[AuditLine]:
        """The newest `n` lines that fit, the newest last. `grant` is a keyed name (`name("grant", ...)`), `since` and
        `until` are included; `app` in any form of a reference. Looks through 64 MiB. Raises `storeUnavailable`, and
        `requestInvalid` for what names no app."""
        ...

    def name(self, kind: str, value: str) -> str:
        """What the log calls it: `name("grant", grantId)`, `name("instance", instanceKey)`."""
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
    """An embedding runtime keeps the entries itself: it knows where."""

    name: Naming

    async def tail(self, n: int, **which: Unpack[Which]) -> list[AuditLine]:  # noqa: ARG002
        return []


@dataclass(frozen=True, slots=True)
class FileTrail:
    """The trail of a log on disk. Needs the store's keys and no broker, and writes nothing."""

    folder: Path
    keys: AuditKeys

    @property
    def name(self) -> Naming:
        return self.keys.name

    async def tail(self, n: int, **which: Unpack[Which]) -> list[AuditLine]:
        return await _apart(partial(self._tail, n, _sought(which)))

    async def verify(self, noted: Head | None = None) -> Verdict:
        """Reads the whole log: some seconds for a million lines. `noted`: a line that must be there."""
        return await _apart(partial(self._verify, noted))

    def follow(self) -> Follow:
        """From the log's end on."""
        return Follow(self)

    def _tail(self, n: int, sought: Sought) -> list[AuditLine]:
        fitting = (line for line in self._backwards() if line.fits(sought))
        return [*islice(fitting, n)][::-1]

    def _backwards(self) -> Iterator[AuditLine]:
        """Every line, the newest first, as far as we look."""
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
        """A line with its MAC looked at; None for what is none."""
        line, previous = parse(raw), parse(before) if before is not None else None
        if line is None:
            return _line(members(raw), genuine=None)
        genuine = previous is not None and self.keys.follows(previous.mac, line)
        return _line(members(raw), genuine=genuine or starts_anew(self.keys, line))

    def _verify(self, noted: Head | None) -> Verdict:
        while True:
            files = files_of(self.folder)
            with suppress(FileNotFoundError):
                anchor = read_anchor(self.folder, self.keys)
                verdict = verify(((path.name, _lines(path)) for path in files), self.keys, anchor, noted)
                if files == files_of(self.folder):  # else a file was rotated under our eyes
                    return verdict


class Follow:
    """The lines that come, also those of the files to come. Ask as often as you like; close it afterwards."""

    def __init__(self, trail: FileTrail) -> None:
        self._trail = trail
        self._before: bytes | None = None
        self._descriptor, self._offset, self._rest = -1, 0, b""
        self._number: int | None = None
        if self._open():
            self._offset = settled_size(self._descriptor)

    async def more(self) -> list[AuditLine]:
        """The lines since the last call. Raises `storeUnavailable`."""
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
            found += self._new_lines()  # what came before it was rotated
            self.close()
            if not self._open():
                break
            found += self._new_lines()
        return found

    def _open(self) -> bool:
        """The next file: the one after the one we have read, or the one that bears the name."""
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
    """The trail of what this writer writes."""
    if isinstance(writer, AuditAnyway):
        return trail_of(writer.kept, name)
    if isinstance(writer, AuditFile):
        return FileTrail(writer.folder, writer.keys)
    return ListTrail(writer, name) if isinstance(writer, AuditList) else NoTrail(name)


def _sought(which: Which) -> Sought:
    """Raises `requestInvalid` for what names no app."""
    app, others = which.get("app"), {name: value for name, value in which.items() if name != "app"}
    return Sought(None if app is None else app_name(app), **others)  # type: ignore[arg-type]


def _line(found: Mapping[str, Any], *, genuine: bool | None) -> AuditLine | None:
    at, kind = found.get("at"), found.get("type")
    if not isinstance(at, str) or not isinstance(kind, str):
        return None
    fields = {name: value for name, value in found.items() if name not in _OURS}
    return AuditLine(found.get("seq"), at, kind, fields, genuine)


def _lines(path: Path) -> Iterator[bytes]:
    """Lines with their line breaks, in pieces of a sane size."""
    descriptor = open_to_read(path)
    left = settled_size(descriptor)
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)
        while left and (raw := file.readline(min(left, MOST_LINE))):
            left -= len(raw)
            yield raw


def _pairs(descriptor: int, end: int, most: int) -> Iterator[tuple[bytes, bytes | None]]:
    """(a line, the one before it), the newest first; None before the first line of a file."""
    position, floor = end, max(0, end - most)
    rest, whole = b"", False
    while position > floor:
        size = min(BLOCK, position - floor)
        position -= size
        rest = read(descriptor, position, size) + rest
        if not whole:  # what has no line break is no line yet
            rest = rest[: rest.rfind(b"\n") + 1] or rest
            whole = rest.endswith(b"\n")
        lines = rest[:-1].split(b"\n") if whole else []
        kept = 2 if position else 0  # the first may be half a line, and so what is before the second is not known
        for at in range(len(lines) - 1, kept - 1, -1):
            yield lines[at], lines[at - 1] if at else None
        rest = b"".join(line + b"\n" for line in lines[:kept]) if whole else rest


async def _apart(work: Callable[[], T]) -> T:
    """On a thread. Raises `storeUnavailable` for a disk that cannot be read."""
    with suppress(OSError):
        return await asyncio.to_thread(work)
    raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log cannot be read")
