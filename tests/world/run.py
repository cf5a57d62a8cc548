"""Live one world from its beginning to its rest, and return the broken laws."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from tests.world.database import CALM
from tests.world.provider import Mood
from tests.world.rest import at_rest
from tests.world.work import Work
from tests.world.world import World, world_of

STEPS = 10
LONGEST_TROUBLE = 500.0  # an outage of 300 s, and the patience of those who waited


class Lived(NamedTuple):
    """What came of a world: the laws that it broke, all that were asked, how many states they looked at, and the lines of
    its trace."""

    broken: list[str]
    laws: set[str]
    states: int
    lines: list[str]


def lived(seed: int, *, trace: bool = False) -> Lived:
    with world_of(seed) as world:
        world.lines = [] if trace else None
        try:
            world.loop.run_until_complete(_life(world))
        except Exception as error:  # noqa: BLE001  (a fault of the product, or of the world: both have to be seen)
            world.loop.faults.append(f"the world has come to a stop: {error!r}")
        broken = [*world.laws.broken, *world.loop.faults]
        return Lived(broken, world.laws.asked, world.states, world.lines or [])


async def _life(world: World) -> None:
    for host in world.hosts:
        host.start()
    await asyncio.sleep(1.0)
    work = Work(world)
    await work.go_on(STEPS)
    if work.tasks and not world.laws.broken:
        await asyncio.wait(work.tasks, timeout=LONGEST_TROUBLE)
    world.database.weather, world.provider.mood = CALM, Mood()
    if not world.laws.broken:
        await at_rest(world, work)
    world.laws.check_histories()
