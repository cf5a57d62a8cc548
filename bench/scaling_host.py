"""A process of a broker, alone or beside others on one store: python -m bench.scaling_host <folder> <number>.

It does one kind of work with several tasks until a moment, and says how often and with how much CPU time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.answering import Answer, answer
from bench.bench_events import an_event
from bench.figures import US, Work
from bench.installation import TURN
from oauthbroker import Ready
from oauthbroker.core.clock import SystemClock
from oauthbroker.wiring.opening import open_running
from oauthbroker.wiring.running import Running

TASKS = 4
BODY = b"x" * 1500


class Host:
    def __init__(self, folder: Path, number: str) -> None:
        self._folder, self._number = folder, number
        self._opening: Any = None
        self._running: Running | None = None
        self._events = 0

    async def open(self, _request: Mapping[str, Any]) -> Answer:
        self._opening = open_running(self._folder / "config", env=os.environ, clock=SystemClock(), background=False)
        self._running = await self._opening.__aenter__()
        return {}

    async def close(self, _request: Mapping[str, Any]) -> Answer:
        if self._opening is not None:
            await self._opening.__aexit__(None, None, None)
            self._opening = None
        return {}

    async def work(self, request: Mapping[str, Any]) -> Answer:
        """Repeat `kind` from one moment of the monotonic clock to another, `tasks` at a time."""
        works = [await self._work(request["kind"], task) for task in range(request["tasks"])]
        await asyncio.sleep(max(0.0, request["at"] - time.monotonic()))
        began, counts = time.process_time(), await asyncio.gather(*(_repeat(one, request["until"]) for one in works))
        return {"count": sum(counts), "cpu": (time.process_time() - began) * US / max(1, sum(counts))}

    async def _work(self, kind: str, task: int) -> Work:
        assert self._running is not None
        if kind == "token":
            oauth = self._running.broker.oauth(replace(TURN, instance_key=f"{self._number}-{task}"))

            async def token() -> None:
                found = await oauth.get_access_token("mail")
                if not isinstance(found, Ready):
                    raise TypeError(f"{found} instead of a token")

            return token
        if kind == "write":
            store = self._running.parts.repository._store  # noqa: SLF001  (a write without the rest of a flow)
            key = store.key("sessions", f"{self._number}-{task}")
            entry = await store.get(key) or await store.put(key, BODY, expect=0)

            async def write() -> None:
                nonlocal entry
                entry = await store.put(key, BODY, expect=entry.generation)

            return write
        queues, agent = self._running.parts.queues, f"agent-{self._number}-{task}"

        async def event() -> None:
            self._events += 1
            number = self._events * 1000 + int(self._number) * 10 + task
            await queues.enqueue(an_event(number, agent))
            lease = await queues.lease(agent)
            if lease is None or not await lease.ack():
                raise AssertionError("an event is missing")

        return event


async def _repeat(one: Work, until: float) -> int:
    count = 0
    while time.monotonic() < until:
        await one()
        count += 1
    return count


async def main(folder: str, number: str) -> None:
    host = Host(Path(folder), number)
    try:
        await answer({"open": host.open, "close": host.close, "work": host.work})
    finally:
        await host.close({})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
