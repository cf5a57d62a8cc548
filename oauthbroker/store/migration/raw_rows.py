"""The records of a store in PostgreSQL as they lie there, for its migration.

The name of the schema says whether brokers may use the tables: a move renames it, in one transaction that waits for
statements under way. So from that moment on the statements of every broker fail, also of one that was cut off
meanwhile. The schema's comment is the mark of the move.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, Final

import psycopg
from psycopg import sql

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.store.format.seal import generation_of
from oauthbroker.store.keys.keyring_document import readable_epoch
from oauthbroker.store.migration.raw import LAST, RawRecord
from oauthbroker.store.posix.migration_marker import MigrationMarker
from oauthbroker.store.postgres.connection_pool import translated
from oauthbroker.store.postgres.pools import TERMS
from oauthbroker.store.postgres.schema import SCHEMAS, check_server, mark_of, migrate

_ONE_AT_A_TIME: Final = 0x6F61756D  # the key of the lock that a command holds for its connection
_EVENTS: Final = "events"
_PATIENCE: Final = "10s"  # for the tables, while statements of brokers end
_LOOKS: Final = 20  # for the sessions of brokers that have closed their connections

_TAGS = """array(
    select label || ' ' || encode(value, 'hex') from {schema}.tag where tag.kind = entry.kind and tag.name = entry.name
) as tags"""
_RANGE = """name > decode(%(after)s, 'hex') and (%(upto)s = '' or name <= decode(%(upto)s, 'hex'))
order by name limit %(limit)s"""
_RECORDS = f"""
select encode(name, 'hex'), record, {_TAGS} from {{schema}}.entry where kind = %(kind)s and {_RANGE}
"""  # noqa: S608  (of constants)
# A copy takes events that wait as rows of a queue as entries. Brokers make queues of these when they first look.
_WITH_QUEUED = f"""
select encode(name, 'hex'), record, tags from (
    select name, record, {_TAGS} from {{schema}}.entry where kind = 'events'
    union all select id, record, '{{{{}}}}' from {{schema}}.queued
    where record is not null and not exists (select from {{schema}}.entry where kind = 'events' and name = id)
) as event where {_RANGE}
"""  # noqa: S608  (of constants)
_COUNT = """
select (select count(*) from {schema}.entry where kind = %(kind)s)
     + (select count(*) from {schema}.queued where %(events)s and record is not null)
"""
_PAUSE = "select pg_sleep(0.1)"
_REMOVE_QUEUED = "delete from {schema}.queued where id = decode(%(name)s, 'hex')"
_TRIGGERS = "alter table {} {} trigger user"
_WRITE = """
insert into {schema}.entry as held (kind, name, generation, record)
values (%(kind)s, decode(%(name)s, 'hex'), %(generation)s, %(record)s)
on conflict (kind, name) do update
set generation = excluded.generation, version = nextval('{schema}.version'), record = excluded.record
"""
_UNTAG = "delete from {schema}.tag where kind = %(kind)s and name = decode(%(name)s, 'hex')"
_TAG = """
insert into {schema}.tag (kind, label, value, name)
values (%(kind)s, %(label)s, decode(%(value)s, 'hex'), decode(%(name)s, 'hex'))
"""
_REMOVE = "delete from {schema}.entry where kind = %(kind)s and name = decode(%(name)s, 'hex')"
_USERS = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name = 'oauthbroker' and pid <> pg_backend_pid()
"""
_TABLES = "select tablename from pg_tables where schemaname = %(schema)s order by tablename"


