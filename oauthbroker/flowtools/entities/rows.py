"""Rows of entities on one connection: read, create, update, transition, soft delete. The row policy holds for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, false, insert, select, true, update

from oauthbroker.flowtools.entities.database import table_of
from oauthbroker.flowtools.entities.definition import Entity, Parts, validator_of
from oauthbroker.flowtools.specification.expressions import EvaluationFailed
from oauthbroker.flowtools.specification.failures import Actor, FlowFailed, scalar_fault
from oauthbroker.flowtools.specification.spec import lower_camel

MOST_ROWS: Final = 1000  # of one read or write without a limit of its own
MOST_COMPOSITES: Final = 100  # of one read: each of them reads its parts
Values = Mapping[str, Any]


class Rows:
    """The rows of all entities, as one caller may reach them. `changed` are the rows that were written, by entity and
    id; `touched` counts the rows that were read or written."""

    def __init__(self, connection: Connection, entities: Mapping[str, Entity], actor: Actor | None) -> None:
        self._connection, self._entities, self._actor = connection, entities, actor
        self._tables = {name: table_of(entity) for name, entity in entities.items()}
        self.changed: dict[tuple[str, str], None] = {}
        self.touched = 0

    def read(self, name: str, filter_: Values, limit: int = MOST_ROWS, *, lock: bool = False) -> list[dict[str, Any]]:
        """Return the first rows by id that fit. `lock` keeps other transactions from changing them."""
        found = self._select(name, filter_, limit, lock=lock)
        self.touched += len(found)
        return found

    def read_with(self, name: str, parts: Parts, filter_: Values, limit: int, *, lock: bool) -> list[dict[str, Any]]:
        """Return rows with the parts of a composite as more members. The row policy holds for each part, too."""
        found = self.read(name, filter_, limit, lock=lock)
        for row in found:
            for member, part in parts.items():
                if part.of is not None:
                    row[member] = self.read(part.entity, {part.of: row["id"]}, part.limit, lock=lock)
                else:
                    one = row[str(part.key)]
                    row[member] = next(iter(self.read(part.entity, {"id": one}, 1, lock=lock) if one else ()), None)
        return found

    def create(self, name: str, fields: Values, row_id: str) -> dict[str, Any]:
        """Create a row with its status at the start of the machine."""
        entity = self._entities[name]
        values = self._values(entity, dict.fromkeys(entity.fields) | dict(fields))
        first = {"id": row_id, "version": 1} | ({"status": entity.status.initial} if entity.status else {})
        self._connection.execute(insert(self._tables[name]).values(**first, **values))
        return self._written(name, row_id)

    def update(
        self, name: str, filter_: Values, fields: Values, limit: int = MOST_ROWS, *, to: str | None = None
    ) -> list[dict[str, Any]]:
        """Change fields of the rows that fit, and their status if it is to move `to` another one: the machine has to
        have that transition for each. Refuses more rows than `limit`."""
        machine, values = self._entities[name].status, self._values(self._entities[name], fields)
        rows = self._few(name, filter_, limit)
        for row in rows if to is not None else ():
            if machine is None or to not in machine.transitions.get(row["status"], ()):
                raise FlowFailed("transitionRefused", f"{name} has no transition to {to} from the status of the row")
        values |= {} if to is None else {"status": to}
        return [self._change(name, row, values) for row in rows]

    def soft_delete(self, name: str, filter_: Values, at: str, limit: int = MOST_ROWS) -> list[dict[str, Any]]:
        """Mark the rows that fit as deleted. They keep their values and are no longer read."""
        return [self._change(name, row, {"deletedAt": at}) for row in self._few(name, filter_, limit)]

    def check_invariants(self) -> None:
        """Check the invariants of each row that was written, as it is now. Raises FlowFailed for a broken one."""
        for name, row_id in self.changed:
            entity = self._entities[name]
            row = self._one(name, row_id)
            for condition, message in entity.conditions:
                try:
                    holds = condition.value({lower_camel(entity.name): row})
                except EvaluationFailed:
                    holds = False
                if holds is not True:
                    raise FlowFailed("invariantBroken", f"{name}: {message}")
        self.changed.clear()

    def _select(self, name: str, filter_: Values, limit: int, *, lock: bool = False) -> list[dict[str, Any]]:
        table = self._tables[name]
        wanted = select(table).where(table.c.deletedAt.is_(None), self._mine(name), *self._fits(name, filter_))
        wanted = wanted.order_by(table.c.id).limit(limit)
        return [_as_json(row, table) for row in self._connection.execute(wanted.with_for_update() if lock else wanted)]

    def _few(self, name: str, filter_: Values, limit: int) -> list[dict[str, Any]]:
        """Return the rows that fit, locked. Refuses more than `limit`, and an empty filter."""
        if not filter_:
            raise FlowFailed("writeUnbounded", f"a write to all rows of {name}")
        rows = self._select(name, filter_, limit + 1, lock=True)
        if len(rows) > limit:
            raise FlowFailed("tooManyRows", f"more than {limit} rows of {name} fit the filter")
        return rows

    def _change(self, name: str, row: dict[str, Any], values: Values) -> dict[str, Any]:
        table, row_id = self._tables[name], row["id"]
        same = and_(table.c.id == row_id, table.c.version == row["version"])
        changed = self._connection.execute(update(table).where(same).values(version=row["version"] + 1, **values))
        if changed.rowcount != 1:
            raise FlowFailed("conflict", f"a row of {name} was changed by another call")
        return self._written(name, row_id)

    def _written(self, name: str, row_id: str) -> dict[str, Any]:
        self.changed[name, row_id] = None
        self.touched += 1
        return self._one(name, row_id)

    def _one(self, name: str, row_id: str) -> dict[str, Any]:
        table = self._tables[name]
        return _as_json(self._connection.execute(select(table).where(table.c.id == row_id)).one(), table)

    def _mine(self, name: str) -> ColumnElement[bool]:
        policy = self._entities[name].row_policy
        if policy is None or (self._actor and self._actor.roles & policy.all_rows):
            return true()
        return self._tables[name].c[policy.field] == self._actor.id if self._actor else false()

    def _values(self, entity: Entity, fields: Values) -> dict[str, Any]:
        """Return the values to write. Refuses an undeclared field, a missing value, and a row for another owner."""
        if strange := fields.keys() - entity.fields.keys():
            raise FlowFailed("valueInvalid", f"{entity.name} has no field {min(strange)} to write")
        values = {field: self._value(entity, field, value) for field, value in fields.items()}
        for field, value in values.items():
            if value is None and entity.fields[field].required:
                raise FlowFailed("valueMissing", f"{entity.name}.{field} is required")
        policy, actor = entity.row_policy, self._actor
        bound = policy and policy.field in values and not (actor and actor.roles & policy.all_rows)
        if policy and bound and (actor is None or values[policy.field] != actor.id):
            why = f"a row of {entity.name} for another owner: {entity.name}.{policy.field} is not the caller's id"
            raise FlowFailed("rowForbidden", why)
        return values

    def _fits(self, name: str, filter_: Values) -> list[ColumnElement[bool]]:
        table, entity = self._tables[name], self._entities[name]
        found: list[ColumnElement[bool]] = []
        for field, value in filter_.items():
            fitting = self._value(entity, field, value)
            found.append(table.c[field].is_(None) if fitting is None else table.c[field] == fitting)
        return found

    def _value(self, entity: Entity, field: str, value: Any) -> Any:
        """Return a value as its column keeps it. Raises FlowFailed for one of another type."""
        if value is None:
            return None
        declared = entity.fields.get(field)
        kind = declared.type if declared else "integer" if field == "version" else "string"
        if scalar_fault(value) or not validator_of(kind).is_valid(value):
            raise FlowFailed("valueInvalid", f"{entity.name}.{field} is no {kind}")
        if kind == "uuid" or field == "id":
            return str(value).lower()
        return int(value) if kind == "integer" else float(value) if kind == "number" else value


def known_fields(entity: Entity) -> frozenset[str]:
    """Return the fields by which rows can be filtered."""
    return frozenset({*entity.fields, "id", "version", *(["status"] if entity.status else [])})


def _as_json(row: Row[Any], table: Table) -> dict[str, Any]:
    found = {f"{name.name}": value for name, value in zip(table.columns, row, strict=True)}
    if odd := [name for name, value in found.items() if scalar_fault(value)]:
        raise FlowFailed("valueInvalid", f"{table.name}.{odd[0]} has a value that no flow takes")
    return {name: value for name, value in found.items() if name != "deletedAt" or value}
