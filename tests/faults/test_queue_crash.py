"""Queues that crash at every change of their store, shortened; `python -m tests.faults.queue_crashes` is the long form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from oauthbroker.events.queue_index import Index, Plan
from oauthbroker.events.queue_storage import QueueStorage
from oauthbroker.store.file.group_commit import GroupCommit
from oauthbroker.store.file.versioned_entries import EntryFiles
from tests.faults.queue_crash_kit import script_of_a_join, small_segments
from tests.faults.queue_crash_places import Place
from tests.faults.queue_crashes import Sweep, disk, memory
from tests.kit.forms import is_long, swept

STEPS = 40
EACH = swept(1).step
SCRIPT = script_of_a_join()
LAST = range(len(SCRIPT) - 3, len(SCRIPT))


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> list[Index]:
    """The indexes whose segments were joined."""
    found, join = list[Index](), Index.join

    def joined(self: Index) -> None:
        found.append(self)
        join(self)

    monkeypatch.setattr(Index, "join", joined)
    return found


@pytest.mark.slow
@pytest.mark.case("93", "63")
@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(3))
async def test_a_process_that_dies_at_any_call_of_the_store_loses_and_doubles_no_event(monkeypatch, seed):
    small_segments(monkeypatch)
    sweep = Sweep()
    await sweep.story(memory(), Random(seed), range(STEPS))
    assert sum(sweep.figures.values()) > STEPS


@pytest.mark.slow
@pytest.mark.case("93", "63", "64")
async def test_a_machine_that_stops_at_any_change_of_the_disk_loses_and_doubles_no_event(monkeypatch, tmp_path):
    small_segments(monkeypatch)
    sweep = Sweep(most=40 if is_long() else 20, each=EACH)
    await sweep.story(disk(tmp_path / "story"), Random(1), range(12, 22))
    assert len(sweep.figures) > 2  # kinds of steps


@pytest.mark.slow
@pytest.mark.case("93", "63", "64")
@pytest.mark.parametrize("where", ["memory", "disk"])
async def test_a_crash_while_segments_are_joined_loses_and_doubles_no_event(monkeypatch, tmp_path, joins, where):
    small_segments(monkeypatch, items=8)
    sweep = Sweep(each=EACH)
    await sweep.story(memory() if where == "memory" else disk(tmp_path / "story"), SCRIPT, LAST)
    assert joins
    assert sweep.figures["ack"] > 5 // EACH


# queues that write in a wrong order


async def write_bodies_last(self: QueueStorage, agent: str, plan: Plan, bodies: Iterable[Any], gone: Any) -> None:
    await WRITE(self, agent, plan, (), gone)
    for event in bodies:
        await self._repository.events.keep(event)


async def drop_bodies_first(self: QueueStorage, agent: str, plan: Plan, bodies: Any, gone: Iterable[str]) -> None:
    for event_id in gone:
        await self._repository.events.drop(event_id)
    await WRITE(self, agent, plan, bodies, ())


async def list_segments_last(self: QueueStorage, agent: str, plan: Plan, bodies: Any, gone: Any) -> None:
    await WRITE(self, agent, replace(plan, first=None, last=plan.last or plan.first), bodies, gone)


async def list_segments_first(self: QueueStorage, agent: str, plan: Plan, bodies: Any, gone: Any) -> None:
    await WRITE(self, agent, replace(plan, first=plan.last or plan.first, last=None), bodies, gone)


async def retire_segments_first(self: QueueStorage, agent: str, plan: Plan, bodies: Any, gone: Any) -> None:
    await WRITE(self, agent, replace(plan, before=(*plan.before, *plan.after), after=()), bodies, gone)


WRITE = QueueStorage._write
WRONG = [write_bodies_last, drop_bodies_first, list_segments_last, list_segments_first, retire_segments_first]


async def both_stories(random: Place, joined: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        small_segments(patch)
        await Sweep().story(random, Random(1), range(STEPS))
    with monkeypatch.context() as patch:
        small_segments(patch, items=8)
        await Sweep().story(joined, SCRIPT, LAST)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG, ids=lambda each: each.__name__)
async def test_a_queue_that_writes_in_a_wrong_order_is_noticed(monkeypatch, wrong):
    monkeypatch.setattr(QueueStorage, "_write", wrong)
    with pytest.raises(AssertionError):
        await both_stories(memory(), memory(), monkeypatch)


@pytest.mark.slow
async def test_a_disk_whose_syncs_are_left_out_is_noticed(monkeypatch, tmp_path):
    small_segments(monkeypatch)
    monkeypatch.setattr(EntryFiles, "install", installed_without_sync)
    monkeypatch.setattr(GroupCommit, "cover", lambda _: None)
    with pytest.raises(AssertionError):
        await Sweep().story(disk(tmp_path / "story"), Random(1), range(3))


def installed_without_sync(self: EntryFiles, *given: Any) -> Any:
    disk: Any = self._fs
    fsync, disk.fsync = disk.fsync, lambda _: None
    try:
        return INSTALL(self, *given)
    finally:
        disk.fsync = fsync


INSTALL = EntryFiles.install
