"""Events are numbered in the order in which they happen, for all processes of a store and any jump of the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.repository.event_order import place
from oauthbroker.repository.repository import Repository
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Conflict, Key
from oauthbroker.testing.stores import open_file_store
from tests.unit.records import kit

DAY = timedelta(days=1)
Harm = Callable[[FileStore], Awaitable[None]]


@pytest.fixture
def stores(tmp_path: Path) -> list[FileStore]:
    """Two processes' views of one store."""
    return [open_file_store(tmp_path) for _ in range(2)]


@pytest.fixture
def repositories(stores: list[FileStore]) -> list[Repository]:
    return [Repository(store) for store in stores]


async def test_numbers_only_grow_with_any_step_of_the_clock(repositories: list[Repository]) -> None:
    now, numbers = kit.CREATED, list[int]()
    for step in (DAY, -DAY, -DAY, DAY, timedelta(0), timedelta(0)):
        now += step
        for repository in repositories:
            numbers.append(await repository.event_order.next(now))
            assert [numbers[-1]] * 2 == [await each.event_order.newest() for each in repositories]
    assert sorted(set(numbers)) == numbers


async def test_many_tasks_of_two_processes_get_a_number_each(repositories: list[Repository]) -> None:
    order = [each.event_order for each in repositories]
    found = await asyncio.gather(*(order[number % 2].next(kit.CREATED) for number in range(60)))
    assert 60 == len(set(found))


async def lose(store: FileStore) -> None:
    entry = await store.get(place(store))
    assert entry is not None
    await store.delete(entry.key, expect=entry.generation)


async def damage(store: FileStore) -> None:
    key = place(store)
    entry = await store.get(key)
    assert entry is not None
    await store.put(key, b"{}", expect=entry.generation)


@pytest.mark.parametrize("harm", [lose, damage])
async def test_a_lost_number_is_made_anew_from_the_outboxes(
    stores: list[FileStore], repositories: list[Repository], harm: Harm
) -> None:
    """Also where the clock was set back since."""
    early, late = (repository.event_order for repository in repositories)
    event = kit.event(created_at=kit.CREATED + DAY)
    await repositories[0].save_grant(kit.grant(outbox=(event,)), expect=0)
    before = await early.newest()
    await harm(stores[0])
    assert 0 == await late.newest()
    assert before < await late.next(kit.CREATED)


async def test_a_higher_number_in_an_outbox_raises_the_last_one(repositories: list[Repository]) -> None:
    order = repositories[0].event_order
    number = await order.next(kit.CREATED)
    assert not await order.catch_up(number)
    assert await order.catch_up(number + 5)
    assert not await repositories[1].event_order.catch_up(number + 5)
    assert number + 6 == await repositories[1].event_order.next(kit.CREATED)


@pytest.mark.parametrize("code", [Code.STORE_UNAVAILABLE, Code.STORE_PERMISSIONS, Code.STORE_LOCKED])
async def test_a_number_that_cannot_be_stored_costs_no_event(
    stores: list[FileStore], repositories: list[Repository], monkeypatch: pytest.MonkeyPatch, code: Code
) -> None:
    put, failing = stores[0].put, Conflict() if code is Code.STORE_LOCKED else BrokerError(code)

    async def refusing(key: Key, body: bytes, **how: Any) -> Any:
        if key.kind == "queues":
            raise failing
        return await put(key, body, **how)

    monkeypatch.setattr(stores[0], "put", refusing)
    first = await repositories[0].save_grant(kit.grant(outbox=(kit.event(),)), expect=0)
    second = replace(first.record, outbox=(*first.record.outbox, kit.event(1, created_at=kit.CREATED - DAY)))
    versioned = await repositories[0].save_grant(second, expect=first.generation)
    numbers = [event.order for event in versioned.record.outbox]
    assert sorted(set(numbers)) == numbers


async def test_only_a_new_event_costs_a_write(
    stores: list[FileStore], repositories: list[Repository], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh of a grant whose event is still in its outbox writes the grant and nothing else."""
    versioned = await repositories[0].save_grant(kit.grant(outbox=(kit.event(),)), expect=0)
    put, written = stores[0].put, list[str]()

    async def noting(key: Key, body: bytes, **how: Any) -> Any:
        written.append(key.kind)
        return await put(key, body, **how)

    monkeypatch.setattr(stores[0], "put", noting)
    await repositories[0].save_grant(replace(versioned.record, updated_at=kit.UPDATED), expect=versioned.generation)
    assert ["grants"] == written


async def test_of_two_events_that_are_written_at_once_either_may_be_stored_first(
    stores: list[FileStore], repositories: list[Repository], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number is taken before its grant is stored. A stored grant has a smaller number than each that begins
    after."""
    put, numbered, others_stored = stores[0].put, asyncio.Event(), asyncio.Event()

    async def held_back(key: Key, body: bytes, **how: Any) -> Any:
        if key.kind == "grants":
            numbered.set()
            await others_stored.wait()
        return await put(key, body, **how)

    monkeypatch.setattr(stores[0], "put", held_back)
    begun = asyncio.create_task(repositories[0].save_grant(kit.grant(app="mail", outbox=(kit.event(),)), expect=0))
    await numbered.wait()
    stored_first = await repositories[1].save_grant(kit.grant(app="files", outbox=(kit.event(1),)), expect=0)
    others_stored.set()
    stored_last = await begun
    after = await repositories[1].save_grant(kit.grant(app="notes", outbox=(kit.event(2),)), expect=0)
    early, late, last = (it.record.outbox[0].order for it in (stored_last, stored_first, after))
    assert early < late < last
