"""Parts of a queue that are damaged, cut, foreign or missing: what can be read is delivered, and the damage is reported."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.events.queue import StoreQueues
from oauthbroker.observability.metrics import Metrics
from oauthbroker.repository.queue_parts import HEAD
from oauthbroker.repository.repository import Repository
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Entry
from oauthbroker.testing import TestClock
from oauthbroker.testing.stores import open_file_store
from tests.faults.queue_crash_kit import AGENT, INSTANCES, LIMITS, LONG, drained, event, small_segments
from tests.unit.records import kit


@dataclass
class Place:
    """A store with a queue of four segments, and another agent's queue."""

    root: Path
    clock: TestClock
    store: FileStore

    @property
    def queues(self) -> StoreQueues:
        return StoreQueues(
            repository=Repository(self.store, self.note), clock=self.clock, limits=LIMITS, metrics=Metrics()
        )

    def note(self, place: str, code: Code) -> None:
        self.reported.append((place, code))

    def __post_init__(self) -> None:
        self.reported = list[tuple[str, Code]]()

    def file(self, number: int, agent: str = AGENT) -> Path:
        key = Repository(self.store).queue_parts.key(agent, number)
        return self.root / "store" / "data" / key.kind / key.name


Damage = Callable[[Place, Path], None]


def cut(_: Place, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


def empty(_: Place, path: Path) -> None:
    path.write_bytes(b"")


def flipped(_: Place, path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])


def foreign(place: Place, path: Path) -> None:
    shutil.copyfile(place.file(HEAD, "writer"), path)


def another_part(place: Place, path: Path) -> None:
    shutil.copyfile(place.file(3 if path != place.file(3) else 2), path)


def missing(_: Place, path: Path) -> None:
    path.unlink()


DAMAGE: list[Damage] = [cut, empty, flipped, foreign, another_part, missing]
PARTS = [HEAD, 1, 2, 3, 4]
LOOKS = ["cold", "warm"]  # a process that opens the store anew, and one that has all parts in memory


@pytest.fixture
async def place(tmp_path, monkeypatch):
    small_segments(monkeypatch)
    store = open_file_store(tmp_path, clock=TestClock())
    yield Place(tmp_path, TestClock(), store)
    await store.close()


async def filled(place: Place) -> StoreQueues:
    """Queue the events. Conversation 0 is 0, 3, 6, 9; its event 0 was acknowledged, and 6 died."""
    queues = place.queues
    for number in (6, *(number for number in range(11) if number != 6)):
        await queues.enqueue(event(number))
    for _ in range(LIMITS.queue_attempts):
        await refused(queues, place.clock, 6)
    done = await queues.lease(AGENT)
    assert done is not None
    assert event(0).id == done.id
    assert await done.ack()
    await queues.enqueue(kit.event(99, agent="writer"))
    await asyncio.sleep(0.03)  # until the store believes the times of its files
    return queues


async def refused(queues: StoreQueues, clock: TestClock, number: int) -> None:
    delivery = await queues.lease(AGENT)
    assert delivery is not None
    assert event(number).id == delivery.id
    assert await delivery.nack()
    clock.advance(LONG)


@pytest.mark.sample(12)
@pytest.mark.slow
@pytest.mark.case("65", "66", "67", "93")
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("number", PARTS)
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda each: each.__name__)
async def test_a_queue_with_a_bad_part_delivers_every_event_in_order_and_reports_the_damage(
    place, damage, number, look
):
    queues = await filled(place)
    damage(place, place.file(number))
    if look == "cold":
        queues = place.queues
        await queues.tidy()  # as at its start
    async with asyncio.timeout(30):
        delivered = await drained(queues)
    dead = [each.id for each in await queues.dead(AGENT)]
    found = sorted([*delivered, *([6] if event(6).id in dead else [])])
    assert list(range(1, 11)) == [each for each in found if each], "each event once"
    for instance in range(INSTANCES):
        numbers = [each for each in delivered if each % INSTANCES == instance and each != 6]
        assert sorted(numbers) == numbers
    assert 1 == len([code for _, code in place.reported if code in {Code.RECORD_CORRUPT, Code.RECORD_MISPLACED}])
    await queues.tidy()
    assert [] == await drained(queues)
    assert await queues.enqueue(event(50))
    assert [50] == await drained(queues)


@pytest.fixture
def scans(place: Place, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds that the store was read through for."""
    found, scan = list[str](), place.store.scan

    def counted(kind: str, **skip: Any) -> AsyncIterator[Entry]:
        found.append(kind)
        return scan(kind, **skip)

    monkeypatch.setattr(place.store, "scan", counted)
    return found


async def test_new_and_unknown_agents_take_one_reading_of_all_queues(place, scans):
    queues = place.queues
    await asyncio.gather(*(queues.enqueue(kit.event(number, agent=f"agent {number}")) for number in range(12)))
    for number in range(12):
        assert not await queues.ack(f"unknown {number}", event(number).id, "lease")
    assert ["queues"] == scans
    assert [1] * 12 == [each.waiting for each in await queues.depths()]


@pytest.mark.case("65", "67")
@pytest.mark.parametrize("look", ["cold", "looked", "warm", "evicted"])
async def test_a_missing_head_is_found_by_the_next_event(place, look):
    queues = await filled(place)
    if look in {"cold", "looked"}:
        queues = place.queues
    if look == "looked":
        await queues.enqueue(kit.event(100, agent="stranger"))
    elif look == "evicted":
        queues._storage._known.clear()
    missing(place, place.file(HEAD))
    assert await queues.enqueue(event(50))
    async with asyncio.timeout(30):
        delivered = await drained(queues)
    assert sorted([*range(1, 11), 50]) == sorted(each for each in delivered if each)
    assert [code for _, code in place.reported if code == Code.RECORD_CORRUPT]
