"""The grants of a repository: cached, tagged, and marked as due while they have pending work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import date, datetime
from operator import attrgetter
from typing import TypeVar

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.errors import BrokerError
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records import Grant, codec
from oauthbroker.records.grant_head import GrantHead
from oauthbroker.repository import app_order
from oauthbroker.repository.due_markers import Markers
from oauthbroker.repository.event_order import EventOrder
from oauthbroker.repository.grant_tags import GrantTags, tagged_by
from oauthbroker.repository.newest_seen import NewestSeen
from oauthbroker.repository.versioned import Unread, Versioned, in_place, opened, readable_records, stored
from oauthbroker.repository.versioned import place as place_of
from oauthbroker.store.format.port import Conflict, Damage, Entry, Key, Reservation, SharedStore, Store, Tag

ANSWER_BYTES = 64 * 1024
R = TypeVar("R")
CACHED = 10_000  # grants in memory
CACHED_BYTES = 4 * 1024 * 1024  # as stored; the objects take up to four times as much memory


class GrantRecords:
    """Every method may raise `BrokerError` with a store code."""

    event_order: EventOrder

    def __init__(self, store: Store, on_damage: Damage) -> None:
        self._store, self._on_damage = store, on_damage
        self.shared = store if isinstance(store, SharedStore) else None
        self._tags = GrantTags(store)
        self.markers = Markers(store, on_damage)
        self._cache = Bounded[GrantKey, Versioned[Grant]](
            CACHED, most_bytes=CACHED_BYTES, size_of=lambda versioned: len(versioned.entry.body)
        )
        self.newest_seen = NewestSeen()
        self._history: str | None = None  # as it was last looked at

    def grant_place(self, key: GrantKey) -> Key:
        """Return where a grant is stored."""
        return self._store.key("grants", *key.parts)

    def is_newest(self, version: Entry) -> bool:
        """Return whether a version is certainly the newest one; costs one stat."""
        return self._store.unchanged(version)

    async def is_newest_everywhere(self, *versions: Entry) -> bool:
        """Ask the store whether versions are the newest ones, in all processes and on all hosts."""
        return await self._store.is_current(*versions)

    def cached_grant(self, key: GrantKey) -> Versioned[Grant] | None:
        """Return the grant of a pair as it was last read, which may be outdated."""
        return self._cache.get(key)

    def cached_grants(self) -> tuple[Grant, ...]:
        """Return all grants in memory, as they were last read."""
        return tuple(versioned.record for versioned in self._cache.values())

    async def grant(self, key: GrantKey) -> Versioned[Grant] | None:
        """Return the newest grant of a pair, tombstones included. A damaged one is reported and returned as None."""
        versioned = self._cache.get(key)
        if versioned is not None and (
            self._store.unchanged(versioned.entry) or await self._store.is_current(versioned.entry)
        ):
            return versioned
        return await self.stored_grant(key)

    async def stored_grant(self, key: GrantKey) -> Versioned[Grant] | None:
        """Read the grant of a pair from the store. If the store has lost its newest version, return that from memory:
        the next change stores it, fenced by the generation of the older one."""
        entry, _ = await stored(self._store, self.grant_place(key), self._on_damage)
        if entry is None:
            return None
        found = self._open_grant(entry, key)
        newer = None if self.shared is None else self.newest_seen.newer_than(found)
        return self._remember(key, found) if newer is None else Versioned(newer, entry)

    async def lost_writes(self) -> bool:
        """Tell whether the store may have lost its last writes since this was last asked."""
        history, before = await self._store.history(), self._history
        self._history = history
        if before in {None, history}:
            return False
        self._cache.clear()
        return True

    async def may_lack_newer(self, versioned: Versioned[Grant]) -> bool:
        """Tell whether the store may have lost a newer version of this grant."""
        return self.shared is not None and await self._store.outlived(versioned.entry)

    async def store_again_if_lost(self, versioned: Versioned[Grant]) -> None:
        """Store the first grant of a pair again, under the pair's lease, if a standby without it has taken over since
        it was stored or read. `restore` does it for a grant of which the standby has an older version."""
        await self._store.history()
        if await self.may_lack_newer(versioned) and await self.stored_grant(versioned.record.key) is None:
            await self.save_grant(versioned.record, expect=0)

    def reserve_for(self, versioned: Versioned[Grant], *, now: bool = True) -> AbstractAsyncContextManager[Reservation]:
        """Reserve disk space for the grant's next version, with the largest provider response added. Without `now`,
        `save_grant` takes it as its `ahead`."""
        return self._store.reserve(versioned.entry.key, len(versioned.entry.body) + ANSWER_BYTES, now=now)

    def reserve_for_first(self, key: GrantKey) -> AbstractAsyncContextManager[Reservation]:
        """Do the same for a pair without a grant."""
        return self._store.reserve(self.grant_place(key), ANSWER_BYTES)

    async def save_grant(
        self, grant: Grant, *, expect: int, reservation: Reservation | None = None, ahead: Reservation | None = None
    ) -> Versioned[Grant]:
        """Write a grant durably, under the pair's lease. New events are numbered, and one with pending work is marked
        as due first. Tags are written only if they may differ from those of the version before: by a refresh only where
        the grant's end has moved to another day."""
        pair = grant.key
        before = self._cache.get(pair)
        key = self.grant_place(pair) if before is None else before.entry.key
        if not all(map(attrgetter("order"), grant.outbox)):
            grant = replace(grant, outbox=tuple([await self.event_order.numbered(event) for event in grant.outbox]))
        same = before is not None and before.entry.generation == expect and tagged_by(before.record) == tagged_by(grant)
        tags = None if same else self._tags.of(grant)
        if grant.unfinished:
            await self.markers.mark(key, pair)
        try:
            entry = await self._store.put(
                key, grant.to_plaintext(), expect=expect, reservation=reservation, ahead=ahead, tags=tags
            )
        except Conflict:
            self._cache.pop(pair)  # the cached version is outdated
            raise
        return self._remember(pair, Versioned(grant, entry))

    def _remember(self, pair: GrantKey, versioned: Versioned[Grant]) -> Versioned[Grant]:
        """Cache a version that was read or written, unless a newer one is remembered."""
        if self.shared is None or self.newest_seen.note(versioned):  # a store of one host loses no acknowledged write
            self._cache.keep(pair, versioned)
        else:
            self._cache.pop(pair)
        return versioned

    async def erase_grant(self, versioned: Versioned[Grant]) -> None:
        """Remove a grant or its tombstone with its marker, under the pair's lease. That it was revoked stays
        remembered: a store that loses the removal has the grant before it again."""
        await self.markers.unmark(versioned.entry.key)
        await self._store.delete(versioned.entry.key, expect=versioned.generation)
        if not versioned.record.revoked:
            self.newest_seen.forget(versioned.record)
        await self._store.untag(versioned.entry, self._tags.of(versioned.record))

    def grants(self) -> AsyncIterator[Versioned[Grant]]:
        """Yield every readable grant. A damaged one hides no other."""
        return readable_records(self._store.scan("grants"), self._open_grant, self._on_damage)

    async def grant_heads(self, app: str | None = None) -> AsyncIterator[GrantHead]:
        """Yield the heads of all readable grants, or of those of an app."""
        entries = self._store.scan("grants") if app is None else self._store.find(self._tags.app(app))
        async for head in readable_records(entries, self._open_head, self._on_damage):
            if app in {None, head.key.app}:
                yield head

    def grants_that_name(self, subject: str) -> AsyncIterator[tuple[GrantHead, Grant | None]]:
        """Yield the heads of all readable grants, each with the grant if the record has this text anywhere. An erasure
        must not miss one: tags name neither who asked for a grant nor what a restored copy has lost."""

        def read(entry: Entry) -> tuple[GrantHead, Grant | None]:
            return self._open_head(entry), self._open_grant(entry).record if text in entry.body else None

        text = codec.text_in_plaintext(subject)
        return readable_records(self._store.scan("grants"), read, self._on_damage)

    async def count_grants(self) -> int:
        """Count the grants, without opening them."""
        return await self._store.count("grants")

    def grants_in_order(
        self, app: str | None, subject: str | None, after: str, limit: int
    ) -> AsyncIterator[tuple[str, Versioned[Grant] | None]]:
        """Yield at most `limit` grants of a subject, of an app, or all, each after its place (`Store.labelled`). Begin
        after the place `after`. None stands for a grant whose own place is another one, or that cannot be read. Those
        of an app with very many may have grants of other apps between them."""
        return self._in_order(app, subject, after, limit, self._open_grant, lambda found: found.record.key)

    def heads_in_order(
        self, app: str | None, subject: str | None, after: str, limit: int
    ) -> AsyncIterator[tuple[str, Versioned[GrantHead] | None]]:
        """Yield the heads of the same grants, each with the version that has the rest: `opened_grant` opens that."""
        return self._in_order(app, subject, after, limit, self._versioned_head, lambda found: found.record.key)

    async def _in_order(
        self,
        app: str | None,
        subject: str | None,
        after: str,
        limit: int,
        read: Callable[[Entry], R],
        key_of: Callable[[R], GrantKey],
    ) -> AsyncIterator[tuple[str, R | None]]:
        by_app = app is not None and subject is None and not await self._has_very_many(app, after)
        tag = self._tags.app(app or "") if by_app else None if subject is None else self._tags.who(subject)
        start = "" if tag is None else tag.value
        label, after = "app" if by_app else "who", max(after, start and f"{start}.")
        async for place, entry in self._store.labelled("grants", label, after=after, limit=limit):
            if not place.startswith(start):
                return
            try:
                found = read(entry)
            except BrokerError as error:
                self._on_damage(place_of(entry.key), error.code)
                yield place, None
                continue
            key = key_of(found)
            own = self._tags.app(key.app) if by_app else self._tags.who(key.subject)
            yield place, found if place.startswith(own.value) else None

    async def _has_very_many(self, app: str, after: str) -> bool:
        """Tell whether pages of an app are in the order of people. `after` is a place in the order that the first page
        had. A store that hosts share has an index of each order."""
        if self.shared is not None:
            return False
        if after:
            return not after.startswith(self._tags.app(app).value)
        first = self.heads_in_order(None, None, "", app_order.LOOK)
        return await app_order.has_very_many(
            (place, found is not None and found.record.key.app == app) async for place, found in first
        )

    def grants_of_app(self, app: str, unread: Unread | None = None) -> AsyncIterator[Versioned[Grant]]:
        """Yield the readable grants of an app. The others are noted in `unread`, unless their seal does not open."""
        return self._with(self._tags.app(app), unread)

    def grants_with(self, who: str, unread: Unread | None = None) -> AsyncIterator[Versioned[Grant]]:
        """Do the same for grants that belong to a subject, or that it agreed to."""
        return self._with(self._tags.who(who), unread)

    async def unreadable_of(self, who: str) -> int:
        """Count the grants of a subject, or that it agreed to, which cannot be read, for any reason."""
        skipped, unread = list[Key](), Unread()
        found = self._store.find(self._tags.who(who), skipped=skipped)
        async for _ in readable_records(found, self._open_grant, self._on_damage, unread):
            pass
        return len({*skipped, *unread})

    def grants_ending(self, day: date) -> AsyncIterator[Versioned[Grant]]:
        """Yield the readable grants whose users are to be told on that day (UTC) that they end."""
        return self._with(self._tags.ending(day))

    def notice_id(self, grant: Grant, end: datetime) -> str:
        """Return the id of the notice of this end: the same for a grant whose store has lost that it was given."""
        return self._store.mac("notice", grant.id, str(int(end.timestamp())))[:16].hex()

    async def grant_of_notice(self, notice: str) -> Versioned[Grant] | None:
        """Return the grant whose notice has this id."""
        async for versioned in self._with(self._tags.notice(notice)):
            return versioned
        return None

    async def _with(self, tag: Tag, unread: Unread | None = None) -> AsyncIterator[Versioned[Grant]]:
        """Yield the readable grants with a tag. A tag that the grant has no longer is removed."""
        async for versioned in readable_records(self._store.find(tag), self._open_grant, self._on_damage, unread):
            if tag in self._tags.of(versioned.record):
                yield versioned
            else:
                await self._store.untag(versioned.entry, [tag])

    async def retag(self, seen: Sequence[Versioned[Grant]]) -> int:
        """Give grants the tags that they lack. Return how many lacked one."""
        return await self._store.retag([(versioned.entry, self._tags.of(versioned.record)) for versioned in seen])

    def opened_grant(self, head: Versioned[GrantHead]) -> Grant:
        """Parse the grant of a head. Raises `recordCorrupt`."""
        return opened(Grant.from_plaintext, head.entry)

    def _versioned_head(self, entry: Entry) -> Versioned[GrantHead]:
        return Versioned(self._open_head(entry), entry)

    def _open_head(self, entry: Entry) -> GrantHead:
        head = opened(GrantHead.from_plaintext, entry)
        in_place(entry, self.grant_place(head.key))
        return head

    def _open_grant(self, entry: Entry, key: GrantKey | None = None) -> Versioned[Grant]:
        """Parse a grant, and check that it is in its place. An entry that was read as that of a pair has its key."""
        grant = opened(Grant.from_plaintext, entry)
        if grant.key != key:
            in_place(entry, self.grant_place(grant.key))
        return Versioned(grant, entry)
