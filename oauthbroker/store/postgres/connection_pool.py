"""Run statements on a pool of connections. Translates every failure of the database into a store code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg_pool import PoolTimeout

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.core.secret import Secret
from oauthbroker.store.keys.keyed_store import OpenedHere
from oauthbroker.store.postgres.connect_failures import NOT_A_URL, connect_failure, is_lasting
from oauthbroker.store.postgres.contact import Contact
from oauthbroker.store.postgres.one_statement import rows_of
from oauthbroker.store.postgres.pools import MOST_CONNECTIONS, Pools
from oauthbroker.store.postgres.rights import MISSING, NEEDED, NO_RIGHT, READ_ONLY, refuse

PATIENCE_SECONDS: Final = 10.0  # for a connection and its statement
SLOW_SECONDS: Final = 2.0  # then a connection is tried beside it, which tells a slow statement from a silent database
NO_TABLES: Final = "the database lacks tables: run `oauthbroker init`, or `oauthbroker store migrate` after an upgrade"
NO_ANSWER: Final = "the database does not answer"
NO_FUNCTION: Final = "the database lacks a function of PostgreSQL: use PostgreSQL itself"

Values = Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None
"""The values of a statement, or what makes them right before it is sent."""


class ConnectionPool(OpenedHere):
    """The connections of one process to one database. `contact` is for leases. Belongs to one event loop."""

    def __init__(self, url: Secret) -> None:
        super().__init__()
        self.url, self.contact = url, Contact()
        self._pools = Pools(url, patience=PATIENCE_SECONDS)

    @property
    def back(self) -> Notifier:
        """Notifies when the database is back after it was away."""
        return self._pools.back

    async def read(self, statement: str, values: Values = None) -> list[tuple[Any, ...]]:
        """Run a statement that changes nothing, and return its rows. Runs it again if the connection was lost: a server
        that restarts cuts all of them."""
        for _ in range(MOST_CONNECTIONS):
            with suppress(_Lost):
                return await self._run(statement, values)
        return await self.write(statement, values)

    async def write(self, statement: str, values: Values = None) -> list[tuple[Any, ...]]:
        """Run one statement, which is a transaction, and return its rows.

        After `storeUnavailable` the change is either made or not: read it again.
        """
        try:
            return await self._run(statement, values)
        except _Lost as lost:
            failed = lost.failure
        raise failed

    async def close(self) -> None:
        if self.closed:
            return
        self.end()
        await self._pools.close()

    async def _run(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        self.check_open()
        failed: BrokerError | _Lost
        lacks_right = False
        slow = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._pools.suspect)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), _cancels():
                rows = await self._answer(statement, values)
        except (TimeoutError, PoolTimeout):
            failed = BrokerError(Code.STORE_UNAVAILABLE, note=NO_ANSWER)
            self._pools.suspect()
            self.contact.lost()
        except psycopg.Error as error:
            failed = failure(error)
            lacks_right = isinstance(error, psycopg.errors.InsufficientPrivilege)
            if isinstance(error, (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction)):
                self.contact.lost()
            if isinstance(error, psycopg.OperationalError):
                failed = _Lost(failed)
        else:
            self.contact.heard()
            return rows
        finally:
            slow.cancel()
        if lacks_right and statement != MISSING:
            refuse(await self._run(MISSING, NEEDED))
        raise failed

    async def _answer(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        async with self._pools.connection() as connection:
            return await rows_of(connection, statement, (values() if callable(values) else values) or {})


@asynccontextmanager
async def _cancels() -> AsyncIterator[None]:
    """End the body as cancelled if its task was. The pool may take the cancel for a connection that came too late
    (python/cpython#86296), and a statement that fails meanwhile raises its own error."""
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    finally:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError


class _Lost(Exception):
    """The connection was lost. The statement may have been run."""

    def __init__(self, failure: BrokerError) -> None:
        super().__init__()
        self.failure = failure


def failure(error: psycopg.Error) -> BrokerError:
    """Return the store code of a failure. The note has no text of the database, which may quote a value."""
    match error:
        case psycopg.errors.InsufficientPrivilege():
            return BrokerError(Code.STORE_UNAVAILABLE, note=NO_RIGHT, lasting=True)
        case psycopg.errors.UndefinedTable() | psycopg.errors.InvalidSchemaName() | psycopg.errors.UndefinedColumn():
            return BrokerError(Code.STORE_UNAVAILABLE, note=NO_TABLES, lasting=True)
        case psycopg.errors.UndefinedFunction() | psycopg.errors.FeatureNotSupported():
            return BrokerError(Code.STORE_UNAVAILABLE, note=NO_FUNCTION, lasting=True)
        case psycopg.errors.ReadOnlySqlTransaction():
            return BrokerError(Code.STORE_UNAVAILABLE, note=READ_ONLY)
        case psycopg.errors.DiskFull():
            return BrokerError(Code.STORE_UNAVAILABLE, note="the disk of the database is full: free space there")
    reason = "" if error.sqlstate else connect_failure(error)
    note = f"database: {reason or error.sqlstate or type(error).__name__}"
    return BrokerError(Code.STORE_UNAVAILABLE, note=note, lasting=reason != "" and is_lasting(error))


@contextmanager
def translated(connection: psycopg.Connection[Any] | None = None) -> Iterator[None]:
    """Raise the store code of what fails in the body, on a connection of its own. A given one, in no transaction, is
    asked which right is missing."""
    failed: BrokerError
    try:
        yield
        return
    except psycopg.errors.InsufficientPrivilege as error:
        failed = failure(error)
    except psycopg.errors.LockNotAvailable:
        failed = BrokerError(Code.STORE_LOCKED, note="statements of brokers are under way: stop the brokers first")
    except psycopg.ProgrammingError as error:
        no_url = BrokerError(Code.STORE_UNAVAILABLE, note=NOT_A_URL, lasting=True)
        failed = failure(error) if error.sqlstate else no_url
    except psycopg.Error as error:
        failed = failure(error)
    if connection is not None and failed.note == NO_RIGHT:
        refuse(connection.execute(MISSING, NEEDED).fetchall())
    raise failed
