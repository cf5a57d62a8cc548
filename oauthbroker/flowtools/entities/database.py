"""The database of entities and runs: SQLite or PostgreSQL, by SQLAlchemy Core.

Its clock and its random numbers are those of the runs, so that processes on several hosts have one time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import ArgumentError, DBAPIError

_NOW: Final = {
    "sqlite": "SELECT (julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)",
}
_RANDOM: Final = {"sqlite": "SELECT lower(hex(randomblob(16)))", "postgresql": "SELECT CAST(gen_random_uuid() AS text)"}
_LOST_RACES: Final = frozenset({"40001", "40P01"})  # serialization failure, deadlock


class Database:
    """Connections to one database. A transaction sees no change of others while it lasts, or fails as a lost race."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction. It is rolled back if the block raises."""
        with self.engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that only reads. It does not wait for those that write to SQLite, nor they for it."""
        with self.engine.execution_options(only_reads=True, postgresql_readonly=True).begin() as connection:
            yield connection

    def now(self, connection: Connection) -> float:
        """Return the database's time in seconds since 1970."""
        return float(connection.exec_driver_sql(_NOW[self.engine.dialect.name]).scalar_one())

    def random_id(self, connection: Connection) -> str:
        """Return 32 random hexadecimal digits."""
        return str(connection.exec_driver_sql(_RANDOM[self.engine.dialect.name]).scalar_one()).replace("-", "")


def iso(seconds: float) -> str:
    """Return a time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_lost_race(error: Exception) -> bool:
    """Tell whether a transaction failed because of another one, so that it can be tried again."""
    if not isinstance(error, DBAPIError):
        return False
    return getattr(error.orig, "sqlstate", None) in _LOST_RACES or "database is locked" in str(error.orig)


def sqlite_file(url: str) -> Path | None:
    """Return the file of a database; None for one in memory, and for a server's."""
    file = url.removeprefix("sqlite:///").partition("?")[0]
    return None if file in {url, ":memory:"} or file.startswith("file:") else Path(file)


def _engine(url: str) -> Engine:
    """Return an engine for `sqlite:///file` or `postgresql://...`. Raises ValueError for another URL."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in {"sqlite", "postgresql"} or (scheme == "sqlite" and len(rest) < 2):
        raise ValueError("the database is no URL such as sqlite:///flows.db or postgresql://user@host/name")
    try:
        if scheme == "postgresql":
            return create_engine(f"postgresql+psycopg://{rest}", isolation_level="SERIALIZABLE")
        engine = create_engine(url)
    except ArgumentError:
        raise ValueError("the URL of the database cannot be read") from None
    if (file := sqlite_file(url)) is not None:
        with suppress(OSError):  # the connection tells why it cannot be opened
            file.touch(mode=0o600)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver begins no transaction by itself; then DDL is transactional too
    for pragma in ("busy_timeout = 30000", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    only_reads = connection.get_execution_options().get("only_reads")
    connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")
