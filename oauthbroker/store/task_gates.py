"""Let one task of a process at a time compete for a lock between processes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import note_held, seconds_to_wait


class _Gate(asyncio.Lock):
    """The queue in this process for one lock; it exists while a task uses it."""

    users = 0


class TaskGates(defaultdict[str, _Gate]):
    """The gates of one process, by the names of locks. Belongs to one event loop."""

    def __init__(self) -> None:
        super().__init__(_Gate)

    @asynccontextmanager
    async def entered(self, name: str, wait: float) -> AsyncIterator[float]:
        """Be the only task of this process in the body. Yield the deadline for the lock, by the loop's time. Raises
        `storeLocked` then, after `wait` seconds, or sooner in a pass of background work."""
        deadline = asyncio.get_running_loop().time() + seconds_to_wait(name, wait)
        gate = self[name]
        gate.users += 1
        try:
            await (gate.acquire() if gate.users == 1 else _enter(name, gate, deadline))
            try:
                yield deadline
            finally:
                gate.release()
        finally:
            gate.users -= 1
            if not gate.users:
                del self[name]


async def _enter(name: str, gate: asyncio.Lock, deadline: float) -> None:
    try:
        async with asyncio.timeout_at(deadline):
            await gate.acquire()
        return
    except TimeoutError:
        pass
    note_held(name)
    raise BrokerError(Code.STORE_LOCKED)
