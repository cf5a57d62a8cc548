"""Leases as rows, taken and kept by conditional statements, by the database's clock.

A lease decides who may send a request to a provider, and fences no write. No connection is held while a lease is. The
time left is measured from before the statement that took it, so this host never counts on more than the database gave.

A free row is taken at once, and so is one that this process has left behind. A lapsed row of another process is taken
by one that has been in contact with the database for a while: the holder may only have been cut off from it, with all
others, and then it is back by now and has extended its row.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import chain, repeat
from typing import Any, Final

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import note_held, to_its_end
from oauthbroker.store.postgres.connection_pool import ConnectionPool
from oauthbroker.store.postgres.contact import LEASE_SECONDS
from oauthbroker.store.postgres.pools import holds_lease
from oauthbroker.store.postgres.timeline import Timeline
from oauthbroker.store.task_gates import TaskGates

_SHORT, _LONG = 0.02, 0.25  # seconds between two tries, first and longest
_LEFT: Final = 10_000  # rows that this process may have left behind

_TAKE = """
insert into oauthbroker.lease as held (name, owner, until)
values (%(name)s, %(owner)s, clock_timestamp() + %(seconds)s * interval '1 second')
on conflict (name) do update set owner = excluded.owner, until = excluded.until
where held.owner = excluded.owner or (%(lapsed)s and held.until < clock_timestamp())
returning true
"""
_EXTEND = """
update oauthbroker.lease set until = clock_timestamp() + %(seconds)s * interval '1 second'
where name = %(name)s and owner = %(owner)s
returning true
"""
_RELEASE = "delete from oauthbroker.lease where name = %(name)s and owner = %(owner)s"


class LeaseRow:
    """A lease that is held. Time is real also under a test's clock, because the other host is real. The `owner` is of
    this attempt to hold it, or of one that this process has left behind."""

    def __init__(
        self, connections: ConnectionPool, timeline: Timeline, name: str, *, seconds: float, owner: bytes
    ) -> None:
        self._connections, self._timeline = connections, timeline
        self._seconds, self._monotonic, self._name = seconds, SystemClock.monotonic, name
        self.owner, self._values = owner, {"name": name, "owner": owner, "seconds": seconds}
        self._ends = self._monotonic()

    @property
    def lost(self) -> bool:
        return self._monotonic() >= self._ends

    async def holds(self) -> bool:
        """Tell whether the database says so, on a timeline whose grace is over."""
        return not self.lost and await self._timeline.look(self._name, self.owner) and self._timeline.settled

    async def acquire(self, *, lapsed: bool) -> bool:
        """Take the row if it is free or our own, with `lapsed` also if its holder seems to have vanished."""
        contact, timeline = self._connections.contact, self._timeline
        if lapsed and contact.steady:
            await timeline.look_again()

        def values() -> dict[str, Any]:
            return {**self._values, "lapsed": lapsed and contact.steady and timeline.settled}

        asked = self._monotonic()
        return self._noted(asked, bool(await self._connections.write(_TAKE, values)))

    async def keep_alive(self) -> None:
        """Extend the lease at a third of its time, and as soon as the database is back after it was away. A row that is
        gone is taken again: the database may have lost it."""
        holds_lease.set(True)
        back = self._connections.back
        signal = back.listen()
        while True:
            await back.wait(self._seconds / 3, signal)
            signal = back.listen()
            with suppress(BrokerError):  # the database is away: the lease lasts as long as was promised
                if not await self._extended():
                    await self.acquire(lapsed=False)

    async def _extended(self) -> bool:
        asked = self._monotonic()
        return self._noted(asked, bool(await self._connections.write(_EXTEND, self._values)))

    def _noted(self, asked: float, held: bool) -> bool:  # noqa: FBT001
        self._ends = asked + self._seconds if held else self._monotonic()
        return held

    async def release(self) -> bool:
        """Remove the row. False if the database is away: then the lease lapses."""
        with suppress(BrokerError):
            await self._connections.write(_RELEASE, self._values)
            return True
        return False


class LeaseRows:
    """The leases of one process. An asyncio lock in front of each row lets one task of a process compete for it."""

    def __init__(self, connections: ConnectionPool, timeline: Timeline, *, seconds: float = LEASE_SECONDS) -> None:
        self._connections, self._timeline, self._seconds, self._gates = connections, timeline, seconds, TaskGates()
        self._left = Bounded[str, bytes](_LEFT)  # the owners of rows that may have stayed

    @asynccontextmanager
    async def hold(self, name: str, wait: float) -> AsyncIterator[LeaseRow]:
        """Hold the lease for the body, in which only the database's word counts. Raises `storeLocked` as
        `TaskGates.entered`."""
        async with self._gates.entered(name, wait) as deadline:
            held = await self._taken(name, deadline)
            keeping, outside = asyncio.create_task(held.keep_alive()), holds_lease.get()
            holds_lease.set(True)
            try:
                yield held
            finally:
                holds_lease.set(outside)
                keeping.cancel()
                await to_its_end(asyncio.ensure_future(self._release(name, held)))

    async def _taken(self, name: str, deadline: float) -> LeaseRow:
        """Take the lease. The first try leaves a lapsed row alone, so that it is harmless if its answer is lost."""
        loop, pause = asyncio.get_running_loop(), _SHORT
        owner = self._left.pop(name) or SystemClock().random_bytes(16)
        held = LeaseRow(self._connections, self._timeline, name, seconds=self._seconds, owner=owner)
        for lapsed in chain([False], repeat(True)):
            if await self._tried(name, held, lapsed=lapsed):
                break
            now = loop.time()
            if lapsed and now >= deadline:
                note_held(name)
                raise BrokerError(Code.STORE_LOCKED)
            if lapsed:
                await asyncio.sleep(min(deadline - now, SystemClock().jitter(pause / 2, pause)))
                pause = min(pause * 1.5, _LONG)
        return held

    async def _tried(self, name: str, held: LeaseRow, *, lapsed: bool) -> bool:
        """Try once. A caller that is cancelled meanwhile leaves no lease behind."""
        attempt = asyncio.ensure_future(held.acquire(lapsed=lapsed))
        try:
            return await to_its_end(attempt)
        except asyncio.CancelledError:
            if not attempt.cancelled() and attempt.exception() is None and attempt.result():
                await to_its_end(asyncio.ensure_future(self._release(name, held)))
            raise
        except BrokerError:
            if not lapsed:
                self._left.keep(name, held.owner)
            raise

    async def _release(self, name: str, held: LeaseRow) -> None:
        if not await held.release():
            self._left.keep(name, held.owner)
