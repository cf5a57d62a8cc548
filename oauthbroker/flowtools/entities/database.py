"""The database of entities and runs: SQLite or PostgreSQL, by SQLAlchemy Core. Its clock and its random numbers are
those of the runs, so that processes on several hosts have one time. The tables of entities, and the plan of a change:
by the document that made a table, and the one that is given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import BigInteger, Boolean, Column, ColumnElement, Connection, Double, Integer, MetaData, Table, Text
from sqlalchemy.exc import ArgumentError, DBAPIError

from oauthbroker.flowtools.entities.definition import Entity

_NOW: Final = {
    "sqlite": "SELECT (julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)",
}
_RANDOM: Final = {"sqlite": "SELECT lower(hex(randomblob(16)))", "postgresql": "SELECT CAST(gen_random_uuid() AS text)"}
_LOCK: Final = "SELECT set_config('lock_timeout', '30s', true), pg_advisory_xact_lock(hashtextextended(%s, 0))"
_LOST_RACES: Final = {"40001", "40P01", "55P03", "42P07", "42710"}  # serialization, deadlock, lock, a table or its type
_TYPES: Final[Mapping[str, Any]] = {"number": Double, "integer": BigInteger, "boolean": Boolean}
_DECLARED = Table(
    "flow_entity", MetaData(), Column("name", Text, primary_key=True), Column("document", Text, nullable=False)
)


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


def _engine(url: str) -> sa.Engine:
    """Return an engine for `sqlite:///file` or `postgresql://...`. Raises ValueError for another URL."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in {"sqlite", "postgresql"} or (scheme == "sqlite" and len(rest) < 2):
        raise ValueError("the database is no URL such as sqlite:///flows.db or postgresql://user@host/name")
    try:
        if scheme == "postgresql":
            return sa.create_engine(f"postgresql+psycopg://{rest}", isolation_level="SERIALIZABLE")
        engine = sa.create_engine(url)
    except ArgumentError:
        raise ValueError("the URL of the database cannot be read") from None
    if (file := sqlite_file(url)) is not None:
        with suppress(OSError):  # the connection tells why it cannot be opened
            file.touch(mode=0o600)
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _locks(engine: sa.Engine) -> sa.Engine:
    """Return the engine of locks. It has connections of its own: those that wait for a lock keep none from others."""
    made = sa.create_engine(engine.url, isolation_level="READ COMMITTED")
    sa.event.listen(engine, "engine_disposed", lambda _: made.dispose())
    return made


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver begins no transaction by itself; then DDL is transactional too
    for pragma in ("busy_timeout = 30000", "journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    only_reads = connection.get_execution_options().get("only_reads")
    connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One step of a plan. `refused` says which data it would lose; empty if it loses none."""

    what: str
    refused: str = ""
    statement: str | None = None

    def __str__(self) -> str:
        return f"refused: {self.what}: {self.refused}" if self.refused else self.what


def table_of(entity: Entity) -> Table:
    """Return the table of an entity. A soft-deleted row keeps its values and has `deletedAt`."""
    fields = tuple((name, each.type) for name, each in entity.fields.items())
    return _table(entity.name.lower(), fields, has_status=entity.status is not None)


@lru_cache(1024)
def _table(name: str, fields: tuple[tuple[str, str], ...], *, has_status: bool) -> Table:
    """Return one object for equal entities, so that the statements of a table are compiled once."""
    own: list[Column[Any]] = [
        Column("id", Text, primary_key=True),
        Column("version", Integer, nullable=False),
        Column("deletedAt", Text),
    ]
    status: list[Column[Any]] = [Column("status", Text, nullable=False)] if has_status else []
    return Table(f"entity_{name}", MetaData(), *own, *status, *[_column(*each) for each in fields])


def _column(name: str, kind: str) -> Column[Any]:
    return Column(name, _TYPES.get(kind, Text))


def plan(database: Database, entities: Iterable[Entity]) -> list[Change]:
    """Return the changes that make the tables fit the entities; empty if they do. Changes nothing."""
    with database.reading() as connection:
        return [change for entity in entities for change in _changes(connection, entity)]


def apply(database: Database, entities: Iterable[Entity]) -> list[Change]:
    """Make the tables fit, all of them or none. Raises ValueError if data would be lost."""
    entities = list(entities)
    with database.transaction() as connection:
        _DECLARED.create(connection, checkfirst=True)
        done = []
        for entity in entities:
            changes = list(_changes(connection, entity))
            if refused := [str(each) for each in changes if each.refused]:
                raise ValueError("\n".join(refused))
            if not changes:
                continue
            if _declared(connection, entity) is None:
                table_of(entity).create(connection)
            for each in changes:
                if each.statement is not None:
                    connection.exec_driver_sql(each.statement)
            connection.execute(sa.delete(_DECLARED).where(_DECLARED.c.name == entity.name))
            document = json.dumps(entity.written, sort_keys=True)
            connection.execute(sa.insert(_DECLARED).values(name=entity.name, document=document))
            done += changes
    return done


def _declared(connection: Connection, entity: Entity) -> dict[str, Any] | None:
    if not sa.inspect(connection).has_table(_DECLARED.name):
        return None
    found = connection.execute(sa.select(_DECLARED.c.document).where(_DECLARED.c.name == entity.name)).scalar()
    return None if found is None else dict(json.loads(found))


def _changes(connection: Connection, entity: Entity) -> Iterator[Change]:
    before, table = _declared(connection, entity), table_of(entity)
    if before is None:
        taken = f"{table.name} is there undeclared; rename it" if sa.inspect(connection).has_table(table.name) else ""
        yield Change(what=f"{entity.name}: create the table", refused=taken)
        return
    if before == json.loads(json.dumps(entity.written)):
        return
    rows = _Rows(connection, table)
    fields: Mapping[str, Mapping[str, Any]] = before["fields"]
    for name, old in fields.items():
        new = entity.fields.get(name)
        if new is None:
            kept = "rows have values in it" if rows.any(sa.column(name).is_not(None)) else ""
            yield Change(what=f"{entity.name}: remove the field {name}", refused=kept, statement=rows.drop(name))
        elif new.type != old["type"]:
            kept = "rows have values of the other type" if rows.any(sa.column(name).is_not(None)) else ""
            what = f"{entity.name}: change the field {name} from {old['type']} to {new.type}"
            yield Change(what=what, refused=kept, statement=rows.drop(name))
            yield Change(what=f"{entity.name}: add the field {name} again", statement=rows.add(name, new.type))
        if new is not None and new.required and not old.get("required", False):
            reason = "rows lack it" if rows.any(sa.column(name).is_(None)) else ""
            yield Change(what=f"{entity.name}: require the field {name}", refused=reason)
    for name, new in entity.fields.items():
        if name not in fields:
            reason = "rows would lack it; add it without `required` first" if new.required and rows.any() else ""
            added = rows.add(name, new.type)
            yield Change(what=f"{entity.name}: add the field {name}", refused=reason, statement=added)
    yield from _status_changes(entity, before.get("status"), rows)
    yield Change(what=f"{entity.name}: keep the new declaration")


def _status_changes(entity: Entity, before: Mapping[str, Any] | None, rows: _Rows) -> Iterator[Change]:
    if (before is None) != (entity.status is None):
        yield Change(what=f"{entity.name}: add or remove the status", refused="declare another entity")
    for name in before["transitions"] if before and entity.status else ():
        if entity.status and name not in entity.status.transitions:
            kept = "rows have it" if rows.any(sa.column("status") == name) else ""
            yield Change(what=f"{entity.name}: remove the status {name}", refused=kept)


class _Rows:
    """A question about the rows of a table, soft-deleted rows included, and the statements that change its columns."""

    def __init__(self, connection: Connection, table: Table) -> None:
        self._connection, self._table = connection, table
        self._names = connection.dialect.identifier_preparer

    def any(self, *conditions: ColumnElement[bool]) -> bool:
        wanted = sa.select(sa.literal(1)).select_from(self._table).where(*conditions).limit(1)
        return self._connection.execute(wanted).first() is not None

    def drop(self, name: str) -> str:
        return f"ALTER TABLE {self._names.format_table(self._table)} DROP COLUMN {self._names.quote(name)}"

    def add(self, name: str, kind: str) -> str:
        table, sql = self._names.format_table(self._table), _column(name, kind).type.compile(self._connection.dialect)
        return f"ALTER TABLE {table} ADD COLUMN {self._names.quote(name)} {sql}"
