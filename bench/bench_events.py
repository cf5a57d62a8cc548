"""What an event costs in a queue: put, then leased and acknowledged, with few and with many others in the queue.

It stands beside three lines that are appended to a file, each with a sync: the least that a log of such steps needs.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.figures import parser, show, timed
from oauthbroker.core.clock import SystemClock
from oauthbroker.events.known_queue import KnownQueue
from oauthbroker.events.port import address_of
from oauthbroker.events.queue import StoreQueues
from oauthbroker.events.queue_index import Index
from oauthbroker.model.settings import Limits
from oauthbroker.model.turn import ResumeTarget
from oauthbroker.observability.metrics import Metrics
from oauthbroker.records import AgentEvent
from oauthbroker.records.event_queue import Item
from oauthbroker.repository.queue_parts import HEAD
from oauthbroker.repository.repository import Repository
from oauthbroker.testing.stores import open_file_store

AGENT = "planner"
AT_ONCE = 16
APPENDS = "three durable appends"
LINE = b"x" * 500 + b"\n"


def an_event(number: int, agent: str = AGENT) -> AgentEvent:
    """Return one of a conversation of its own."""
    target = ResumeTarget(agent, f"1700000000.{number:06d}", "Swarm/default")
    event = AgentEvent.about(f"as-{number:022d}", "auth.granted", target, {}, datetime.now(UTC))
    return replace(event, payload={"oauthAppRef": {"kind": "OAuthApp", "name": "mail"}})


async def main(*, quick: bool) -> None:
    rounds, depths = (10, (0, 200)) if quick else (300, (0, 3_000, 100_000))
    for depth in depths:
        with tempfile.TemporaryDirectory() as name:
            store = open_file_store(Path(name))
            repository = Repository(store)
            await fill(repository, depth, 3 * rounds + AT_ONCE)
            queues = StoreQueues(
                repository=repository,
                clock=SystemClock(),
                limits=Limits(queue_lease_seconds=3600),
                metrics=Metrics(),
            )
            log = os.open(Path(name) / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            await measure(queues, rounds, depth)
            await beside_appends(queues, rounds, depth, log)
            os.close(log)
            await store.close()


async def fill(repository: Repository, depth: int, taken: int) -> None:
    """Write a queue of so many events. Those that are `taken` have bodies."""
    index = Index(KnownQueue(AGENT))
    for number in range(depth):
        event = an_event(number)
        index.append(Item(id=event.id, address=address_of(event)))
    for number in range(min(depth, taken)):
        await repository.events.keep(an_event(number))
    for segment in index.segments:
        await repository.queue_parts.put(AGENT, segment.number, segment.to_plaintext(), expect=0)
    if depth:
        await repository.queue_parts.put(AGENT, HEAD, index.head.to_plaintext(), expect=0)


async def measure(queues: StoreQueues, rounds: int, depth: int) -> None:
    async def enqueue(number: int) -> None:
        await queues.enqueue(an_event(1_000_000 + number))

    await measured(f"enqueue, {depth} others wait", rounds, enqueue)
    await measured(f"lease and ack, {depth} others wait", rounds, lambda _: take(queues))
    await measured(f"enqueue a known event, {depth} others wait", rounds, enqueue)


async def take(queues: StoreQueues) -> None:
    delivery = await queues.lease(AGENT)
    if delivery is None or not await delivery.ack():
        raise AssertionError("an event is missing")


async def measured(name: str, rounds: int, work: Callable[[int], Awaitable[Any]]) -> None:
    show(name, [await timed(work(number)) for number in range(rounds)], "us")


async def beside_appends(queues: StoreQueues, rounds: int, depth: int, log: int) -> None:
    """Measure a whole event alone, and the share of one event in the time that 16 take together."""

    async def whole(number: int) -> None:
        await queues.enqueue(an_event(2_000_000 + number))
        await take(queues)

    appends, alone, together = list[float](), list[float](), list[float]()
    for number in range(rounds):
        appends.append(await timed(asyncio.to_thread(append_durably, log)))
        alone.append(await timed(whole(number)))
    for first in range(rounds, 2 * rounds, AT_ONCE):
        took = await timed(asyncio.gather(*map(whole, range(first, first + AT_ONCE))))
        together.append(took / AT_ONCE)
    event = f"enqueue, lease and ack, {depth} others wait"
    show(f"{APPENDS}, {depth} others wait", appends, "us")
    show(event, alone, "us", {f"{APPENDS}, {depth} others wait": appends})
    show(f"enqueue, lease and ack, 16 at once, {depth} others wait", together, "us", {event: alone})


def append_durably(log: int) -> None:
    for _ in range(3):
        os.write(log, LINE)
        os.fsync(log)


if __name__ == "__main__":
    asyncio.run(main(quick=parser().parse_args().quick))
