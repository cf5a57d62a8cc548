"""The stores that traces are replayed on: each opened once for two hosts, and taken back where it may lose writes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.format.port import Store
from oauthbroker.store.memory import MemoryStore
from oauthbroker.store.postgres.postgres_store import PostgresStore
from oauthbroker.testing import TestClock
from oauthbroker.testing.stores import open_file_store
from tests.faults.refresh_kit import Unsynced
from tests.kit.postgres import Server, open_postgres_store
from tests.model.replay import Trace, World
from tests.model.search import Found

_numbers = count(1)


@dataclass(frozen=True)
class Stores:
    """One store, opened for each host."""

    opened: Sequence[Store]
    clock: TestClock
    save: Callable[[], Awaitable[Any]] | None = None
    load: Callable[[Any], Awaitable[None]] | None = None

    async def replay(self, trace: Trace, habit: str = "strict") -> None:
        """Replay one trace with a grant of its own. Raises AssertionError where the code differs."""
        world = World(
            self.opened, f"idp:user:{next(_numbers)}", self.clock, habit=habit, save=self.save, load=self.load
        )
        await world.begin()
        await world.play(trace)


def in_memory() -> Stores:
    clock = TestClock()
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)

    async def save() -> Any:
        return dict(store._entries["grants"])

    async def load(saved: Any) -> None:
        store._entries["grants"] = dict(saved)

    return Stores([store] * 2, clock, save, load)


@asynccontextmanager
async def in_files(folder: Path) -> AsyncIterator[Stores]:
    """A disk loses no write that it has acknowledged."""
    clock = TestClock()
    opened = [open_file_store(folder, clock=clock, fs=Unsynced()) for _ in range(2)]
    yield Stores(opened, clock)
    for each in opened:
        await each.close()


@asynccontextmanager
async def in_postgres(server: Server, folder: Path) -> AsyncIterator[Stores]:
    url = server.new_database("model")
    opened: list[PostgresStore] = [open_postgres_store(url, folder) for _ in range(2)]

    async def save() -> Any:
        server.run("drop table if exists behind; create table behind as table oauthbroker.entry", "model")

    async def load(_: Any) -> None:
        server.run("delete from oauthbroker.entry; insert into oauthbroker.entry select * from behind", "model")

    yield Stores(opened, TestClock(), save, load)
    for each in opened:
        await each.close()


def shapes(found: Found) -> list[Trace]:
    """Return ways that pass an action of each shape. Those that another one begins with are left out."""
    ways = {last: found.with_last(last) for last in found.shapes.values()}
    passed = {state for way in ways.values() for _, state in way[:-1]}
    return [way for last, way in ways.items() if found.reached.get(last[2]) != last[:2] or last[2] not in passed]


def sampled(found: Found, most: int) -> list[Trace]:
    """Return the ways to some of the states, the same ones in every run."""
    states = list(found.reached)[1:]
    return [found.path(state) for state in random.Random(len(states)).sample(states, min(most, len(states)))]
