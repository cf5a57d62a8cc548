"""One world: three brokers on one database and one provider, in one loop; time, chance and faults come from its seed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from random import Random
from typing import Any
from unittest.mock import patch

from oauthbroker.core.clock import LONG_AGO, SystemClock
from oauthbroker.model.settings import Consistency
from oauthbroker.protocol.network import pool, transport
from oauthbroker.store.format.seal import KID, SealPlace, unseal
from oauthbroker.store.keys import keyring
from oauthbroker.wiring import opening, running
from tests.world.database import Database
from tests.world.driver import driving
from tests.world.hosts import Host, opener
from tests.world.keys import KeyringRow
from tests.world.laws import Laws
from tests.world.loop import EPOCH, WorldLoop
from tests.world.provider import Provider, WorldTransport
from tests.world.tables import Tables

HOSTS = 3
UPKEEP_SECONDS = 7.0  # between passes that mostly find nothing; a longer pause would look like an outage (contact.py)
CONSISTENCIES: tuple[Consistency, ...] = ("strict", "strict", "fast", "available")


class World:
    """What outlives a broker, and a trace of all that happened."""

    def __init__(self, seed: int, loop: WorldLoop, dice: Random) -> None:
        self.seed, self.loop, self.dice = seed, loop, dice
        self.lines: list[str] | None = None  # of the trace, for a reader
        self.states = 0  # that the laws have looked at
        self.consistency = dice.choice(CONSISTENCIES)
        self.database = Database(
            Tables(lambda: EPOCH + loop.time()),
            Random(dice.random()),
            loop.outside_later,
            loop.create_future,
            trace=self.tell,
        )
        self.provider = Provider(Random(dice.random()), loop.outside_later, loop.time, trace=self.tell)
        self.laws = Laws(self)
        self.database.watch, self.provider.spent_again = self.laws.stored, self.laws.spent_again
        self.provider.code_again = self.laws.code_again
        self.hosts = [
            Host(f"host{number}", loop, self.database, self.consistency, self.laws.audited) for number in range(HOSTS)
        ]
        self.keyring = KeyringRow(self.database, "outside").create(clock=SystemClock())
        if self.consistency != "strict":
            self.database.tables.feature["feed"] = 0.0  # long ago, so that a feed is trusted at once

    def tell(self, *words: object) -> None:
        """Count a state, and add a line to the trace where one is wanted."""
        self.states += 1
        if self.lines is not None:
            self.lines.append(f"{self.loop.time():.6f} {' '.join(map(str, words))}")


@contextmanager
def world_of(seed: int) -> Iterator[World]:
    """Make a world. Within the block the time and the random bytes of this process are its own."""
    dice = Random(seed)
    loop, chance = WorldLoop(Random(dice.random())), Random(dice.random())

    def now() -> datetime:
        return LONG_AGO + timedelta(seconds=EPOCH + loop.time())

    with ExitStack() as patched:
        patched.callback(loop.close)
        patched.enter_context(patch.object(os, "urandom", chance.randbytes))
        patched.enter_context(patch.object(keyring, "unseal", unseal_once()))
        patched.enter_context(patch.object(SystemClock, "monotonic", staticmethod(loop.time)))
        patched.enter_context(patch.object(SystemClock, "now", staticmethod(now)))
        world = World(seed, loop, dice)
        patched.enter_context(driving(world.database))
        patched.enter_context(patch.object(pool, "PoolTransport", lambda *_: WorldTransport(world.provider)))
        patched.enter_context(patch.object(transport, "tls_context", lambda _: None))
        patched.enter_context(patch.object(running, "UPKEEP_SECONDS", UPKEEP_SECONDS))
        patched.enter_context(patch.object(opening, "open_store", opener(world.hosts)))
        yield world
        bury(world)


def unseal_once() -> Callable[..., tuple[int, bytes]]:
    """Return a function that opens each record at each place once, and not for each broker that reads it, since `unseal`
    is a pure function. A record that does not open is tried each time."""
    known = dict[tuple[bytes | None, SealPlace, bytes], tuple[int, bytes]]()

    def opened(
        seeds: Mapping[bytes, bytes], place: SealPlace, record: bytes, *, kinds: Iterable[str] = ()
    ) -> tuple[int, bytes]:
        asked = seeds.get(record[KID]), place, record
        found = known.get(asked)
        if found is None:
            found = known[asked] = unseal(seeds, place, record, kinds=kinds)
        return found

    return opened


def bury(world: World) -> None:
    """End the tasks that are left, after all has been said: a task that is never ended complains."""
    world.database.away, world.provider.mood = {"*"}, world.provider.mood
    loop = world.loop
    for process in loop.processes:
        process.runs = True

    async def end() -> None:
        for _ in range(200):
            left = set[Any]().union(*(process.tasks for process in loop.processes)) - {asyncio.current_task()}
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.sleep(0)
        raise AssertionError(f"tasks that do not end: {left}")

    loop.run_until_complete(end())
