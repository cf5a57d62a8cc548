"""The archive of a store: its sealed records, tags and keyring as lines of JSON (docs/how-to/backup-and-restore.md).

Importing an archive makes a restored store: it has the id and the keys of the store that was exported, and does not
open for brokers until an operator accepts it.
"""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from oauthbroker.core.clock import Clock, to_iso
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.progress import Count, Progress, unseen
from oauthbroker.core.refused import Refused
from oauthbroker.core.strict_json import json_object
from oauthbroker.store.format.entry_names import is_name
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.migration.copying import CopiedKind, RecordDigest, opens, place_of
from oauthbroker.store.migration.raw import PAGE, RawRecord, RawStore, counted, records_of
from oauthbroker.store.posix.folders import check_whole
from oauthbroker.store.posix.migration_marker import MigrationMarker, MigrationState

FORMAT: Final = "oab-archive-1"
_LAST_KINDS: Final = ("queues", "events")  # an event that moves meanwhile comes twice rather than never
_LABEL, _VALUE = re.compile(r"[A-Za-z]{1,32}"), re.compile(r"[0-9a-f]{32}")
_MOST_LINE: Final = 16 * 1024 * 1024
DAMAGED: Final = "The archive is damaged or cut off. Nothing was opened: use another archive."


@dataclass(frozen=True, slots=True)
class ArchiveHead:
    """The first line of an archive: its random id, its time, and the keyring's document."""

    id: str
    at: str
    keyring: bytes


class KeysChangedError(BrokerError):
    """The keyring was changed during an export: its records may be sealed with seeds that the archive lacks."""

    def __init__(self) -> None:
        note = "the keys of the store were changed during each try: export again after the rotation"
        super().__init__(Code.STORE_LOCKED, note=note)


