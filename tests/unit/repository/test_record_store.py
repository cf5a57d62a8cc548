"""Records of one kind, with their cache, on a store whose answers take time."""

from __future__ import annotations

from datetime import timedelta

from oauthbroker.core.clock import SystemClock
from oauthbroker.records.turn_record import TurnRecord
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.format.port import Entry
from oauthbroker.store.memory import MemoryStore
from tests.kit.running_broker import turn


class Remote(MemoryStore):
    """A store that has to be asked whether a version is current. `meanwhile` happens before its answer arrives."""

    async def meanwhile(self) -> None: ...

    def unchanged(self, entry: Entry) -> bool:
        return False

    async def is_current(self, *entries: Entry) -> bool:
        current = all(map(super().unchanged, entries))
        await self.meanwhile()
        return current


async def test_a_record_that_another_task_ends_while_it_is_looked_up_breaks_no_read() -> None:
    clock = SystemClock()
    store = Remote(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    records = Repository(store).records("turns", TurnRecord.from_plaintext)
    now = clock.now()
    record = TurnRecord(locator="a", turn=turn(), created_at=now, expires_at=now + timedelta(hours=1))
    await records.add(record)

    async def end() -> None:
        assert await records.end("a")

    store.meanwhile = end  # type: ignore[method-assign]
    assert record == await records.get("a"), "it was current when the store was asked"
    assert await records.get("a") is None
