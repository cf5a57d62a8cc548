"""What the broker takes of psycopg, on the database of a world: connections, and the pool of them.

`oauthbroker.store.postgres` runs as it is. A URL is `world://HOST`, so that the database knows who asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

from oauthbroker.store.postgres import connection_pool, pools
from tests.world.database import Database
from tests.world.tables import Rows, Values

CONNECT_SECONDS = 0.003


class Cursor:
    """The rows of a statement."""

    description = ()

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def fetchall(self) -> Rows:
        return self._rows


class Connection:
    """A connection of one host."""

    def __init__(self, database: Database, host: str) -> None:
        self._database, self._session = database, database.connect(host)
        self.closed = False
        self.info = SimpleNamespace(backend_pid=self._session.pid)
        self.pgconn = SimpleNamespace(finish=self._end)

    async def execute(self, statement: str, values: Mapping[str, Any] | Sequence[Any] | None = None) -> Cursor:
        given = values if type(values) is dict else dict(zip("0123", values or (), strict=False))
        return Cursor(await self.rows_of(statement, given))

    async def rows_of(self, statement: str, values: Values) -> Rows:
        """Run a statement as `one_statement.rows_of` does."""
        if self.closed:
            raise psycopg.OperationalError("the connection is closed")
        try:
            return await self._database.ask(self._session, statement, values)
        except (psycopg.OperationalError, asyncio.CancelledError):
            self._end()
            raise

    async def notifies(self, *, timeout: float) -> AsyncIterator[Any]:
        """Yield notifications for so many seconds."""
        session = self._session
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while True:
                    await session.news.wait()
                    if session.broken:
                        raise psycopg.OperationalError("the server closed the connection unexpectedly")
                    session.news.clear()
                    news, session.notified = session.notified, []
                    for pid, payload in news:
                        yield SimpleNamespace(pid=pid, payload=payload)

    async def close(self) -> None:
        self._end()

    async def cancel_safe(self, *, timeout: float) -> None:
        """Do nothing: a world has no statement that waits for a lock."""

    def cut(self) -> None:
        """Let a statement fail now, as in `pools`."""
        self._database.lose(self._session)

    def _end(self) -> None:
        self.closed = True
        self._database.sessions.pop(self._session.pid, None)


class Pool:
    """As psycopg_pool's: who finds no connection waits, and a pool that cannot connect says so."""

    def __init__(
        self, database: Database, url: str, *, max_size: int, timeout: float, reconnect_timeout: float,
        reconnect_failed: Callable[[Any], None], **_: Any,
    ) -> None:  # fmt: skip
        self._database, self._host = database, host_of(url)
        self._most, self._timeout = max_size, timeout
        self._reconnect_seconds, self._reconnect_failed = reconnect_timeout, reconnect_failed
        self._idle, self._taken, self._changed = list[Connection](), 0, asyncio.Event()
        self.closed = True

    async def open(self) -> None:
        self.closed = False

    async def getconn(self) -> Connection:
        if self._idle and not self.closed:
            self._taken += 1
            return self._idle.pop()
        try:
            async with asyncio.timeout(self._timeout):
                return await self._connected()
        except TimeoutError:
            raise PoolTimeout from None

    async def _connected(self) -> Connection:
        while not self.closed:
            if self._idle:
                self._taken += 1
                return self._idle.pop()
            if self._taken < self._most:
                with suppress(psycopg.OperationalError):
                    connection = await connected(self._database, self._host)
                    self._taken += 1
                    return connection
                await asyncio.sleep(self._reconnect_seconds)
                self._reconnect_failed(self)
            else:
                self._changed.clear()
                await self._changed.wait()
        raise PoolClosed

    async def putconn(self, connection: Connection) -> None:
        self._taken -= 1
        self._changed.set()
        if self.closed:
            await connection.close()
        elif not connection.closed:
            self._idle.append(connection)

    async def close(self, timeout: float = 5.0) -> None:
        self.closed = True
        self._changed.set()
        for connection in self._idle:
            await connection.close()


def host_of(url: str) -> str:
    return url.removeprefix("world://")


async def connected(database: Database, host: str) -> Connection:
    await asyncio.sleep(CONNECT_SECONDS)
    return Connection(database, host)


@contextmanager
def driving(database: Database) -> Any:
    """Let the broker's connections lead to this database."""

    async def connect(url: str, **_: Any) -> Connection:
        return await connected(database, host_of(url))

    def pool(url: str, **terms: Any) -> Pool:
        return Pool(database, url, **terms)

    with ExitStack() as patched:
        patched.enter_context(patch.object(connection_pool, "rows_of", Connection.rows_of))
        patched.enter_context(patch.object(pools, "AsyncConnectionPool", pool))
        patched.enter_context(patch.object(pools, "_cut", Connection.cut))
        patched.enter_context(patch.object(psycopg.AsyncConnection, "connect", connect))
        yield
