"""The store port: sealed bytes by key. It knows nothing of OAuth.

A backend keeps *entries*. An entry is a body of bytes under a `Key`, with a generation that grows by one at every
write, so that a writer with an older generation is refused. Every backend must pass the contract suite in
`tests/contract/store_contract.py`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple, Protocol, runtime_checkable

from oauthbroker.core.dataclasses import KW_ONLY, dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier


class Key(NamedTuple):
    """The place of an entry: a kind (the folder) and a keyed hash (64 hex digits), a pseudonym without the store's
    key."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Tag:
    """A property of entries of one kind by which they are found. `value` is a keyed hash (32 hex digits), a pseudonym
    without the store's key; equal values show that entries have something in common."""

    kind: str
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of one entry, opened. `stamp` is the backend's own mark of that version."""

    key: Key
    generation: int
    body: bytes
    _: KW_ONLY
    stamp: object = None

    def without_body(self) -> Entry:
        """Return the version without its body, for a caller that only asks `Store.unchanged`."""
        return Entry(self.key, self.generation, b"", stamp=self.stamp)

    def __repr__(self) -> str:
        return f"Entry({self.key.kind}/{self.key.name[:8]}, generation={self.generation}, {len(self.body)} bytes)"


@dataclass(slots=True)
class Reservation:
    """Space of `size` bytes reserved for the next version of one entry. `held` belongs to the backend; None before the
    space is taken, and once it is used up."""

    key: Key
    held: object = None
    size: int = 0

    def __repr__(self) -> str:
        return f"Reservation({self.key.kind}/{self.key.name[:8]}, {'free' if self.held is not None else 'used up'})"


Damage = Callable[[str, Code], None]
"""Is called with each entry that cannot be read, as `kind/first digits`, and why."""


def log_damage(place: str, code: Code) -> None:
    logging.getLogger("oauthbroker.store").warning("unreadable entry %s: %s", place, code.value)


FEED_SECONDS: Final = 3.0  # a feed that is trusted is no older: the age of the last heartbeat that came back
DEGRADED_SECONDS: Final = 30.0  # after a check, a version may be taken as current while the database is away


class Leases(NamedTuple):
    """The leases of a store that hosts share: those that are held, and lapsed ones that a dead host has left."""

    held: int
    lapsed: int


class Lease(Protocol):
    """A lease that is held. It decides who may send a request to a provider. It fences no write: a commit is fenced by
    its generation and by the intent in the record, so an answer is stored even if the lease has lapsed meanwhile."""

    @property
    def lost(self) -> bool:
        """Tell whether another holder may have the lease by now, as far as this process knows."""
        ...

    async def holds(self) -> bool:
        """Tell whether the store says that this holder has the lease. Ask right before a request that cannot be taken
        back is sent. False when uncertain."""
        ...


class Conflict(BrokerError):
    """The generation is not the expected one: another writer was first. Read and decide again.

    A caller that does not handle it reports `storeLocked`, which may be retried.
    """

    def __init__(self, code: Code = Code.STORE_LOCKED) -> None:
        super().__init__(code, note="another writer was first")