class RawRows:
    """A `RawStore` in a database. With `make`, tables are made where there are none. Needs a session of its own: not
    through a pooler in transaction mode."""

    def __init__(self, url: Secret, word: str, *, make: bool = False) -> None:
        self._url, self.word, self._make = url, word, make
        terms = {**TERMS, "application_name": "oauthbroker-move", "tcp_user_timeout": 60_000}
        with translated():
            self._connection = psycopg.connect(url.reveal(), **terms)
        with ExitStack() as failing, translated():
            failing.callback(self._connection.close)
            check_server(self._connection)
            rows = self._connection.execute("select pg_try_advisory_lock(%s)", [_ONE_AT_A_TIME]).fetchall()
            self._schema, self._mark = mark_of(self._connection)
            if not rows[0][0]:
                raise BrokerError(Code.STORE_LOCKED, note="another command moves this store")
            failing.pop_all()

    def keyring(self) -> bytes | None:
        rows = self._run("select document from {schema}.keyring") if self._schema else []
        return bytes(rows[0][0]) if rows else None

    def put_keyring(self, document: bytes) -> None:
        self._run(
            "insert into {schema}.keyring (document, epoch) values (%(document)s, %(epoch)s) "
            "on conflict (one) do update set document = excluded.document, epoch = excluded.epoch",
            {"document": document, "epoch": readable_epoch(document)},
        )

    def mark(self) -> MigrationMarker | None:
        return self._mark

    def set_mark(self, mark: MigrationMarker | None, *, expect: MigrationMarker | None) -> None:
        if not self._schema and self._make:
            migrate(self._url)
            self._schema = SCHEMAS[None]
        with translated():
            found = mark_of(self._connection)
        if found != (self._schema, expect):
            raise BrokerError(Code.STORE_LOCKED, note="another command has changed the mark of the move")
        schema = SCHEMAS[mark.state if mark is not None else None]
        with translated(), self._connection.transaction():
            self._rename(schema)
            comment = mark.encoded().decode().strip() if mark is not None else None
            self._connection.execute(
                sql.SQL("comment on schema {} is {}").format(sql.Identifier(schema), sql.Literal(comment))
            )
        self._schema, self._mark = schema, mark

    def _rename(self, schema: str) -> None:
        """Rename the schema when no statement of a broker is under way. A waiting one fails: it looks up names anew."""
        if schema == self._schema:
            return
        self._connection.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(_PATIENCE)))
        tables = self._connection.execute(_TABLES, {"schema": self._schema}).fetchall()
        names = [sql.Identifier(self._schema, table) for (table,) in tables]
        self._connection.execute(sql.SQL("lock table {} in access exclusive mode").format(sql.SQL(", ").join(names)))
        switch = sql.SQL("enable" if schema == SCHEMAS[None] else "disable")  # their bodies name the living schema
        for name in names:
            self._connection.execute(sql.SQL(_TRIGGERS).format(name, switch))
        renamed = sql.SQL("alter schema {} rename to {}")
        self._connection.execute(renamed.format(sql.Identifier(self._schema), sql.Identifier(schema)))

    def users(self) -> int:
        for _ in range(_LOOKS):
            count = int(self._run(_USERS)[0][0])
            if not count:
                break
            self._run(_PAUSE)
        return count

    def kinds(self) -> set[str]:
        if not self._schema:
            return set()
        return {kind for (kind,) in self._run("select distinct kind from {schema}.entry")}

    def records(self, kind: str, after: str = "", *, upto: str = LAST, limit: int | None = None) -> list[RawRecord]:
        values = {"kind": kind, "after": after, "upto": "" if upto == LAST else upto, "limit": limit}
        statement = _WITH_QUEUED if kind == _EVENTS else _RECORDS
        return [
            RawRecord(name, bytes(record), frozenset(tuple(tag.split(" ")) for tag in tags))
            for name, record, tags in self._run(statement, values)
        ]

    def missing(self, kinds: Collection[str]) -> list[str]:  # noqa: ARG002  (a table has all kinds, and is looked for)
        return []

    def count(self, kind: str) -> int:
        return int(self._run(_COUNT, {"kind": kind, "events": kind == _EVENTS})[0][0]) if self._schema else 0

    def write(self, kind: str, records: Collection[RawRecord]) -> None:
        entries = [
            {"kind": kind, "name": each.name, "record": each.record, "generation": generation_of(each.record)}
            for each in records
        ]
        tags = [
            {"kind": kind, "name": each.name, "label": label, "value": value}
            for each in records
            for label, value in sorted(each.tags)
        ]
        self._many({_WRITE: entries, _UNTAG: entries, _TAG: tags})

    def remove(self, kind: str, names: Iterable[str]) -> None:
        gone = [{"kind": kind, "name": name} for name in names]
        rows = {_REMOVE_QUEUED: gone} if kind == _EVENTS else {}
        self._many({_REMOVE: gone, **rows})

    def loose_tags(self, kind: str) -> int:  # noqa: ARG002  (a foreign key keeps them away)
        return 0

    def close(self) -> None:
        with suppress(psycopg.Error):  # the session may outlive the connection for a moment, with its lock
            self._connection.execute("select pg_advisory_unlock_all()")
        self._connection.close()

    def _run(self, statement: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        with translated(self._connection):
            cursor = self._connection.execute(self._of_schema(statement), values or {})
            return cursor.fetchall() if cursor.description is not None else []

    def _many(self, work: Mapping[str, list[dict[str, Any]]]) -> None:
        with translated(self._connection), self._connection.transaction(), self._connection.cursor() as cursor:
            for statement, values in work.items():
                cursor.executemany(self._of_schema(statement), values)

    def _of_schema(self, statement: str) -> sql.Composed:
        return sql.SQL(statement).format(schema=sql.Identifier(self._schema))
