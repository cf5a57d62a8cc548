"""A store as raw records: sealed bytes under keyed names, with tags, and the marker of a migration. For commands
only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from oauthbroker.core.progress import Count, Progress
from oauthbroker.store.keys.keyring_document import keyring_missing
from oauthbroker.store.posix.migration_marker import MigrationMarker

LAST: Final = "g"  # behind every name, which is hexadecimal
PAGE: Final = 256  # records that are read and written at a time


class RawRecord(NamedTuple):
    """One sealed record. `tags` are pairs of a label and a value of 32 hex digits."""

    name: str
    record: bytes
    tags: frozenset[tuple[str, str]]


class RawStore(Protocol):
    """The records of one store. Blocks its thread. Every method may raise `BrokerError` with a store code.

    One process at a time has it: another one's attempt raises `storeLocked`. `word` is how a command names it.
    """

    word: str

    def keyring(self) -> bytes | None:
        """Return the keyring's document, None for a place without a store."""
        ...

    def put_keyring(self, document: bytes) -> None:
        """Keep the keyring, durably, in place of the one that is there."""
        ...

    def mark(self) -> MigrationMarker | None: ...

    def set_mark(self, mark: MigrationMarker | None, *, expect: MigrationMarker | None) -> None:
        """Replace the mark, durably. From then on no broker opens a marked store. Raises `storeLocked` if the mark is
        not the expected one."""
        ...

    def users(self) -> int:
        """Count the living processes and connections of brokers that have the store open."""
        ...

    def kinds(self) -> set[str]:
        """Return the kinds that have records."""
        ...

    def records(self, kind: str, after: str = "", *, upto: str = LAST, limit: int | None = None) -> list[RawRecord]:
        """Return records in the order of their names, those behind `after` and not behind `upto`."""
        ...

    def missing(self, kinds: Collection[str]) -> list[str]:
        """Return those of these kinds whose place is lost."""
        ...

    def count(self, kind: str) -> int:
        """Count the records of a kind, about: brokers may be writing."""
        ...

    def write(self, kind: str, records: Collection[RawRecord]) -> None:
        """Write records with exactly these tags, durably, over those of the same names."""
        ...

    def remove(self, kind: str, names: Iterable[str]) -> None:
        """Remove records and their tags, durably."""
        ...

    def loose_tags(self, kind: str) -> int:
        """Count the tags of entries that are gone. Few are what a crash leaves."""
        ...

    def close(self) -> None: ...


def document_of(store: RawStore) -> bytes | None:
    """Return the keyring's document, None for a place without a store. Raises `keyUnknown` where only it is missing."""
    document = store.keyring()
    if document is None and store.kinds():
        raise keyring_missing(f"store: {store.word}")
    return document


def counted(store: RawStore, kinds: Collection[str], what: str, report: Progress) -> Count:
    """Return a count of all records of these kinds."""
    return Count(what, sum(map(store.count, kinds)), report)


def records_of(store: RawStore, kind: str, count: Count | None = None) -> Iterator[RawRecord]:
    """Yield all records of a kind in the order of their names, and add them to a count."""
    after = ""
    while page := store.records(kind, after, limit=PAGE):
        if count is not None:
            count.add(len(page))
        yield from page
        after = page[-1].name
