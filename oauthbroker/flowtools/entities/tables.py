"""The tables of entities, and the plan of a change: by the document that made a table, and the one that is given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import BigInteger, Boolean, Column, ColumnElement, Connection, Double, Integer, MetaData, Table, Text

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.entities.definition import Entity

_TYPES: Final[Mapping[str, Any]] = {"number": Double, "integer": BigInteger, "boolean": Boolean}
_DECLARED = Table(
    "flow_entity", MetaData(), Column("name", Text, primary_key=True), Column("document", Text, nullable=False)
)


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
    with database.transaction() as connection:
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
    before = _declared(connection, entity)
    if before is None:
        yield Change(what=f"{entity.name}: create the table")
        return
    if before == json.loads(json.dumps(entity.written)):
        return
    rows = _Rows(connection, table_of(entity))
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
            added = rows.add(name, _column(name, new.type))
            yield Change(what=f"{entity.name}: add the field {name} again", statement=added)
        if new is not None and new.required and not old.get("required", False):
            reason = "rows lack it" if rows.any(sa.column(name).is_(None)) else ""
            yield Change(what=f"{entity.name}: require the field {name}", refused=reason)
    for name, new in entity.fields.items():
        if name not in fields:
            reason = "rows would lack it; add it without `required` first" if new.required and rows.any() else ""
            statement = rows.add(name, _column(name, new.type))
            yield Change(what=f"{entity.name}: add the field {name}", refused=reason, statement=statement)
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

    def add(self, name: str, added: Column[Any]) -> str:
        table, kind = self._names.format_table(self._table), added.type.compile(self._connection.dialect)
        return f"ALTER TABLE {table} ADD COLUMN {self._names.quote(name)} {kind}"
