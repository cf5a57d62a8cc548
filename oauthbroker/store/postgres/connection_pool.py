"""Run statements on a pool of connections. Translates every failure of the database into a store code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg_pool import PoolTimeout

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.core.opened_here import OpenedHere
from oauthbroker.core.secret import Secret
from oauthbroker.store.postgres.connect_failures import NO_STATEMENT, connect_failure, is_lasting, url_failure
from oauthbroker.store.postgres.contact import Contact
from oauthbroker.store.postgres.one_statement import rows_of
from oauthbroker.store.postgres.pools import MOST_CONNECTIONS, Pools
from oauthbroker.store.postgres.rights import MISSING, NEEDED, NO_RIGHT, READ_ONLY, refuse

PATIENCE_SECONDS: Final = 10.0  # for a connection and its statement
SLOW_SECONDS: Final = 2.0  # then a connection is tried beside it, which tells a slow statement from a silent database
LOOK_SECONDS: Final = 0.25  # between two looks at how long the statements under way take
NO_TABLES: Final = "the database lacks tables: run `oauthbroker store migrate`, which names those that are lost"
NO_ANSWER: Final = "the database does not answer"
NO_FUNCTION: Final = "the database lacks a function of PostgreSQL: use PostgreSQL itself"
_KNOWN: Final[Sequence[tuple[tuple[type[psycopg.Error], ...], str, bool]]] = (
    ((errors.InsufficientPrivilege,), NO_RIGHT, True),
    ((errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn), NO_TABLES, True),
    ((errors.UndefinedFunction, errors.FeatureNotSupported), NO_FUNCTION, True),
    ((errors.ReadOnlySqlTransaction,), READ_ONLY, False),
    ((errors.QueryCanceled,), f"database: {NO_STATEMENT}", False),
    ((errors.DiskFull,), "the disk of the database is full: free space there", False),
)
_STOPS: Final = "57P"  # how the codes begin of a server that starts, stops or ends a connection

Values = Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None
"""The values of a statement, or what makes them right before it is sent."""


class ConnectionPool(OpenedHere):
    """The connections of one process to one database. `contact` is for leases. Belongs to one event loop."""

    def __init__(self, url: Secret) -> None:
        super().__init__()
        self.url, self.contact = url, Contact()
        self._pools = Pools(url, patience=PATIENCE_SECONDS)
        self._under_way = dict[asyncio.Timeout, float]()  # since when, the oldest first
        self._looks, self._tried_at = False, 0.0

    @property
    def back(self) -> Notifier:
        """Notifies when the database is back after it was away."""
        return self._pools.back

    async def read(self, statement: str, values: Values = None) -> list[tuple[Any, ...]]:
        """Run a statement that changes nothing, and return its rows. Runs it again if the connection was lost: a server
        that restarts cuts all of them."""
        for _ in range(MOST_CONNECTIONS):
            with suppress(LostConnectionError):
                return await self.write(statement, values)
        return await self.write(statement, values)

    async def write(self, statement: str, values: Values = None) -> list[tuple[Any, ...]]:
        """Run one statement, which is a transaction, and return its rows.

        After `storeUnavailable` the change is either made or not: read it again.
        """
        self.check_open()
        try:
            async with asyncio.timeout(None) as limit:
                rows = await self._answer(statement, values, limit)
            self.contact.heard()
            return rows
        except (TimeoutError, PoolTimeout):
            failed = BrokerError(Code.STORE_UNAVAILABLE, note=NO_ANSWER)
            self._pools.suspect()
            self.contact.lost()
        except psycopg.Error as error:
            failed = failure(error)
            if isinstance(error, (psycopg.OperationalError, errors.ReadOnlySqlTransaction)):
                self.contact.lost()
        if failed.note == NO_RIGHT and statement != MISSING:
            refuse(await self.read(MISSING, NEEDED))
        raise failed

    async def close(self) -> None:
        if self.closed:
            return
        self.end()
        await self._pools.close()

    async def _answer(self, statement: str, values: Values, limit: asyncio.Timeout) -> list[tuple[Any, ...]]:
        """Run a statement. Ends as cancelled if its task was: the pool may take the cancel for a connection that came
        too late (python/cpython#86296), and a statement that fails meanwhile raises its own error."""
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        self._under_way[limit] = asyncio.get_running_loop().time()
        if not self._looks:
            self._look()
        try:
            async with self._pools.connection() as connection:
                return await rows_of(connection, statement, (values() if callable(values) else values) or {})
        finally:
            del self._under_way[limit]
            if task and task.cancelling() > before:
                raise asyncio.CancelledError

    def _look(self) -> None:
        """End the statements whose time is over, now and then: a timer for each one would cost as much as the rest."""
        loop, now = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        ages = {limit: now - began for limit, began in self._under_way.items()}
        if max(ages.values(), default=0.0) >= SLOW_SECONDS:
            self._pools.cut_stuck()
            if now - self._tried_at >= SLOW_SECONDS:
                self._tried_at = now
                self._pools.suspect()
        for limit, age in ages.items():
            if age >= PATIENCE_SECONDS and not limit.expired():
                limit.reschedule(now)
        self._looks = bool(ages)
        if ages:
            loop.call_later(LOOK_SECONDS, self._look)


class LostConnectionError(BrokerError):
    """The connection was lost. The statement may have been run."""


def failure(error: psycopg.Error) -> BrokerError:
    """Return the store code of a failure. The note has no text of the database, which may quote a value."""
    for kinds, known, lasting in _KNOWN:
        if isinstance(error, kinds):
            return BrokerError(Code.STORE_UNAVAILABLE, note=known, lasting=lasting)
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return BrokerError(Code.STORE_UNAVAILABLE, note=url_failure(error), lasting=True)
    reason = connect_failure(error) if (error.sqlstate or _STOPS).startswith(_STOPS) else ""
    note = f"database: {reason or error.sqlstate or type(error).__name__}"
    kind = LostConnectionError if isinstance(error, psycopg.OperationalError) else BrokerError
    return kind(Code.STORE_UNAVAILABLE, note=note, lasting=reason != "" and is_lasting(error))


@contextmanager
def translated(connection: psycopg.Connection[Any] | None = None) -> Iterator[None]:
    """Raise the store code of what fails in the body, on a connection of its own. A given one, in no transaction, is
    asked which right is missing."""
    try:
        yield
        return
    except errors.LockNotAvailable:
        failed = BrokerError(Code.STORE_LOCKED, note="statements of brokers are under way: stop the brokers first")
    except psycopg.Error as error:
        failed = failure(error)
    if connection is not None and failed.note == NO_RIGHT:
        refuse(connection.execute(MISSING, NEEDED).fetchall())
    raise failed
