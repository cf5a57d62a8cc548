"""Verify a store: open every record, and compare its name and its tags with its content."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.progress import Count, Progress, unseen
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.migration.copying import CopiedKind, RecordDigest, body_of, place_of
from oauthbroker.store.migration.raw import RawRecord, RawStore, counted, records_of


class Expected(NamedTuple):
    """The name that a record's content gives it, None for a kind that has none, and its tags."""

    name: str | None
    tags: frozenset[tuple[str, str]] = frozenset()


_MARKERS: Final = "due"
_MARKED: Final = {"grants", "sessions"}
_OF_A_CRASH: Final = 256  # tags or markers: 64 records change at once, under their locks, and few have more than four
Describe = Callable[[Keyring, str, bytes], Expected | None]
"""Return what a body of a kind expects, None for a body that is no record of this schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedStore:
    """The result: counts and digests, faults as (`kind/first digits` of a record, or a kind, and the fault), and
    harmless leftovers."""

    kinds: list[CopiedKind]
    faults: list[tuple[str, str]]
    leftovers: list[tuple[str, str]]


def verify(
    store: RawStore, ring: Keyring, kinds: Collection[str], describe: Describe, progress: Progress = unseen
) -> VerifiedStore:
    """Read every record, and those of a kind with a fault once more: a broker may be writing."""
    found, marked = VerifiedStore(kinds=[], faults=[], leftovers=[]), set[str]()
    found.faults.extend((kind, "its folder is missing") for kind in store.missing(kinds))
    count = counted(store, kinds, "records verified", progress)
    for kind in sorted(kinds, key=lambda kind: kind != _MARKERS):  # before the records that they lead to
        copied, faults = _look(store, ring, kind, kinds, describe, count, marked)
        again = _look(store, ring, kind, kinds, describe, None, set())[1] if faults else {}
        found.faults.extend((place, what) for place, what in faults.items() if place in again)
        found.kinds.append(copied)
        _note_left(found, kind, store.loose_tags(kind), "tags")
    order = list(kinds).index
    found.kinds.sort(key=lambda each: order(each.kind))
    found.leftovers.sort(key=lambda each: order(each[0]))
    _note_left(found, _MARKERS, len(marked), "markers")
    return found


def _note_left(found: VerifiedStore, kind: str, count: int, what: str) -> None:
    """Note the remains of records that are gone: more than a crash leaves are lost records."""
    if count:
        text = f"{count} {what} of records that are gone"
        place = found.faults if count > _OF_A_CRASH else found.leftovers
        place.append((kind, text))


def _look(
    store: RawStore,
    ring: Keyring,
    kind: str,
    kinds: Collection[str],
    describe: Describe,
    count: Count | None,
    marked: set[str],
) -> tuple[CopiedKind, dict[str, str]]:
    """Read the records of a kind, and return their digest, and their faults by place. Adds the names of markers to
    `marked`, and takes those away that lead here."""
    digest, faults = RecordDigest(), dict[str, str]()
    for each in records_of(store, kind, count):
        if kind == _MARKERS:
            marked.add(each.name)
        elif kind in _MARKED:
            marked.discard(each.name)
        digest.add(each)
        if what := _fault(ring, kind, each, kinds, describe):
            faults[place_of(kind, each)] = what
    return digest.of(kind), faults


def _fault(ring: Keyring, kind: str, found: RawRecord, kinds: Collection[str], describe: Describe) -> str:
    body = body_of(ring, kind, found, kinds)
    if body is None:
        return "does not open"
    expected = describe(ring, kind, body)
    if expected is None:
        return "is no record of this version"
    if expected.name not in {None, found.name}:
        return "has the name of another record"
    return "lacks a tag" if expected.tags - found.tags else ""
