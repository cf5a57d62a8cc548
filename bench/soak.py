"""`oauthbroker serve --workers 2` under mixed load for minutes: memory, descriptors, threads and store stay level.

Usage: python -m bench.soak [--minutes 6] [--workers 2] [--seed 1]. A minute of warm-up comes first. It prints a page of
figures, and ends with status 1 when something grew: memory by its slope over the last two thirds, with caches so small
that they are full before (small_caches/); descriptors and threads by the number without load before and after; the
store by its size hours after the last call.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.soak_figures import MIB, Bounds, Growth, Moment, Store, grown_processes, grown_store, more_descriptors
from bench.soak_load import Load
from oauthbroker import open_broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.observability.logging import json_log
from oauthbroker.repository.repository import KINDS
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.faults.server_world import Server, World
from tests.kit.cli import APP

LIMITS = (
    "  limits: {sessionSeconds: 60, turnSeconds: 60, requestsPerMinute: 1000000, rejectionsPerHour: 1000}\n"
    "  advanced: {keepFinishedSeconds: 0, queueLeaseSeconds: 2}\n"
)
CLIENT = {"access_lifetime": 20, "device_interval": 1}
SMALL_CACHES = Path(__file__).parent / "small_caches"
REST_SECONDS = 8.0  # longer than the server keeps idle connections
LOOK_SECONDS = 5.0
REST_LOOKS = 3  # a lock that background work holds for a moment is a descriptor, too
BOUNDS = Bounds(slope=1.0, per_call=50, threads=4)
"""Both bounds are one at some 20,000 calls a minute. Pools of threads fill as more is done at once."""
SWEEP_LOOKS = 60
LATER = (2, 4)  # hours: sessions that end in the first look are removed in the second


@dataclass(frozen=True)
class Report:
    """`before` and `after` are without load; `left` is the store hours later."""

    before: Moment
    loaded: list[Moment]
    after: Moment
    left: Store
    answers: Mapping[str, int]
    stories: Mapping[str, int]
    problems: list[str]

    def __str__(self) -> str:
        minutes = [each for number, each in enumerate(self.loaded) if number % max(1, len(self.loaded) // 6) == 0]
        rows = [("at rest", self.before), *((f"{each.at:.0f} s", each) for each in minutes), ("at rest", self.after)]
        return "\n".join(
            [
                *(f"{name:<9}{_processes(each)}   {_store(each.store)}   calls {each.calls}" for name, each in rows),
                f"hours later: {_store(self.left)}",
                *(f"memory of {name}: {Growth.of(name, self.loaded)}" for name in self.before.processes),
                f"answers: {dict(self.answers)}; stories: {dict(self.stories)}",
                *(f"GREW {each}" for each in self.problems),
                "level" if not self.problems else "",
            ]
        ).rstrip()


def _processes(moment: Moment) -> str:
    return " ".join(
        f"{name.split()[0]}: {each.memory:6.1f} MiB {each.descriptors:3} fd {each.threads:2} th"
        for name, each in moment.processes.items()
    )


def _store(store: Store) -> str:
    kinds = " ".join(f"{kind} {store.files[kind]}" for kind in KINDS if store.files[kind])
    size, audit = sum(store.size.values()) / MIB, store.audit / MIB
    return f"{kinds}: {size:.2f} MiB, tmp {store.temporary}, locks {store.locks}, audit {audit:.2f} MiB"


async def soak(
    folder: Path,
    idp: IdentityProvider,
    *,
    minutes: float,
    workers: int,
    seed: int,
    bounds: Bounds,
    enough: Callable[[Load], object] = bool,
) -> Report:
    """Run the load for `minutes`, and longer until it was `enough`, at most ten times as long."""
    tv = APP.format(issuer=idp.issuer).replace("name: mail", "name: tv").replace("authorizationCode", "deviceCode")
    world = World(folder, idp, workers, limits=LIMITS, client=CLIENT, more={"tv": tv}, before=SMALL_CACHES)
    await world.make()
    server = await world.start()
    try:
        load = Load(world, random.Random(seed))
        before, loaded, after = await _under(load, server, min(60.0, minutes * 20), minutes * 60, enough)
        await load.settle_events()
        status = await server.end()
    finally:
        server.bury()
    left = await _hours_later(world)
    problems = [f"it ended with status {status}"] if status else []
    problems += grown_processes(before, loaded, after, bounds) + grown_store(before.store, left)
    problems += [f"{load.answers['5xx']} answers of 500 and above"] if load.answers["5xx"] else []
    return Report(before, loaded, after, left, load.answers, load.stories, problems)


async def _under(
    load: Load, server: Server, warm_up: float, seconds: float, enough: Callable[[Load], object]
) -> tuple[Moment, list[Moment], Moment]:
    """Return the moments at rest after the warm-up, under load, and at rest again."""
    pid, data = server.process.pid, load.world.folder / "store" / "data"
    await load.connect_everybody()
    async with load.running():
        load.going.set()
        await asyncio.sleep(warm_up)
        await load.rest(REST_SECONDS)
        before = Moment.look(0, pid, data, load.answers.total())
        load.going.set()
        began, loaded = time.monotonic(), list[Moment]()
        while (at := time.monotonic() - began) < seconds or (at < 10 * seconds and not enough(load)):
            loaded.append(Moment.look(at, pid, data, load.answers.total()))
            await asyncio.sleep(min(LOOK_SECONDS, seconds / 12))
        await load.rest(REST_SECONDS)
        after = Moment.look(at, pid, data, load.answers.total())
        for _ in range(REST_LOOKS):
            if not more_descriptors(before, after):
                break
            await asyncio.sleep(LOOK_SECONDS)
            after = Moment.look(at, pid, data, load.answers.total())
        return before, loaded, after


async def _hours_later(world: World) -> Store:
    """What a broker leaves of the store that is started when all that passes is over."""
    log, data = json_log(io.StringIO(), SystemClock()), world.folder / "store" / "data"
    for hours in LATER:
        clock = TestClock(datetime.now(UTC) + timedelta(hours=hours))
        async with open_broker(world.folder / "config", env={}, clock=clock, log=log):
            await _until_level(data)
    return Store.look(data)


async def _until_level(data: Path) -> None:
    """Wait until the sweep has ended: a start does not wait for it, and closing cancels it. At most some minutes."""
    before, now = None, Store.look(data).files
    for _ in range(SWEEP_LOOKS):
        if before == now:
            return
        await asyncio.sleep(LOOK_SECONDS)
        before, now = now, Store.look(data).files


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, IdentityProvider(canaries=Canaries()) as idp:
        place = Path(folder) / "w"
        report = asyncio.run(
            soak(place, idp, minutes=given.minutes, workers=given.workers, seed=given.seed, bounds=BOUNDS)
        )
    print(report)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
