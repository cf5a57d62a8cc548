"""The database of entities and runs: SQLite or PostgreSQL, by SQLAlchemy Core. Its clock and its random numbers are
those of the runs, so that processes on several hosts have one time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
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
_LOCK: Final = "SELECT set_config('lock_timeout', '30s', true), pg_advisory_xact_lock(hashtextextended(%s, 0))"
_LOST_RACES: Final = frozenset({"40001", "40P01", "55P03"})  # serialization failure, deadlock, lock timeout


class Database:
    """Connections to one database. A transaction sees no change of others while it lasts, or fails as a lost race."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        self._locks = _locks(self.engine) if self.engine.dialect.name == "postgresql" else None

    def transaction(self) -> AbstractContextManager[Connection]:
        """Open a transaction. It is rolled back if the block raises."""
        return self.engine.begin()

    def reading(self) -> AbstractContextManager[Connection]:
        """Open a transaction that only reads: it neither waits for those that write, nor loses a race to them."""
        options = {} if self._locks is None else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        return self.engine.execution_options(only_reads=True, **options).begin()

    def clean(self) -> None:
        """Write over removed values, which SQLite has in its log until then. PostgreSQL does so by itself."""
        if self.engine.dialect.name == "sqlite":
            with closing(self.engine.raw_connection()) as connection:
                connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def locked(self, names: Iterable[str]) -> Iterator[None]:
        """Keep others that name the same out while the block works. SQLite has one writer, and needs no lock. The lock
        is that of a transaction of its own, on another connection: it ends with it, also behind a pooler."""
        if self._locks is None:
            yield
            return
        with self._locks.begin() as connection:
            for name in sorted(set(names)):
                connection.exec_driver_sql(_LOCK, (name,))
            yield

    def now(self, connection: Connection) -> float:
        """Return the database's time in seconds since 1970."""
        return float(connection.exec_driver_sql(_NOW[self.engine.dialect.name]).scalar_one())

    @staticmethod
    def random_id(connection: Connection) -> str:
        """Return 32 random hexadecimal digits."""
        return str(connection.exec_driver_sql(_RANDOM[connection.dialect.name]).scalar_one()).replace("-", "")


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
    scheme, _, rest = url.partition(":///")
    file = rest.partition("?")[0]
    return None if scheme != "sqlite" or file in {"", ":memory:"} or file.startswith("file:") else Path(file)


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


def _locks(engine: Engine) -> Engine:
    """Return the engine of locks. It has connections of its own: those that wait for a lock keep none from others."""
    made = create_engine(engine.url, isolation_level="READ COMMITTED")
    event.listen(engine, "engine_disposed", lambda _: made.dispose())
    return made


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver begins no transaction by itself; then DDL is transactional too
    for pragma in ("busy_timeout = 30000", "journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    only_reads = connection.get_execution_options().get("only_reads")
    connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")
