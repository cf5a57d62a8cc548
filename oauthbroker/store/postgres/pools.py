"""The pool of connections that is in use, and a new one as soon as the database is back.

A pool connects again by itself, after longer and longer pauses: calls would fail for half a minute after the return. So
the first lost connection, or slow statement, starts plain attempts to connect and to ask, about two each second. When
one succeeds, a new pool takes over, and those who hold a lease go first: they may have the only copy of a rotated
token. A restart takes a second or two: calls wait as long. Then the database is known to be away (one that answers no
connection, or no statement, in six), and they fail with the cause.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg_pool import AsyncConnectionPool, PoolClosed

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.core.secret import Secret
from oauthbroker.store.postgres.connect_failures import FULL, SILENT


class _PooledConnection(psycopg.AsyncConnection[Any]):
    """A connection of a broker: the library's warnings name its class."""


_Pool = AsyncConnectionPool[_PooledConnection]

MOST_CONNECTIONS: Final = 8  # of one process
WAIT_SECONDS: Final = 2.0  # for a database that does not accept connections, before it is known to be away
PROBE_SECONDS: Final = 0.5  # between two attempts to connect, at the most
_NAME: Final = "oauthbroker-pool"
SOON_SECONDS: Final = 0.1  # for attempts to connect that are under way, once the database is known to be away
HOLDERS_SECONDS: Final = 0.5  # in which only holders of leases use a database that is back
TERMS: Final[Mapping[str, Any]] = {
    "autocommit": True,
    "prepare_threshold": None,  # a pooler in transaction mode gives each statement another session
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "tcp_user_timeout": 10_000,
    "application_name": "oauthbroker",
}
_PROBE: Final[Mapping[str, Any]] = {**TERMS, "connect_timeout": 2}  # the least: a packet may get lost without a word
ANSWER_SECONDS: Final = 2.0  # for the statement of a probe; the server ends it sooner, so that none stays there
CANCEL_SECONDS: Final = 0.5  # for the server to end a statement that waits, before its connection is cut
ASK: Final = """
begin; set local lock_timeout = 1500; set local statement_timeout = 1500;
select from oauthbroker.entry where kind = '' limit 1; commit
"""  # waits for a lock of the whole table, and for none of a row

holds_lease: ContextVar[bool] = ContextVar("holds_lease", default=False)  # of the task that runs a statement