class Store(Protocol):
    """The store's operations. Every method may raise `BrokerError` with a store code. `back` notifies when the store is
    back after it was away: what could not be written is tried again then."""

    @property
    def back(self) -> Notifier: ...

    def key(self, kind: str, *parts: str) -> Key:
        """Return the key of (kind, parts): HMAC-SHA256 over length-prefixed parts. Raises ValueError for an unknown
        kind."""
        ...

    def mac(self, label: str, *parts: str) -> bytes:
        """Return 32 bytes that only brokers with this store's keyring can compute; one independent key per label."""
        ...

    async def get(self, key: Key) -> Entry | None:
        """Return the newest version, or None. Takes no lock."""
        ...

    def unchanged(self, entry: Entry) -> bool:
        """Tell whether `entry`, with or without its body, is certainly the newest version. Cheap and synchronous;
        False when uncertain."""
        ...

    async def is_current(self, *entries: Entry) -> bool:
        """Tell whether each entry, with or without its body, is the newest version, in all processes and on all hosts.
        For entries that `unchanged` cannot confirm. False when uncertain."""
        ...

    def tag(self, kind: str, label: str, *parts: str) -> Tag:
        """Return the tag of a kind, with an independent key for each kind and label. Raises ValueError for an unknown
        kind."""
        ...

    async def put(
        self,
        key: Key,
        body: bytes,
        *,
        expect: int,
        reservation: Reservation | None = None,
        ahead: Reservation | None = None,
        tags: Collection[Tag] | None = None,
    ) -> Entry:
        """Write durably and return the new version.

        `expect` is the generation the caller saw, 0 for an entry that must not exist yet. If it differs, raises
        `Conflict` and changes nothing. `reservation` from `reserve` is used up by every call, also a failing one.
        `ahead` is for the version after this one: its space is taken before anything is written. `tags` are
        all tags that the version has to be found by; None if they are those of the version before. Give them when they
        change: each costs a durable write. From the moment in which a version can be read, it is found by its tags.
        """
        ...

    def reserve(self, key: Key, size: int, *, now: bool = True) -> AbstractAsyncContextManager[Reservation]:
        """Reserve space for a body of `size` bytes before a provider call depends on the write. Notices a full or
        failing disk early. Unused space is freed. Without `now`, a `put` takes the space as its `ahead`."""
        ...

    async def check_writable(self, key: Key) -> None:
        """Raise `storeLocked` if another process keeps all writers from this entry. Use it before a provider call whose
        outcome must be stored."""
        ...

    async def delete(self, key: Key, *, expect: int) -> None:
        """Remove an entry durably. Raises `Conflict` if the generation has changed or there is no entry."""
        ...

    async def set_aside(self, key: Key) -> None:
        """Remove an entry that cannot be opened, durably, after copying its bytes aside: for records that can be
        rebuilt from others. An entry that opens stays. Raises the entry's error code if it must stay."""
        ...

    async def sync(self, kind: str) -> None:
        """Make a kind's entries durable, by any writer. Use it before an answer that relies on an earlier write,
        whose own sync may have failed."""
        ...

    def scan(
        self,
        kind: str,
        *,
        after: str = "",
        limit: int | None = None,
        skip: Callable[[Key], bool] = lambda _: False,
    ) -> AsyncIterator[Entry]:
        """Yield the readable entries of a kind in the order of their names: those after the name `after`, at most
        `limit`. A damaged entry does not hide the others. Entries for which `skip` is true are not opened."""
        ...

    def find(
        self, tag: Tag, *, after: str = "", limit: int | None = None, skipped: list[Key] | None = None
    ) -> AsyncIterator[Entry]:
        """Yield the readable entries with a tag, as `scan` does. An entry that had the tag before may be among them:
        the caller compares what the entry says, and takes the tag away with `untag`. Entries that cannot be read are
        added to `skipped`."""
        ...

    def labelled(
        self, kind: str, label: str, *, after: str = "", limit: int | None = None
    ) -> AsyncIterator[tuple[str, Entry]]:
        """Yield the readable entries that have a tag of this label, each after its *place*: `<value>.<name>`, in the
        order of places. Begin after the place `after`; at most `limit`. An entry with several such tags comes once for
        each, also for one that it had before. A page costs the same in a store of any size."""
        ...

    async def retag(self, wanted: Sequence[tuple[Entry, Collection[Tag]]]) -> int:
        """Give entries the tags that they lack, durably. Return how many lacked one. For entries that were written
        without them. An entry may be older than its newest version."""
        ...

    async def untag(self, entry: Entry, tags: Collection[Tag]) -> None:
        """Take tags from an entry that is gone, or still of this version. Never raises a store code: a tag too many
        is harmless."""
        ...

    async def count(self, kind: str) -> int:
        """Count the entries of a kind, without opening them."""
        ...

    def lease(self, key: Key, *, wait: float) -> AbstractAsyncContextManager[Lease]:
        """Hold a lock named by `key` against all tasks, processes and threads. Waits at most `wait` seconds, then
        raises `storeLocked`, sooner in a `Pass` of background work. It does not block `put`. A backend may give a
        lapsed lease to another holder; then it is `lost` to the first one."""
        ...

    async def tidy(self, lease_kinds: Collection[str]) -> None:
        """Remove what free leases of these kinds have left. For background work: it may take minutes."""
        ...

    async def history(self) -> str:
        """Return the name of the store's history. Another one than before says that the store may have lost its last
        writes, and went on without them."""
        ...

    async def outlived(self, entry: Entry) -> bool:
        """Tell whether the store may have lost a newer version of this entry."""
        ...

    async def close(self) -> None:
        """Wait for running writes, then close all files."""
        ...


class FeedState(Protocol):
    """The feed of a store's changes."""

    async def heard(self) -> bool:
        """Listen, and return whether a heartbeat comes back in time."""
        ...

    @property
    def unreached(self) -> str:
        """Why its database cannot be connected to; empty while it can."""
        ...

    @property
    def state(self) -> str:
        """Return `off`, `late` or `live`."""
        ...


@runtime_checkable
class SharedStore(Protocol):
    """What operators see of a store that hosts share, beside the port."""

    @property
    def feed(self) -> FeedState: ...

    @property
    def degraded(self) -> bool:
        """Whether versions were confirmed while the store was away, a moment ago."""
        ...

    @property
    def may_degrade(self) -> bool:
        """Whether versions would be confirmed if the store were away now."""
        ...

    async def leases(self) -> Leases:
        """Count the leases, without taking one."""
        ...

    async def loses_on_failover(self) -> bool:
        """Tell whether a standby is configured that may take over without the last changes."""
        ...
