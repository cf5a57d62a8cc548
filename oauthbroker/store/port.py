"""The door between the two houses: sealed bytes by key, and not one OAuth word.

A backend keeps *entries*. An entry is a body of bytes under a `Key`, with a generation that grows by one
at every write, so that a writer who read an older one is refused. Whoever implements this port passes
the contract suite in `tests/contract/test_store.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from oauthbroker.errors import BrokerError, Code


@dataclass(frozen=True, slots=True)
class Key:
    """Where an entry lives: a kind (the folder) and a keyed hash, 64 hex digits, that tells nobody what it names."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of one entry, opened. `stamp` is the backend's own mark of that version."""

    key: Key
    generation: int
    body: bytes
    stamp: object = None

    def without_body(self) -> Entry:
        """The same version, for whoever keeps it only to ask `Store.unchanged`."""
        return replace(self, body=b"")

    def __repr__(self) -> str:
        return f"Entry({self.key.kind}/{self.key.name[:8]}, generation={self.generation}, {len(self.body)} bytes)"


@dataclass(slots=True)
class Room:
    """Space taken for the next version of one entry. `held` is the backend's own, None once it is used up."""

    key: Key
    held: object = None

    def __repr__(self) -> str:
        return f"Room({self.key.kind}/{self.key.name[:8]}, {'free' if self.held is not None else 'used up'})"


class Conflict(BrokerError):
    """Another writer was first: the generation is not the expected one. Read again and decide again.

    To a caller that does not, it is a store that is busy: `storeLocked`, which may be tried again.
    """

    def __init__(self, code: Code = Code.STORE_LOCKED) -> None:
        super().__init__(code, note="another writer was first")


class Store(Protocol):
    """Eight verbs and three questions. Every method may raise `BrokerError` with a store code."""

    def key(self, kind: str, *parts: str) -> Key:
        """The key of (kind, parts): HMAC-SHA256 over length-prefixed parts. Raises ValueError for an unknown kind."""
        ...

    def mac(self, label: str, *parts: str) -> bytes:
        """32 bytes that only brokers with this store's keyring can make; one independent key per label."""
        ...

    async def get(self, key: Key) -> Entry | None:
        """The newest version, or None. Takes no lock."""
        ...

    def unchanged(self, entry: Entry) -> bool:
        """Whether `entry` is surely still the newest version, with its body or without. Cheap and synchronous; False
        when in doubt."""
        ...

    async def put(self, key: Key, body: bytes, *, expect: int, room: Room | None = None) -> Entry:
        """Writes durably, then returns the entry as it is now. `expect` is the generation the caller saw, 0 for
        an entry that must not exist yet; anything else raises `Conflict` and changes nothing. `room` from `reserve`
        is used up by this, whatever comes of it."""
        ...

    def reserve(self, key: Key, size: int) -> AbstractAsyncContextManager[Room]:
        """Takes room for a body of `size` bytes before anything depends on writing it: a full disk, or one that
        cannot be written, is noticed here. Whatever of it is not used is given back."""
        ...

    async def delete(self, key: Key, *, expect: int) -> None:
        """Removes durably. Raises `Conflict` when the generation moved; deleting what is not there is a Conflict."""
        ...

    async def sync(self, kind: str) -> None:
        """Makes durable what lies there of a kind, written by any process. For an answer that stands on a write which
        was found done: that one's own sync may have failed."""
        ...

    def scan(self, kind: str) -> AsyncIterator[Entry]:
        """Every readable entry of a kind, in no order. One damaged entry never hides the others."""
        ...

    async def count(self, kind: str) -> int:
        """How many entries a kind has, without opening them."""
        ...

    def lease(self, key: Key, *, wait: float) -> AbstractAsyncContextManager[None]:
        """Mutual exclusion across tasks, processes and threads on one lock named by `key`, for at most `wait`
        seconds of waiting, then `storeLocked`. Holding it does not block `put`."""
        ...

    async def close(self) -> None:
        """Waits for running writes, then lets go of everything."""
        ...
