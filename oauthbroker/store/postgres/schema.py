"""The tables, the schema and the keyring of a store in PostgreSQL. Numbered migrations, forward only:
docs/store-format.md.

These run at start and in commands, on a connection of their own, and block their thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Final

import psycopg

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.store.keys.keyring import KeyProvider, Keyring
from oauthbroker.store.keys.keyring_document import keyring_missing, made_by_development
from oauthbroker.store.keys.keyring_home import KeyringHome
from oauthbroker.store.posix.migration_marker import MigrationMarker, MigrationState
from oauthbroker.store.postgres import rights
from oauthbroker.store.postgres.connection_pool import translated
from oauthbroker.store.postgres.pools import TERMS

SCHEMAS: Final[Mapping[MigrationState | None, str]] = {
    None: "oauthbroker",
    MigrationState.ARRIVING: "oauthbroker_arriving",
    MigrationState.CLOSING: "oauthbroker_closed",
    MigrationState.CLOSED: "oauthbroker_closed",
    MigrationState.IMPORTING: "oauthbroker_arriving",
    MigrationState.RESTORED: "oauthbroker_arriving",
}
OLDEST_SERVER: Final = 13
_FILE = re.compile(r"(\d{4})_\w+\.sql")
_ONE_AT_A_TIME = 0x6F617562  # the key of the lock that migrations hold for their transaction

_BASE = """
create schema if not exists oauthbroker;
create table if not exists oauthbroker.schema_version (
    number integer primary key, at timestamptz not null default clock_timestamp()
);
"""
_STATE = """
select current_setting('server_version_num')::int / 10000, current_setting('synchronous_commit'),
    exists (select from pg_tables where schemaname = 'oauthbroker' and tablename = 'schema_version'),
    exists (select from pg_tables where schemaname = any(%(schemas)s) and tablename = 'migration')
