"""Copy a store's records to another backend, compare both, and cut over.

Records are copied as sealed: a store keeps its id, its keys and its names, so turn tokens, API keys, links and the
audit log stay valid. At every moment at most one of the two stores opens:

| step | source | target |
|---|---|---|
| copy, repeated as often as wanted | opens | arriving |
| close the source | closing | arriving |
| copy the rest, open and compare every record | closing | arriving |
| the target is complete | closed | arriving |
| cut-over | closed | opens |

Each step can be repeated after a crash: the same command goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator

from oauthbroker.core.clock import Clock, to_iso
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.progress import Count, Progress, unseen
from oauthbroker.store.format.seal import length_prefixed
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.keys.keyring_document import store_id_of
from oauthbroker.store.migration.raw import LAST, PAGE, RawRecord, RawStore, counted
from oauthbroker.store.posix.folders import check_whole
from oauthbroker.store.posix.migration_marker import MigrationMarker, MigrationState

_UNDER_WAY = (MigrationState.CLOSING, MigrationState.CLOSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedKind:
    """What a copy did for one kind. `digest` is SHA-256 over names, sealed records and tags, in the order of names."""

    kind: str
    records: int
    digest: str
    written: int = 0
    removed: int = 0


class RecordDigest:
    """The count and the digest of some records of a kind, which are added in the order of their names."""

    def __init__(self) -> None:
        self._records, self._digest = 0, hashlib.sha256()

    def add(self, found: RawRecord) -> None:
        tags = [f"{label} {value}".encode() for label, value in sorted(found.tags)]
        self._digest.update(length_prefixed(found.name.encode(), found.record, *tags))
        self._records += 1

    def of(self, kind: str, *, written: int = 0, removed: int = 0) -> CopiedKind:
        digest = self._digest.hexdigest()
        return CopiedKind(kind=kind, records=self._records, digest=digest, written=written, removed=removed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The result of a copy. `damaged` are the records that do not open, as `kind/first digits`: they were left out."""

    kinds: list[CopiedKind]
    damaged: list[str]
    cut_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """The move of a store. `ring` is the opened keyring of the source, `kinds` are all that this version knows."""

    source: RawStore
    target: RawStore
    ring: Keyring
    kinds: Collection[str]
    clock: Clock
    progress: Progress = unseen

    def copy(self) -> Copied:
        """Bring the target up to the source, which brokers may use meanwhile. Raises store codes."""
        self._begun()
        return self._all_copied()

    def cut_over(self, *, skip_damaged: bool = False) -> Copied:
        """Close the source, copy the rest, compare, and open the target. Raises `storeLocked` while a broker uses the
        source, `recordCorrupt` for records that do not open unless they are to be left behind, and store codes. Without
        kinds, the cut-over was complete before."""
        if self._is_done():
            return Copied(kinds=[], damaged=[], cut_over=True)
        arriving = self._begun()
        self._close(arriving)
        copied = self._all_copied()
        if copied.damaged and not skip_damaged:
            some = ", ".join(copied.damaged[:3])
            raise BrokerError(
                Code.RECORD_CORRUPT, note=f"{len(copied.damaged)} do not open ({some}): `--skip-damaged` leaves them"
            )
        count = counted(self.source, self.kinds, "records compared", self.progress)
        kinds = [self._compared(each, set(copied.damaged), count) for each in copied.kinds]
        closing = self.source.mark()
        if closing is not None and closing.state is MigrationState.CLOSING:
            self.source.set_mark(replace(closing, state=MigrationState.CLOSED), expect=closing)
        self.target.set_mark(None, expect=arriving)
        return Copied(kinds=kinds, damaged=copied.damaged, cut_over=True)

    def _is_done(self) -> bool:
        """Tell whether a cut-over to this target was complete, and brokers may work there."""
        mark, there = self.source.mark(), self.target.keyring()
        return (
            (mark is not None and mark.state is MigrationState.CLOSED and mark.there == self.target.word)
            and self.target.mark() is None
            and there is not None
            and store_id_of(there) == self.ring.store_id
        )

    def _begun(self) -> MigrationMarker:
        """Mark the target as arriving, unless it is, and give it the keyring. Return its mark."""
        mark, there = self._mark_of_target(), self.source.mark()
        if there is not None and (there.state not in _UNDER_WAY or mark is None or mark.move != there.move):
            raise there.refusal()
        if mark is None:
            before = self.target.mark()
            mark = self._mark(MigrationState.ARRIVING, self.clock.random_bytes(16).hex(), self.target, self.source)
            self.target.set_mark(mark, expect=before)
        document = self.source.keyring()
        if document is not None and document != self.target.keyring():
            self.target.put_keyring(document)
        return mark

    def _mark_of_target(self) -> MigrationMarker | None:
        """Return the mark of a copy that has begun, None where one may begin. Raises `keyExists` and `storeClosed`."""
        mark, document = self.target.mark(), self.target.keyring()
        if document is not None and store_id_of(document) != self.ring.store_id:
            raise BrokerError(Code.KEY_EXISTS, note=f"{self.target.word} has another store")
        if mark is None:
            if document is not None or self.target.kinds():
                raise BrokerError(Code.KEY_EXISTS, note=f"brokers use the store in {self.target.word}")
            return None
        if mark.state is MigrationState.ARRIVING and mark.there == self.source.word:
            return mark
        if mark.state is MigrationState.CLOSED and self.source.mark() is None:
            return None  # the way back
        raise mark.refusal()

    def _close(self, arriving: MigrationMarker) -> None:
        """Close the source, so that no broker opens it. One that has it open is reported to the caller first."""
        if self.source.mark() is not None:
            return
        self._check_unused()
        closing = self._mark(MigrationState.CLOSING, arriving.move, self.source, self.target)
        self.source.set_mark(closing, expect=None)
        try:
            self._check_unused()
        except BrokerError:
            self.source.set_mark(None, expect=closing)
            raise

    def _check_unused(self) -> None:
        if count := self.source.users():
            raise BrokerError(Code.STORE_LOCKED, note=f"brokers use {self.source.word} ({count}): stop them first")

    def _mark(self, state: MigrationState, move: str, here: RawStore, there: RawStore) -> MigrationMarker:
        return MigrationMarker(move=move, state=state, here=here.word, there=there.word, at=to_iso(self.clock.now()))

    def _all_copied(self) -> Copied:
        check_whole(self.source.missing(self.kinds))
        strange = self.source.kinds() - set(self.kinds)
        if strange:
            note = f"a newer oauthbroker wrote {', '.join(sorted(strange))}: copy with that version"
            raise BrokerError(Code.KEY_MISMATCH, note=note)
        damaged, count = list[str](), counted(self.source, self.kinds, "records copied", self.progress)
        return Copied(kinds=[self._copied(kind, damaged, count) for kind in self.kinds], damaged=damaged)

    def _copied(self, kind: str, damaged: list[str], count: Count) -> CopiedKind:
        digest, written, removed = RecordDigest(), 0, 0
        for page, there in self._pages(kind):
            known, whole = {each.name: each for each in there}, list[RawRecord]()
            for each in page:
                if each == known.get(each.name) or opens(self.ring, kind, each, self.kinds):
                    whole.append(each)
                    digest.add(each)
                else:
                    damaged.append(place_of(kind, each))
            changed = [each for each in whole if each != known.get(each.name)]
            gone = known.keys() - {each.name for each in whole}
            if changed:
                self.target.write(kind, changed)
            if gone:
                self.target.remove(kind, sorted(gone))
            written, removed = written + len(changed), removed + len(gone)
            count.add(len(page))
        return digest.of(kind, written=written, removed=removed)

    def _compared(self, copied: CopiedKind, damaged: Collection[str], count: Count) -> CopiedKind:
        """Open every record of the target and compare it with the source. Raises `recordCorrupt`."""
        digest = RecordDigest()
        for page, there in self._pages(copied.kind):
            whole = [each for each in page if place_of(copied.kind, each) not in damaged]
            if whole != there or not all(opens(self.ring, copied.kind, each, self.kinds) for each in there):
                raise BrokerError(Code.RECORD_CORRUPT, note=f"the copy of {copied.kind} is not equal: copy again")
            for each in there:
                digest.add(each)
            count.add(len(page))
        return digest.of(copied.kind, written=copied.written, removed=copied.removed)

    def _pages(self, kind: str) -> Iterator[tuple[list[RawRecord], list[RawRecord]]]:
        """Yield the records of both stores between the same names."""
        after = ""
        while True:
            page = self.source.records(kind, after, limit=PAGE)
            last = page[-1].name if len(page) == PAGE else LAST
            yield page, self.target.records(kind, after, upto=last)
            if last == LAST:
                return
            after = last


def reopen(store: RawStore, *, abandon: bool) -> bool:
    """Make a store that was closed by a move open again. False if it was not closed.

    With `abandon`, also one that has been replaced: the caller says that the other store is never used again. Raises
    `storeClosed` for a store that holds a copy.
    """
    mark = store.mark()
    if mark is None:
        return False
    if mark.state is MigrationState.CLOSING or (mark.state is MigrationState.CLOSED and abandon):
        store.set_mark(None, expect=mark)
        return True
    raise mark.refusal()


def opens(ring: Keyring, kind: str, found: RawRecord, kinds: Collection[str]) -> bool:
    return body_of(ring, kind, found, kinds) is not None


def body_of(ring: Keyring, kind: str, found: RawRecord, kinds: Collection[str]) -> bytes | None:
    """Return the body of a record, None for one that does not open here."""
    try:
        return ring.unseal(kind, found.name, found.record, kinds=kinds)[1]
    except BrokerError:
        return None


def place_of(kind: str, found: RawRecord) -> str:
    return f"{kind}/{found.name[:16]}"
