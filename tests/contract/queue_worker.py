"""Another process on the same queues: puts its events, then takes what it gets; prints one id a line."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from oauthbroker.core.clock import SystemClock
from oauthbroker.events.queue import StoreQueues
from oauthbroker.model.settings import Limits
from oauthbroker.observability.metrics import Metrics
from oauthbroker.repository.repository import Repository
from oauthbroker.testing.stores import open_file_store
from tests.unit.records.kit import event


async def main(folder: str, mine: int, conversations: int, events: int) -> None:
    store = open_file_store(Path(folder))
    queues = StoreQueues(Repository(store), SystemClock(), Limits(), Metrics())
    for number in range(mine, events, 2):
        await queues.enqueue(event(number, f"{number % conversations}"))
    sys.stdout.write("queued\n")
    sys.stdout.flush()
    sys.stdin.readline()
    while (delivery := await queues.lease("planner")) is not None:
        sys.stdout.write(f"{delivery.id}\n")
        await delivery.ack()
    await store.close()


asyncio.run(main(sys.argv[1], *(int(each) for each in sys.argv[2:5])))
