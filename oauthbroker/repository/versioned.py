"""What was read out of the store: a record with the version it was read as, checked; and the grants kept in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from oauthbroker.errors import BrokerError, Code
from oauthbroker.records import Grant, codec
from oauthbroker.store.port import Entry, Key, Store

CACHED_BYTES = 4 * 1024 * 1024  # as they are stored; with what is made of them, memory holds up to four times as much

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Held(Generic[R]):
    """A record and the version it was read as."""

    record: R
    entry: Entry

    @property
    def generation(self) -> int:
        return self.entry.generation


@dataclass(frozen=True, slots=True)
class Due:
    """A record that has something left to do: an event to queue, or a provider to tell."""

    marker: Entry
    key: Key
    app: str
    subject: str


class GrantCache:
    """The grants that were read or written last, as far as their bytes have room. `get` is by (app, subject)."""

    __slots__ = ("_bytes", "_kept", "get")

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Held[Grant]] = OrderedDict()
        self._bytes = 0
        self.get = self._kept.get  # no call of our own on the way of a warm token

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, held: Held[Grant]) -> Held[Grant]:
        pair = (held.record.app, held.record.subject)
        before = self._kept.pop(pair, None)
        self._kept[pair] = held
        self._bytes += len(held.entry.body) - (len(before.entry.body) if before is not None else 0)
        while self._bytes > CACHED_BYTES:
            self._bytes -= len(self._kept.popitem(last=False)[1].entry.body)
        return held

    def drop(self, app: str, subject: str) -> None:
        """Read the pair's grant anew the next time."""
        dropped = self._kept.pop((app, subject), None)
        self._bytes -= len(dropped.entry.body) if dropped is not None else 0

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0


def opened(read: Callable[[bytes], R], entry: Entry) -> R:
    """A record out of its plaintext. Raises `recordCorrupt` from here, so that no frame which held the plaintext
    hangs on the error: whoever reports errors may print the values of locals too."""
    with suppress(BrokerError, ValueError, LookupError, TypeError, AttributeError):
        return read(entry.body)
    raise BrokerError(Code.RECORD_CORRUPT, note=f"{entry.key.kind}: not a record of this schema")


def in_place(entry: Entry, expected: Key) -> None:
    """The seal binds a body to its file's name; this binds the name to what the plaintext says. Raises
    `recordMisplaced`."""
    if entry.key != expected:
        raise BrokerError(Code.RECORD_MISPLACED)


async def replaceable(
    store: Store, key: Key, read: Callable[[Entry], R], on_damage: Callable[[str, Code], None]
) -> tuple[R | None, int]:
    """What lies under the key, and the generation that its next version follows. For records that others can make up
    for: what is damaged is reported and counts as missing, so that a new one is written over it. The other reasons why
    a record cannot be read are raised."""
    generation = 0  # that of a record whose seal is broken, once the store has kept it aside
    try:
        entry = await store.get(key)
        generation = entry.generation if entry is not None else 0
        return (read(entry) if entry is not None else None), generation
    except BrokerError as error:
        if error.code is not Code.RECORD_CORRUPT:
            raise
        on_damage(f"{key.kind}/{key.name[:8]}", error.code)
    return None, generation


def due_in(entry: Entry) -> Due:
    spec = opened(_due_spec, entry)
    return Due(entry, Key(spec["kind"], entry.key.name), spec["app"], spec["subject"])


def _due_spec(body: bytes) -> dict[str, str]:
    spec = codec.decode("DueMarker", body)["spec"]
    return {name: str(spec[name]) for name in ("kind", "app", "subject")}


def waiting_in(body: bytes) -> tuple[str, str, list[str]]:
    """(app, subject, the locators of sessions)."""
    spec = codec.decode("WaitingList", body)["spec"]
    return spec["app"], spec["subject"], list(spec["sessions"])


def secret_in(body: bytes) -> dict[str, Any]:
    """`name` and `data` of a Secret entry."""
    spec: dict[str, Any] = codec.decode("Secret", body)["spec"]
    return spec
