"""Remove records on which no other state depends, in any state: the cost of a missing one, the report of a damaged one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records.use import GrantUse
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.repository.versioned import UNREADABLE
from oauthbroker.store.format.port import Conflict, Entry, Key
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock

Drop = Callable[[Repository], Awaitable[None]]


class CountingStore(MemoryStore):
    """A store that counts the reads and deletes it is asked for."""

    reads = deletes = 0

    async def get(self, key: Key) -> Entry | None:
        self.reads += 1
        return await super().get(key)

    async def delete(self, key: Key, *, expect: int) -> None:
        self.deletes += 1
        await super().delete(key, expect=expect)


DROPS: dict[str, tuple[Callable[[MemoryStore], Key], Drop]] = {
    "a use": (
        lambda store: store.key("uses", "grant-1"),
        lambda repository: repository.records("uses", GrantUse.from_plaintext).discard("grant-1"),
    ),
    "a due marker": (
        lambda store: Key("due", store.key("grants", "mail", "alice").name),
        lambda repository: repository.markers.unmark(repository.grant_place(GrantKey("mail", "alice"))),
    ),
    "a part of a queue": (
        lambda store: store.key("queues", "planner", "7"),
        lambda repository: repository.queue_parts.drop("planner", 7),
    ),
    "an event": (lambda store: store.key("events", "evt-1"), lambda repository: repository.events.drop("evt-1")),
}
READ = ("a use", "a due marker")  # a part is reported when its queue is rebuilt, an event when it is read


async def test_the_body_of_an_event_has_one_version_and_is_deleted_unread() -> None:
    store = CountingStore(kinds=KINDS, lease_kinds=LEASES, clock=TestClock())
    place, drop = DROPS["an event"]
    await store.put(place(store), b"{}", expect=0)
    await drop(Repository(store))
    assert (0, 1) == (store.reads, store.deletes)
    await drop(Repository(store))
    assert await store.get(place(store)) is None


@pytest.mark.parametrize("code", [None, *sorted(UNREADABLE)])
async def test_the_body_of_an_event_that_cannot_be_deleted_unread_is_removed_all_the_same(code: Code | None) -> None:
    class Store(MemoryStore):
        async def delete(self, key: Key, *, expect: int) -> None:
            if expect == 1:
                raise Conflict if code is None else BrokerError(code)
            await super().delete(key, expect=expect)

    store = Store(kinds=KINDS, lease_kinds=LEASES, clock=TestClock())
    place, drop = DROPS["an event"]
    for expect in range(2):
        await store.put(place(store), b"{}", expect=expect)
    await drop(Repository(store))
    assert await store.get(place(store)) is None


@pytest.mark.parametrize("name", sorted(DROPS.keys() - {"an event"}))
async def test_a_record_that_is_missing_is_not_deleted_again(name: str) -> None:
    store = CountingStore(kinds=KINDS, lease_kinds=LEASES, clock=TestClock())
    await DROPS[name][1](Repository(store))
    assert 0 == store.deletes


@pytest.mark.parametrize("name", DROPS)
async def test_a_record_that_cannot_be_read_is_removed_and_reported_where_no_other_step_reads_it(name: str) -> None:
    reported = list[tuple[str, Code]]()
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=TestClock())
    place, drop = DROPS[name]
    key = place(store)
    await store.put(key, b"{}", expect=0)
    await drop(Repository(store, on_damage=lambda place, code: reported.append((place, code))))
    assert await store.get(key) is None
    assert ([(f"{key.kind}/{key.name[:8]}", Code.RECORD_CORRUPT)] if name in READ else []) == reported