@dataclass(slots=True, kw_only=True)
class Export:
    """The archive of a store that brokers may use meanwhile. `document` is its keyring, which `ring` opened.

    `kinds` and `damaged`, the records that do not open and are left out, are complete when `lines` has ended.
    """

    store: RawStore
    document: bytes
    ring: Keyring
    known: Collection[str]
    clock: Clock
    progress: Progress = unseen
    kinds: list[CopiedKind] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the archive. Raises KeysChangedError, and store codes."""
        if (mark := self.store.mark()) is not None:
            raise mark.refusal()
        check_whole(self.store.missing(self.known))
        id_, at = self.clock.random_bytes(16).hex(), to_iso(self.clock.now())
        yield _line({"format": FORMAT, "archive": id_, "at": at, "keyring": self.document.decode()})
        count = counted(self.store, self.known, "records exported", self.progress)
        for kind in sorted(self.known, key=lambda kind: (kind in _LAST_KINDS, kind == _LAST_KINDS[-1])):
            yield from self._lines_of(kind, count)
        if self.store.keyring() != self.document:
            raise KeysChangedError
        yield _line({"kinds": {each.kind: [each.records, each.digest] for each in self.kinds}})

    def _lines_of(self, kind: str, count: Count) -> Iterator[bytes]:
        digest = RecordDigest()
        for each in records_of(self.store, kind, count):
            if not opens(self.ring, kind, each, self.known):
                self.damaged.append(place_of(kind, each))
                continue
            digest.add(each)
            record = base64.b64encode(each.record).decode()
            yield _line({"kind": kind, "name": each.name, "record": record, "tags": sorted(each.tags)})
        self.kinds.append(digest.of(kind))


@dataclass(slots=True, kw_only=True)
class ArchiveReader:
    """Reads an archive from pieces of its text, and calls `begun` with its head and `found` with some records of one
    kind. `kinds`, with counts and digests, is None until the last line has come.

    Every caller can encrypt to a recipient, so nothing of a line is used before its shape is checked."""

    known: Collection[str]
    begun: Callable[[ArchiveHead], None]
    found: Callable[[str, list[RawRecord]], None]
    kinds: Mapping[str, list[Any]] | None = None
    _rest: bytearray = field(default_factory=bytearray)
    _is_begun: bool = False
    _kind: str = ""
    _records: list[RawRecord] = field(default_factory=list)

    def write(self, piece: bytes) -> int:
        """Take a piece. Raises Refused for a text that is no archive, and what the two calls raise."""
        self._rest += piece
        if len(self._rest) > _MOST_LINE:
            raise Refused(DAMAGED)
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        for line in lines:
            self._take(_parsed(line))
        return len(piece)

    def flush(self) -> None:
        """Do nothing: records are handed on by `write`."""

    def _take(self, line: dict[str, Any]) -> None:
        try:
            if not self._is_begun:
                self._is_begun = True
                self.begun(_head(line))
            elif "kinds" in line:
                self._hand_on()
                self.kinds = line["kinds"]
            else:
                if line["kind"] not in self.known:
                    raise Refused(_newer(line["kind"]))
                self._add(line["kind"], _record(line))
        except (KeyError, TypeError, ValueError):
            pass
        else:
            return
        raise Refused(DAMAGED)

    def _add(self, kind: str, record: RawRecord) -> None:
        if kind != self._kind or len(self._records) >= PAGE:
            self._hand_on()
        self._kind = kind
        self._records.append(record)

    def _hand_on(self) -> None:
        if self._records:
            self.found(self._kind, self._records)
        self._records = []


Read = Callable[[ArchiveReader], None]
"""Give a reader the text of the archive from its beginning."""


@dataclass(slots=True, kw_only=True)
class Import:
    """Makes a restored store of an archive, in an empty place. `opened` opens a keyring with the operator's key."""

    target: RawStore
    opened: Callable[[bytes], Keyring]
    known: Collection[str]
    clock: Clock
    progress: Progress = unseen

    def run(self, read: Read) -> list[CopiedKind]:
        """Open every record of the archive, then write all of them, then compare the target with them.

        A damaged archive changes nothing. After a crash, the same archive goes on. Raises `keyExists` for a place that
        is not empty, Refused for an archive that cannot be used, and store codes.
        """
        head, kinds = self._checked(read)
        mark = self.target.mark()
        if mark is None:
            mark = self._mark(MigrationState.IMPORTING, head)
            self.target.set_mark(mark, expect=None)
        if mark.state is MigrationState.IMPORTING:
            if self.target.keyring() != head.keyring:
                self.target.put_keyring(head.keyring)
            read(ArchiveReader(known=self.known, begun=lambda _: None, found=self.target.write))
        count = counted(self.target, self.known, "records compared", self.progress)
        compared = [self._compared(kind, kinds, count) for kind in self.known]
        if mark.state is MigrationState.IMPORTING:
            self.target.set_mark(self._mark(MigrationState.RESTORED, head), expect=mark)
        return compared

    def _checked(self, read: Read) -> tuple[ArchiveHead, dict[str, CopiedKind]]:
        heads, rings, found = list[ArchiveHead](), list[Keyring](), defaultdict[str, RecordDigest](RecordDigest)

        def begun(head: ArchiveHead) -> None:
            self._check_place(head)
            heads.append(head)
            rings.append(self.opened(head.keyring))

        def check(kind: str, records: list[RawRecord]) -> None:
            for each in records:
                if not opens(rings[0], kind, each, self.known):
                    raise Refused(DAMAGED)
                found[kind].add(each)

        reader = ArchiveReader(known=self.known, begun=begun, found=check)
        read(reader)
        kinds = {kind: digest.of(kind) for kind, digest in found.items()}
        wanted = {kind: (n, digest) for kind, (n, digest) in (reader.kinds or {}).items() if n}
        if reader.kinds is None or wanted != {kind: (it.records, it.digest) for kind, it in kinds.items()}:
            raise Refused(DAMAGED)
        return heads[0], kinds

    def _check_place(self, head: ArchiveHead) -> None:
        mark = self.target.mark()
        if mark is None:
            if self.target.keyring() is not None or self.target.kinds():
                raise BrokerError(Code.KEY_EXISTS, note=f"{self.target.word} is not empty: import into an empty place")
        elif mark.move != head.id or mark.state not in {MigrationState.IMPORTING, MigrationState.RESTORED}:
            raise mark.refusal()

    def _compared(self, kind: str, kinds: Mapping[str, CopiedKind], count: Count) -> CopiedKind:
        """Compare the records of a kind in the target with those that were opened. Raises `recordCorrupt`."""
        digest = RecordDigest()
        for each in records_of(self.target, kind, count):
            digest.add(each)
        found = digest.of(kind)
        if found != kinds.get(kind, RecordDigest().of(kind)):
            note = f"{kind} are not those of the archive: empty {self.target.word} and import again"
            raise BrokerError(Code.RECORD_CORRUPT, note=note)
        return found

    def _mark(self, state: MigrationState, head: ArchiveHead) -> MigrationMarker:
        at = to_iso(self.clock.now())
        return MigrationMarker(move=head.id, state=state, here=self.target.word, there=head.at, at=at)


def _head(line: dict[str, Any]) -> ArchiveHead:
    if line["format"] != FORMAT:
        raise Refused(_newer(str(line["format"])))
    head = ArchiveHead(line["archive"], line["at"], line["keyring"].encode())
    if not isinstance(head.id, str) or not isinstance(head.at, str):
        raise TypeError
    return head


def _record(line: dict[str, Any]) -> RawRecord:
    tags = frozenset((label, value) for label, value in line["tags"])
    if not is_name(line["name"]) or not all(
        _LABEL.fullmatch(label) and _VALUE.fullmatch(value) for label, value in tags
    ):
        raise ValueError
    return RawRecord(line["name"], base64.b64decode(line["record"], validate=True), tags)


def _newer(what: str) -> str:
    return f"A newer oauthbroker wrote this archive ({what[:40]!r} is unknown here). Import it with that version."


def _parsed(line: bytes | bytearray) -> dict[str, Any]:
    found = json_object(line)
    if found is None:
        raise Refused(DAMAGED)
    return found


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
