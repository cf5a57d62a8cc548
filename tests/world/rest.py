"""The end of a world: all troubles are over, and each loss shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from oauthbroker.core.errors import BrokerError
from oauthbroker.model.token_results import Failed, Ready
from tests.world.hosts import Host
from tests.world.laws import Pair
from tests.world.troubles import FAILOVER_GRACE
from tests.world.work import AGENTS, Work, turn_of
from tests.world.world import World

SETTLING_SECONDS: Final = 150.0  # at most: a claim of a dead broker, and a sweep
PAUSE: Final = 15.0
TRIES: Final = 40  # a pause after a lost answer may last 5 minutes
STOPPING_SECONDS: Final = 30.0


async def at_rest(world: World, work: Work) -> None:
    """Let the brokers finish, and check the result."""
    await _until(lambda: not _is_busy(world), SETTLING_SECONDS)
    await _drain(world, work)
    for pair in sorted({consent.pair for consent in world.laws.consents}):
        await _still_works(world, work, pair)
    _check_events(world)
    for host in world.hosts:
        await host.stop()
    await _until(lambda: not any(map(_tasks, world.hosts)), STOPPING_SECONDS)
    _check_left(world)
    for family in world.provider.families:
        _check_held(world, family.number)


async def _until(is_over: Callable[[], bool], most: float) -> None:
    """Wait until that is so, for so many seconds at most. The laws say later what should have been."""
    began = asyncio.get_running_loop().time()
    while not is_over() and asyncio.get_running_loop().time() < began + most:
        await asyncio.sleep(1)


def _is_busy(world: World) -> bool:
    """Tell whether a broker starts, a refresh or an event is left open, or a standby has just taken over."""
    tables, failovers = world.database.tables, world.laws.troubles.failovers
    return (
        not all(host.up for host in world.hosts)
        or any(kind == "due" for kind, _ in tables.entry)
        or any(each.open and each.claim is not None for each in world.laws.sessions.values())
        or any(until > tables.now() for _, until in tables.lease.values())
        or any(at > world.loop.time() - FAILOVER_GRACE for _, at in failovers)
    )


async def _drain(world: World, work: Work) -> None:
    """Receive all events."""
    for _ in range(TRIES):
        if not any(row.state == "waiting" for row in world.database.tables.queued.values()):
            return
        for agent in AGENTS:
            with suppress(BrokerError, TimeoutError):  # a broker has not found yet that its database is back
                await work.receive(world.hosts[0], agent, luck=0.0)
        await asyncio.sleep(PAUSE / 15)
    world.laws.check(False, "each event is delivered", "events wait for ever")


async def _still_works(world: World, work: Work, pair: Pair) -> None:
    """Ask until there is an answer: a token, or that the user is needed. It was judged when it came."""
    host, result = world.hosts[-1], None
    for _ in range(TRIES):
        result = await work.call(host, pair, turn_of(pair[1], AGENTS[0], "1"))
        if not isinstance(result, Failed) or not result.retryable:
            break
        await asyncio.sleep(PAUSE)
    world.laws.check(not isinstance(result, Failed), "at rest each call has its answer", pair, result)
    done = [each for each in world.laws.consents if each.pair == pair and not each.ending]
    family = done[-1].family if done and all(each.done_at < world.loop.time() for each in done) else None
    if family is not None and family.alive and not world.laws.may_be_lost(family):
        law = "the only copy of a rotated token is not dropped"
        world.laws.check(isinstance(result, Ready), law, pair, family.number, result)


def _check_events(world: World) -> None:
    """Each consent that was finished has woken the agent that asked for it."""
    seen = set[str]().union(*(each.seen for each in world.laws.conversations.values()))
    for consent in world.laws.consents:
        if consent.done_at < world.loop.time() and not consent.erased and not world.laws.may_lack(consent):
            event = f"evt-{consent.session}-auth.granted"
            world.laws.check(event in seen, "auth.granted comes at least once", consent.pair, event)


def _check_left(world: World) -> None:
    tables, now = world.database.tables, world.database.tables.now()
    records = [(place, row.generation, row.record) for place, row in tables.entry.items()]
    events = [(("events", row.id), 1, row.record) for row in tables.queued.values() if row.record is not None]
    for place, generation, record in records + events:
        world.laws.opened(place, generation, record)  # raises for one that no seed opens
    claimed = [each.id for each in world.laws.sessions.values() if each.open and each.claim is not None]
    world.laws.check(not claimed, "nothing is left at the end", "claims", claimed)
    leases = [name for name, (_, until) in tables.lease.items() if until > now]
    world.laws.check(not leases, "nothing is left at the end", "leases", leases)
    markers = [name.hex()[:8] for kind, name in tables.entry if kind == "due"]
    world.laws.check(not markers, "nothing is left at the end", "markers", markers)
    tasks = [str(task) for host in world.hosts for task in _tasks(host)]
    world.laws.check(not tasks, "nothing is left at the end", "tasks", tasks)
    problems = [line for host in world.hosts for line in host.log.getvalue().splitlines() if '"error"' in line]
    world.laws.check(not [line for line in problems if '"code"' not in line], "no pass ends by a fault", problems)


def _tasks(host: Host) -> set[asyncio.Task[Any]]:
    return host.process.tasks if host.process is not None else set()


def _check_held(world: World, number: int) -> None:
    """A grant that lives at the provider is in the store, unless its tokens never came there."""
    family, laws = world.provider.families[number], world.laws
    if not family.alive or laws.may_be_lost(family):
        return
    mark = family.token("", 0)[1:5].encode()
    held = any(
        b"-" + mark + b"-" in laws.opened(place, row.generation, row.record)
        for place, row in world.database.tables.entry.items()
    )
    laws.check(held, "each grant that lives at the provider is held", family.app, family.account, number)
