"""Read checked records from the store, with their versions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records import Grant, codec
from oauthbroker.records.refresh_state import Intent
from oauthbroker.records.unrevoked_tokens import parts_of
from oauthbroker.store.format.port import Conflict, Damage, Entry, Key, Store

_NEVER_REPLACED = frozenset({Code.RECORD_MISPLACED, Code.KEY_UNKNOWN})  # the store never replaces these by itself
UNREADABLE = _NEVER_REPLACED | {Code.RECORD_CORRUPT}

R = TypeVar("R")
Unread = dict[Key, BrokerError]
"""Records that cannot be read, and why."""


class Versioned(NamedTuple, Generic[R]):
    """A record and the version that was read."""

    record: R
    entry: Entry

    @property
    def generation(self) -> int:
        return self.entry.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A record with pending work: an event to queue, or a provider to tell. `grant` is the key of its grant."""

    marker: Entry
    key: Key
    grant: GrantKey


@dataclass(frozen=True, slots=True)
class PendingRevocation:
    """A revocation of one registration that is pending `since`; `tell_after` is the earliest time for the next
    attempt."""

    registration: str
    since: datetime
    tell_after: datetime | None
    _: KW_ONLY
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DueWork:
    """An unfinished grant's pending work, without its secrets: enough to decide whether to read the grant again."""

    has_events: bool
    intent: Intent | None
    revocations: tuple[PendingRevocation, ...]
    _: KW_ONLY
    ask_facts_after: datetime | None = None
    owes_exchange: bool = False

    @classmethod
    def of(cls, grant: Grant) -> DueWork:
        parts = parts_of(grant)
        revocations = tuple(
            PendingRevocation(each.registration, each.pending_since, each.tell_after, params=each.params)
            for each in parts
        )
        ask_after = grant.open_facts.ask_after if grant.open_facts is not None and grant.facts_missing else None
        events, intent, owes = bool(grant.outbox), grant.refresh_state.intent, grant.owes_exchange
        return cls(events, intent, revocations, ask_facts_after=ask_after, owes_exchange=owes)


def place(key: Key) -> str:
    """Return the place of an entry, for reports: its kind, and the beginning of its name."""
    return f"{key.kind}/{key.name[:8]}"


def opened(read: Callable[[bytes], R], entry: Entry) -> R:
    """Parse a plaintext. Raises `recordCorrupt` from here, so that no frame with the plaintext is in the error's
    traceback: error reporters may print the values of locals."""
    try:
        return read(entry.body)
    except (BrokerError, ValueError, LookupError, TypeError, AttributeError):
        pass
    raise BrokerError(Code.RECORD_CORRUPT, note=f"{entry.key.kind}: not a record of this schema")


def in_place(entry: Entry, expected: Key) -> None:
    """Check that a record is stored under its own name. The seal binds a body to its file name; this binds the name to
    the plaintext. Raises `recordMisplaced`."""
    if entry.key != expected:
        raise BrokerError(Code.RECORD_MISPLACED)


async def readable(read: Awaitable[R | None]) -> R | None:
    """Return the record, or None if it is unreadable and must not hide others. A failing store raises."""
    try:
        return await read
    except BrokerError as error:
        if error.code.retryable:
            raise
    return None


async def readable_records(
    entries: AsyncIterator[Entry],
    read: Callable[[Entry], R],
    on_damage: Damage,
    unread: Unread | None = None,
) -> AsyncIterator[R]:
    """Yield the records of entries. Unreadable ones, such as a newer schema's, are kept, reported, and noted in
    `unread`."""
    async for entry in entries:
        try:
            record = read(entry)
        except BrokerError as error:
            on_damage(place(entry.key), error.code)
            if unread is not None:
                unread[entry.key] = BrokerError(error.code, note=place(entry.key))
            continue
        yield record


async def stored(store: Store, key: Key, on_damage: Damage) -> tuple[Entry | None, int | None]:
    """Read an entry, with the generation that its next version must expect: None if nothing is stored. Bytes with a
    broken seal are reported, and return no entry and 0: the store keeps them apart and accepts a new version. Others
    that cannot be read raise."""
    try:
        entry = await store.get(key)
    except BrokerError as error:
        if error.code is not Code.RECORD_CORRUPT:
            raise
        on_damage(place(key), error.code)
        return None, 0
    return entry, None if entry is None else entry.generation


async def replaceable(store: Store, key: Key, read: Callable[[Entry], R], on_damage: Damage) -> tuple[R | None, int]:
    """Read the record under the key, with the generation that its next version must expect. Only for records that can
    be rebuilt from others: an unreadable one is reported and counts as missing, and `write_over` and `remove_over`
    replace it. Entries planted by others (`storePermissions`) and a failing store raise."""
    generation = 0  # the generation of an unreadable record
    try:
        entry = await store.get(key)
        generation = entry.generation if entry is not None else 0
        return (read(entry) if entry is not None else None), generation
    except BrokerError as error:
        if error.code not in UNREADABLE:
            raise
        on_damage(place(key), error.code)
    return None, generation


async def write_over(store: Store, key: Key, body: bytes, *, expect: int) -> Entry:
    """Do `Store.put` for a rebuilt record. Bytes of another place, or sealed with an unknown key, are set aside
    first."""
    try:
        return await store.put(key, body, expect=expect)
    except BrokerError as error:
        if expect or error.code not in _NEVER_REPLACED:
            raise
    await store.set_aside(key)
    return await store.put(key, body, expect=0)


async def remove_over(store: Store, key: Key, *, expect: int) -> None:
    """Do `Store.delete` in the same way."""
    try:
        await store.delete(key, expect=expect)
    except BrokerError as error:
        if expect or error.code not in _NEVER_REPLACED:
            raise
    else:
        return
    await store.set_aside(key)


async def drop(
    store: Store, key: Key, on_damage: Damage, read: Callable[[Entry], object] = lambda entry: entry
) -> None:
    """Remove a record in any state, for those on which no other state depends. One that `read` refuses is reported."""
    generation = 0  # of an unreadable record
    try:
        entry = await store.get(key)
        if entry is None:
            return
        generation = entry.generation
        read(entry)
    except BrokerError as error:
        if error.code not in UNREADABLE:
            raise
        on_damage(place(key), error.code)
    with suppress(Conflict):  # it was deleted or rewritten meanwhile
        await remove_over(store, key, expect=generation)


@contextmanager
def reported(key: Key, on_damage: Damage) -> Iterator[None]:
    """Report an error that stays until the record is repaired, and go on. A failing store raises."""
    try:
        yield
    except BrokerError as error:
        if error.code.retryable:
            raise
        on_damage(place(key), error.code)


def due_in(entry: Entry) -> Due:
    kind, grant = opened(_due, entry)
    return Due(marker=entry, key=Key(kind, entry.key.name), grant=grant)


def _due(body: bytes) -> tuple[str, GrantKey]:
    spec = codec.decode("DueMarker", body)["spec"]
    return str(spec["kind"]), GrantKey.from_json(spec)