class Pools:
    """The pool in use. Belongs to one event loop. `back` notifies when the database is back after it was away."""

    def __init__(self, url: Secret, *, patience: float) -> None:
        self.back, self._url, self._patience = Notifier(), url, patience
        logging.getLogger("psycopg.pool").addFilter(_of_other_pools)
        self._pool = self._made()
        self._for_all = asyncio.Event()
        self._for_all.set()
        self._looked = asyncio.Event()  # a pool that may be broken is not used until the database was asked once
        self._looked.set()
        self._probe: asyncio.Task[None] | None = None
        self._closed = False
        self._in_use = dict[_PooledConnection, float]()  # since when
        self._away: psycopg.Error | None = None  # why a database that is known to be away accepts no connection
        self._tasks = set[asyncio.Task[None]]()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[_PooledConnection]:
        """Hold a connection for the body. If it is broken afterwards, the next pool is on its way."""
        pool, connection = await self._taken()
        self._in_use[connection] = SystemClock.monotonic()
        try:
            yield connection
        except psycopg.OperationalError:
            if self._away is None:
                raise
            raise psycopg.OperationalError(*self._away.args) from None
        finally:
            del self._in_use[connection]
            if connection.closed and pool is self._pool:
                self.suspect(is_broken=True)
            await pool.putconn(connection)

    def suspect(self, *, is_broken: bool = False) -> None:
        """Look whether the database is away: no connection came in time, or no answer, or the pool `is_broken`."""
        if self._probe is None and not self._closed:
            self._looked.clear()
            self._probe = self._begin(self._until_back(is_broken=is_broken))

    def cut_stuck(self) -> None:
        """Cut the connections whose statements have not even ended when they were cancelled."""
        for connection, since in self._in_use.items():
            if SystemClock.monotonic() - since > self._patience + 1:
                _cut(connection)

    async def close(self) -> None:
        self._closed = True
        if self._probe is not None:
            self._probe.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.close()

    def _made(self) -> _Pool:
        return AsyncConnectionPool(
            self._url.reveal(),
            min_size=1,
            max_size=MOST_CONNECTIONS,
            open=False,
            name=_NAME,
            connection_class=_PooledConnection,
            kwargs=dict(TERMS),
            timeout=self._patience,
            reconnect_timeout=PROBE_SECONDS,
            reconnect_failed=self._gave_up,
        )

    def _gave_up(self, pool: _Pool) -> None:
        """Look for another pool in the place of one that could not connect."""
        if pool is self._pool:
            self.suspect(is_broken=True)

    async def _taken(self) -> tuple[_Pool, _PooledConnection]:
        """Take a connection, from the next pool if that takes over meanwhile."""
        while True:
            await self._looked.wait()
            if self._away is not None:
                raise psycopg.OperationalError(*self._away.args)
            if not holds_lease.get():
                await self._for_all.wait()
            pool = self._pool
            try:
                if pool.closed:
                    await pool.open()
                return pool, await pool.getconn()
            except PoolClosed:
                if pool is self._pool and self._away is None:
                    raise

    async def _until_back(self, *, is_broken: bool) -> None:
        """Wait until the database accepts connections. A pool that has lost one may have lost all."""
        tries, began, accepts = 0, SystemClock.monotonic(), False
        try:
            while (refused := await self._refused()) is not None and (is_broken or not re.search(FULL, str(refused))):
                tries, accepts = tries + 1, accepts or SILENT in str(refused)
                if tries > 1 and SystemClock.monotonic() - began >= WAIT_SECONDS:
                    if self._away is None:
                        self._begin(self._pool.close(timeout=SOON_SECONDS))  # who waits for a connection is told so
                        for connection in self._in_use:  # and who waits for an answer
                            self._begin(_ended(connection, asked=accepts))
                    self._away = refused  # the cause of now
                self._looked.set()
                await asyncio.sleep(SystemClock().jitter(PROBE_SECONDS / 2, PROBE_SECONDS))
            if tries or is_broken:
                await self._take_over(was_away=tries > 0)
        finally:
            self._probe = self._away = None
            self._looked.set()

    async def _refused(self) -> psycopg.Error | None:
        """Return why the database accepts no connection, or answers no statement; None if it does. A refusal of the
        statement alone, such as for a right, is an answer."""
        try:
            connection = await psycopg.AsyncConnection.connect(self._url.reveal(), **_PROBE)
        except (psycopg.Error, OSError) as error:
            return psycopg.OperationalError(*error.args)
        asking = asyncio.ensure_future(connection.execute(ASK))
        try:
            await asyncio.wait([asking], timeout=ANSWER_SECONDS)
            is_late = not asking.done()
        finally:
            if not asking.done():
                _cut(connection)
                await asyncio.wait([asking])
            failed = asking.exception()
            connection.pgconn.finish()
        if is_late or isinstance(failed, (errors.QueryCanceled, errors.LockNotAvailable)):
            return psycopg.OperationalError(SILENT)
        return psycopg.OperationalError(*failed.args) if isinstance(failed, psycopg.OperationalError) else None

    async def _take_over(self, *, was_away: bool) -> None:
        """Put a new pool in the place of the one in use. Who waits for a connection gets one of the new one."""
        before, self._pool = self._pool, self._made()
        await self._pool.open()
        if was_away:
            self._for_all.clear()
            asyncio.get_running_loop().call_later(HOLDERS_SECONDS, self._for_all.set)
            self.back.notify()
        self._begin(before.close())

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _of_other_pools(record: logging.LogRecord) -> bool:
    """Drop the library's warnings of our pools and connections: the broker itself logs an outage, with its cause."""
    return record.levelno < logging.WARNING or "oauthbroker" not in record.getMessage()


async def _ended(connection: _PooledConnection, *, asked: bool) -> None:
    """End the statement of a connection. A server that accepts connections is asked first: cut off, it would go on to
    wait for a lock, and run the statement long afterwards."""
    if asked:
        with suppress(psycopg.Error, OSError):
            await connection.cancel_safe(timeout=CANCEL_SECONDS)
    _cut(connection)


def _cut(connection: psycopg.AsyncConnection[Any]) -> None:
    """Let a statement fail now. The driver would ask the server to end it, and wait ten more seconds for that."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as way:
        way.shutdown(socket.SHUT_RDWR)
