"""The declaration of an entity: fields, status machine, invariants and row policy, loaded with all problems at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter

from oauthbroker import BrokerError
from oauthbroker.flowtools.specification.expression_text import ExpressionRefused
from oauthbroker.flowtools.specification.expressions import NUMBER, TEXT, TRUTH, Expression, Names, Scope
from oauthbroker.flowtools.specification.source import (
    Keys,
    input_files,
    one_of,
    read_input,
    read_source,
    refuse,
    shape_problems,
)
from oauthbroker.flowtools.specification.spec import RESERVED, lower_camel
from oauthbroker.plugins import json_schema_validator

# Fields that every entity has. A flow reads them and does not write them.
OWN_FIELDS: Final = ("id", "version", "deletedAt")
LARGEST_INTEGER: Final = 2**53 - 1
_LONGEST_NAME: Final = 50
_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "string": {"type": "string", "maxLength": 65_536},
    "number": {"type": "number"},
    "integer": {"type": "integer", "minimum": -LARGEST_INTEGER, "maximum": LARGEST_INTEGER},
    "boolean": {"type": "boolean"},
    "uuid": {"type": "string", "format": "uuid"},
    "date": {"type": "string", "format": "date"},
    "date-time": {"type": "string", "format": "date-time"},
}
_KINDS: Final = {"number": NUMBER, "integer": NUMBER, "boolean": TRUTH}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityField:
    type: str
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusMachine:
    """The statuses of an entity. A status without transitions is final."""

    initial: str
    transitions: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPolicy:
    """A caller reads and writes the rows whose `field` is their id. Callers with one of `all_rows` reach all rows."""

    field: str
    all_rows: Annotated[frozenset[str], Field(alias="allRows")] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositePart:
    """Rows beside a row: the one whose id is the row's `key`, or at most `limit` whose field `of` is the row's id."""

    entity: str
    key: str | None = None
    of: str | None = None
    limit: int = 100


Parts = Mapping[str, CompositePart]


@dataclass(frozen=True, kw_only=True)
class Entity:
    """A declared entity. `written` is the document, by which a change of the schema is planned."""

    name: str
    fields: Mapping[str, EntityField]
    status: StatusMachine | None = None
    invariants: tuple[Mapping[str, str], ...] = ()
    row_policy: Annotated[RowPolicy | None, Field(alias="rowPolicy")] = None
    composites: Mapping[str, Parts] = field(default_factory=dict)
    written: Mapping[str, Any] = field(repr=False)

    @cached_property
    def conditions(self) -> tuple[tuple[Expression, str], ...]:
        """The checked invariants, each with its message. Raises ExpressionRefused."""
        types = {name: _KINDS.get(each.type, TEXT) for name, each in self.fields.items()}
        types |= {"id": TEXT, "version": NUMBER} | ({"status": TEXT} if self.status else {})
        prefix = lower_camel(self.name)
        optional = frozenset(f"{prefix}.{name}" for name, each in self.fields.items() if not each.required)
        scope = Scope(Names(types={f"{prefix}.{name}": kind for name, kind in types.items()}, optional=optional))
        return tuple(
            (scope.compile(each["expression"], TRUTH), each.get("message", each["expression"]))
            for each in self.invariants
        )


_ENTITY: Final = TypeAdapter(Entity)


@cache
def validator_of(kind: str) -> Any:
    return json_schema_validator(_SCHEMAS[kind])


def load_entity(raw: bytes, file: str) -> Entity:
    """Load an entity from the bytes of a JSON or YAML file. Raises FlowRefused with every problem."""
    source = read_source(raw, file)
    refuse(shape_problems(source, "EntityDefinition"))
    entity = _ENTITY.validate_python({**source.data, "written": source.data})
    problems = [source.problem(*each) for each in _problems(entity)]
    if not problems:
        try:
            _ = entity.conditions
        except ExpressionRefused as error:
            problems.append(source.problem(("invariants",), f"{error.what} (character {error.column})", error.hint))
    refuse(problems)
    return entity


def entities_in(paths: Iterable[Path]) -> list[Entity]:
    """Load entities. Raises FlowRefused for a problem, and ValueError for a path without a readable file."""
    try:
        return [load_entity(read_input(each), str(each)) for each in input_files(list(paths))]
    except BrokerError as error:
        note = error.note
    raise ValueError(note)


def entities_by_name(entities: Iterable[Entity]) -> dict[str, Entity]:
    """Return entities by name. Raises ValueError for a name twice, and for a composite that leads nowhere."""
    entities = list(entities)
    found = {each.name: each for each in entities}
    names = Counter(name.lower() for each in entities for name in (each.name, *each.composites))
    if twice := [name for name, count in names.items() if count > 1]:
        raise ValueError(f"two entities are named {twice[0]}")
    for each in entities:
        for name, part in ((name, part) for name, parts in each.composites.items() for part in parts.values()):
            there = found.get(part.entity)
            if there is None or (part.of is not None and not _is_id(there, part.of)):
                raise ValueError(f"{name}: no entity {part.entity}, or no field {part.of} of it with the id of a row")
    return found


def read_from(entities: Mapping[str, Entity], config: Mapping[str, Any]) -> tuple[Entity | None, Parts]:
    """Return the entity whose rows a read node reads, and the parts of its composite; None for an unknown name."""
    if "composite" not in config:
        return entities.get(config["entity"]), {}
    found = next((each for each in entities.values() if config["composite"] in each.composites), None)
    return found, found.composites[config["composite"]] if found else {}


def _is_id(entity: Entity, name: str) -> bool:
    """Tell whether a field can have the id of a row."""
    return name in entity.fields and entity.fields[name].type in {"string", "uuid"}


def _problems(entity: Entity) -> Iterator[tuple[Keys, str, str]]:
    if len(entity.name) > _LONGEST_NAME:
        yield ("name",), "too long for a table", f"use at most {_LONGEST_NAME} characters"
    folded = set[str]()
    for name in entity.fields:
        taken = name in OWN_FIELDS or (name == "status" and entity.status is not None)
        if taken or name in RESERVED or name.lower() in folded:
            yield ("fields", name), "a name that is taken", "rename the field"
        folded.add(name.lower())
    if entity.status is not None:
        known = entity.status.transitions
        if entity.status.initial not in known:
            yield ("status", "initial"), "no status of the machine", one_of(entity.status.initial, sorted(known))
        for source, targets in known.items():
            for target in targets:
                if target not in known:
                    hint = "list it in transitions, with [] if it is final"
                    yield ("status", "transitions", source), "leads to an unknown status", hint
    yield from _composite_problems(entity)
    if entity.row_policy is not None:
        owner = entity.fields.get(entity.row_policy.field)
        if owner is None or owner.type not in {"string", "uuid"} or not owner.required:
            yield ("rowPolicy", "field"), "no required field with a text", "name the field with the id of the owner"


def _composite_problems(entity: Entity) -> Iterator[tuple[Keys, str, str]]:
    for name, parts in entity.composites.items():
        for part, each in parts.items():
            place: Keys = ("composites", name, part)
            if part in entity.fields or part in {*OWN_FIELDS, "status"}:
                yield place, "a name that is taken", "rename the part"
            if (each.key is None) == (each.of is None):
                yield place, "not exactly one of key and of", "write which field has the id"
            elif each.key is not None and not _is_id(entity, each.key):
                yield (*place, "key"), "no field with a text", "name the field with the id of the row"