"""
_KEYRING = "select (select document from oauthbroker.keyring), exists (select from oauthbroker.entry)"
_HAS_TABLES = "select from pg_tables where schemaname = 'oauthbroker' and tablename = 'keyring'"
_COLUMNS = """
select relname, attname from pg_attribute join pg_class on pg_class.oid = attrelid
where relnamespace = 'oauthbroker'::regnamespace and relkind in ('r', 'p') and attnum > 0 and not attisdropped
"""
_FIND = """
select nspname, obj_description(oid, 'pg_namespace') from pg_namespace where nspname = any(%(names)s) order by nspname
"""


class KeyringTable(KeyringHome):
    """The keyring of a store in a database."""

    def __init__(self, url: Secret, *keks: KeyProvider) -> None:
        super().__init__(*keks)
        self.url = url

    def read(self) -> bytes | None:
        return read_keyring(self.url)

    def keep(self, ring: Keyring) -> bool:
        with _connection(self.url) as connection:
            check(connection)
            made = connection.execute(
                "insert into oauthbroker.keyring (document) select %s where not exists (select from oauthbroker.entry) "
                "on conflict do nothing returning true",
                [ring.document()],
            )
            return made.fetchone() is not None

    def replace(self, before: bytes, ring: Keyring) -> None:
        """Replace the document under a lock that waits for the writes under way. Each of them reads the table, and a
        write that begins later sees the new epoch: none seals with the seed of the old one from then on."""
        with _connection(self.url) as connection, connection.transaction():
            connection.execute("lock table oauthbroker.keyring in access exclusive mode")
            replaced = connection.execute(
                "update oauthbroker.keyring set document = %s, epoch = %s where document = %s returning true",
                [ring.document(), ring.epoch, before],
            )
            if replaced.fetchone() is None:
                raise BrokerError(Code.STORE_LOCKED, note="another process has changed the keyring")


def read_keyring(url: Secret) -> bytes | None:
    """Return the document of the keyring, None for a new store. Raises `keyUnknown` as `read` does, and as `check`. A
    locked table keeps no start waiting for long."""
    with _connection(url) as connection, connection.transaction():
        connection.execute("set local statement_timeout = 5000")
        check(connection)
        document, has_records = connection.execute(_KEYRING).fetchone() or (None, False)
    if document is None and has_records:
        raise keyring_missing("table oauthbroker.keyring")
    return None if document is None else bytes(document)


def migrate(url: Secret) -> list[int]:
    """Run the migrations that the database lacks, all or none, and return their numbers. One caller at a time. An owner
    without a right on its own tables gets it back. Raises as `check` does, but for a migration that is missing."""
    with _connection(url) as connection, connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", [_ONE_AT_A_TIME])
        is_store = check_server(connection)
        _check_not_moved(connection)
        for grant in rights.grants_for(connection.execute(rights.MISSING, rights.NEEDED).fetchall()):
            connection.execute(grant)
        left = _missing(connection, is_store=is_store)
        if left:
            connection.execute(_BASE)
        for number, text in left.items():
            connection.execute(text)
            connection.execute("insert into oauthbroker.schema_version (number) values (%s)", [number])
        _check_columns(connection)
    return list(left)


def check(connection: psycopg.Connection[Any]) -> None:
    """Check that the database has the tables of this version, and the user its rights on them. Tables of a newer
    version are fine: migrations only add.

    Raises `storeUnavailable` with what to do, and as `check_server` does."""
    if not check_server(connection):
        _check_not_moved(connection)
        _missing(connection, is_store=False)
        raise _lasting("the database is no store yet: run `oauthbroker init` or `oauthbroker store import`")
    rights.refuse(connection.execute(rights.MISSING, rights.NEEDED).fetchall())
    if _missing(connection, is_store=True):
        raise _lasting("the store lacks a migration: run `oauthbroker store migrate`")
    _check_columns(connection)


def _check_columns(connection: psycopg.Connection[Any]) -> None:
    """Raise `storeUnavailable` for a table or column of this version that is missing."""
    there = {tuple(row) for row in connection.execute(_COLUMNS).fetchall()}
    for table, column in _needed_columns():
        if (table, column) not in there:
            raise _lasting(f"the table oauthbroker.{table} lacks its column {column}, or is missing: restore a backup")


def _missing(connection: psycopg.Connection[Any], *, is_store: bool) -> dict[int, str]:
    """Return the texts of the migrations that the database lacks, by their numbers. Raises `storeUnavailable` for
    tables that are there while their number is not: migrations run in their order."""
    numbers = "select number from oauthbroker.schema_version"
    there = {number for (number,) in (connection.execute(numbers).fetchall() if is_store else [])}
    known = _migrations()
    left = {number: text for number, text in known.items() if number not in there}
    first = min(left, default=0)
    if left and (first == min(known) or first < max(there)) and connection.execute(_HAS_TABLES).fetchone() is not None:
        found = f"has {', '.join(map(str, sorted(there)))}" if there else "is empty" if is_store else "is missing"
        newest = max(there, default=0)
        hint = f"a newer oauthbroker wrote {newest}, so upgrade" if newest > max(known) else "waiting does not help"
        raise _lasting(
            f"the tables are there, but oauthbroker.schema_version {found} and lacks their number {first}: "
            f"{hint}, or restore that table from a backup"
        )
    return left


def _needed_columns() -> Iterator[tuple[str, str]]:
    """Yield each table and column that the migrations make."""
    for text in _migrations().values():
        for table, body in re.findall(r"create table oauthbroker\.(\w+) \(\n(.*?)\n\)", text, re.DOTALL):
            yield from ((table, column) for column in re.findall(r"^ +(?!primary|foreign)(\w+) ", body, re.MULTILINE))
        yield from re.findall(r"alter table oauthbroker\.(\w+)\s+add column (\w+)", text)


def check_server(connection: psycopg.Connection[Any]) -> bool:
    """Return whether the database has a store's schema. Raises for a server that cannot keep one, and `storeFormat` for
    the tables of a development version, which have `migration` in place of `schema_version`."""
    if connection.info.parameter_status("client_encoding") == "SQL_ASCII":  # texts would come as bytes
        raise _lasting("the database's encoding is SQL_ASCII: create it with ENCODING 'UTF8' TEMPLATE template0")
    schemas = sorted(set(SCHEMAS.values()))
    found = connection.execute(_STATE, {"schemas": schemas}).fetchone()
    version, durable, is_store, is_of_development = found or (0, "", False, False)
    if version < OLDEST_SERVER:
        raise _lasting(f"PostgreSQL {OLDEST_SERVER} or newer is needed")
    if durable == "off":
        raise _lasting("synchronous_commit is off: a commit would not be durable")
    if is_of_development:
        raise made_by_development("with a table `migration`")
    return bool(is_store)


def _lasting(note: str) -> BrokerError:
    """Return the refusal of a database that a person has to mend."""
    return BrokerError(Code.STORE_UNAVAILABLE, note=note, lasting=True)


def mark_of(connection: psycopg.Connection[Any]) -> tuple[str, MigrationMarker | None]:
    """Return the store's schema, empty for none, and the mark of its move. Raises `storeUnavailable` for two stores."""
    found = connection.execute(_FIND, {"names": sorted(set(SCHEMAS.values()))}).fetchall()
    if len(found) > 1:
        raise _lasting(f"the database has two stores: rename the older one of {', '.join(name for name, _ in found)}")
    if not found:
        return "", None
    schema, comment = found[0]
    return schema, None if schema == SCHEMAS[None] else MigrationMarker.decoded((comment or "").encode())


def _check_not_moved(connection: psycopg.Connection[Any]) -> None:
    """Refuse a database whose store takes part in a move. Raises `storeClosed`."""
    _, mark = mark_of(connection)
    if mark is not None:
        raise mark.refusal()


def _migrations() -> dict[int, str]:
    """Return the texts of all migrations by their numbers, in their order."""
    folder = files("oauthbroker.store.postgres").joinpath("migrations")
    found = {int(match[1]): each for each in folder.iterdir() if (match := _FILE.fullmatch(each.name))}
    return {number: found[number].read_text("utf-8") for number in sorted(found)}


@contextmanager
def _connection(url: Secret) -> Iterator[psycopg.Connection[Any]]:
    with translated(), psycopg.connect(url.reveal(), **TERMS) as connection, translated(connection):
        yield connection
