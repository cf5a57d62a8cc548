"""Leases as rows, taken and kept by conditional statements, by the database's clock.

A lease decides who may send a request to a provider, and fences no write. No connection is held while a lease is. The
time left is measured from before the statement that took it, so this host never counts on more than the database gave.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import note_held, seconds_to_wait, to_its_end
from oauthbroker.store.postgres.connection_pool import ConnectionPool
from oauthbroker.store.task_gates import TaskGates

LEASE_SECONDS: Final = 30.0
_SHORT, _LONG = 0.02, 0.25  # seconds between two tries, first and longest

_TAKE = """
insert into oauthbroker.lease as held (name, owner, until)
values (%(name)s, %(owner)s, clock_timestamp() + %(seconds)s * interval '1 second')
on conflict (name) do update set owner = excluded.owner, until = excluded.until where held.until < clock_timestamp()
returning true
"""
_EXTEND = """
update oauthbroker.lease set until = clock_timestamp() + %(seconds)s * interval '1 second'
where name = %(name)s and owner = %(owner)s
returning true
"""
_RELEASE = "delete from oauthbroker.lease where name = %(name)s and owner = %(owner)s"


class LeaseRow:
    """A lease that is held. Time is real also under a test's clock, because the other host is real."""

    def __init__(self, connections: ConnectionPool, name: str, *, seconds: float) -> None:
        self._connections, self._seconds, self._monotonic = connections, seconds, SystemClock.monotonic
        self._values = {"name": name, "owner": SystemClock().random_bytes(16), "seconds": seconds}
        self._ends = self._monotonic()

    @property
    def lost(self) -> bool:
        return self._monotonic() >= self._ends

    async def take(self) -> bool:
        return await self._lengthened(_TAKE)

    async def keep(self) -> None:
        """Extend the lease at a third of its time, until it is lost."""
        while not self.lost:
            await asyncio.sleep(self._seconds / 3)
            with suppress(BrokerError):  # the database is away: the lease lasts as long as was promised
                if not await self._lengthened(_EXTEND):
                    self._ends = self._monotonic()

    async def release(self) -> None:
        """Remove the row. If the database is away, the lease lapses."""
        with suppress(BrokerError):
            await self._connections.write(_RELEASE, self._values)

    async def _lengthened(self, statement: str) -> bool:
        asked = self._monotonic()
        if not await self._connections.write(statement, self._values):
            return False
        self._ends = asked + self._seconds
        return True


class LeaseRows:
    """The leases of one process. An asyncio lock in front of each row lets one task of a process compete for it."""

    def __init__(self, connections: ConnectionPool, *, seconds: float = LEASE_SECONDS) -> None:
        self._connections, self._seconds, self._gates = connections, seconds, TaskGates()

    @asynccontextmanager
    async def hold(self, name: str, wait: float) -> AsyncIterator[LeaseRow]:
        """Hold the lease for the body. Raises `storeLocked` after `wait` seconds, or sooner in a round of background
        work."""
        deadline = asyncio.get_running_loop().time() + seconds_to_wait(name, wait)
        async with self._gates.entered(name, deadline):
            held = await self._taken(name, deadline)
            keeping = asyncio.create_task(held.keep())
            try:
                yield held
            finally:
                keeping.cancel()
                await to_its_end(asyncio.ensure_future(held.release()))

    async def _taken(self, name: str, deadline: float) -> LeaseRow:
        loop, pause = asyncio.get_running_loop(), _SHORT
        held = LeaseRow(self._connections, name, seconds=self._seconds)
        while not await self._tried(held):
            now = loop.time()
            if now >= deadline:
                note_held(name)
                raise BrokerError(Code.STORE_LOCKED)
            await asyncio.sleep(min(deadline - now, SystemClock().jitter(pause / 2, pause)))
            pause = min(pause * 1.5, _LONG)
        return held

    @staticmethod
    async def _tried(held: LeaseRow) -> bool:
        """Try once. A caller that is cancelled meanwhile leaves no lease behind."""
        attempt = asyncio.ensure_future(held.take())
        try:
            return await to_its_end(attempt)
        except asyncio.CancelledError:
            if not attempt.cancelled() and attempt.exception() is None and attempt.result():
                await to_its_end(asyncio.ensure_future(held.release()))
            raise
