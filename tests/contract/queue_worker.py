"""Another broker process on the same queues, driven by a test: prints `ready`, then obeys and answers line by line."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from oauthbroker.core.clock import SystemClock
from oauthbroker.events.backends import queues_of
from oauthbroker.events.port import Queues
from oauthbroker.model.settings import Limits
from oauthbroker.repository.repository import Repository
from tests.contract.store_worker import opened, say
from tests.unit.records.kit import event

AGENT = "planner"


async def put(queues: Queues, first: str, step: str, end: str, conversations: str) -> None:
    """Puts every `step`-th event."""
    for number in range(int(first), int(end), int(step)):
        await queues.enqueue(event(number, f"{number % int(conversations)}"))
    say("done")


async def take(queues: Queues, end: str, folder: str) -> None:
    """Takes events until the last one is done, and says which. While it has one, no other process may have an event of
    the same conversation: each makes a file that must not exist yet."""
    taken, done = list[str](), Path(folder, "done")
    while len(list(done.iterdir())) < int(end):
        delivery = await queues.lease(AGENT)
        if delivery is None:
            await asyncio.sleep(0.01)
            continue
        marker = Path(folder, f"has {delivery.event.target.instance_key}")
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        taken.append(delivery.id)
        marker.unlink()
        done.joinpath(delivery.id).touch()
        await delivery.ack()
    say(" ".join(taken))


async def hold(queues: Queues) -> None:
    """Leases one event and keeps it until the process is killed."""
    delivery = await queues.lease(AGENT)
    say(delivery.id if delivery is not None else "nothing")
    await asyncio.to_thread(sys.stdin.readline)


COMMANDS: dict[str, Callable[..., Awaitable[None]]] = {"put": put, "take": take, "hold": hold}


async def main(lease_seconds: str, folder: str, url: str = "") -> None:
    store = opened(Path(folder), url)
    limits = Limits(queue_lease_seconds=float(lease_seconds))
    queues = queues_of(Repository(store), clock=SystemClock(), limits=limits)
    say("ready")
    while order := (await asyncio.to_thread(sys.stdin.readline)).split():
        await COMMANDS[order[0]](queues, *order[1:])
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
