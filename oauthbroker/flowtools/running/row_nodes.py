"""What read and write nodes do with the rows of entities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from oauthbroker.flowtools.entities.definition import Entity, read_from
from oauthbroker.flowtools.entities.rows import MOST_COMPOSITES, MOST_ROWS, Rows
from oauthbroker.flowtools.running.effects import row_id
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.journal import RunRecord
from oauthbroker.flowtools.specification.failures import FlowFailed
from oauthbroker.flowtools.specification.spec import Node, is_one

Values = Mapping[str, Any]


def read_rows(rows: Rows, entities: Mapping[str, Entity], node: Node, filter_: Values, *, lock: bool) -> Any:
    """Return the rows that a read node asks for; for a read of one row, that row or None."""
    entity, parts = read_from(entities, node.config)
    assert entity is not None  # noqa: S101  (ready has found it)
    limit = node.config.get("limit", MOST_COMPOSITES if parts else MOST_ROWS)
    found = rows.read_with(entity.name, parts, filter_, limit, lock=lock)
    if is_one(node.config):
        return found[0] if found else None
    return found


def create_row(rows: Rows, entities: Mapping[str, Entity], run: RunRecord, node: Node, fields: Values) -> Any:
    """Create a row, without fields as 001 prints it: of the members of the input that the entity has."""
    name = node.config["entity"]
    known = {key: value for key, value in run.input.items() if key in entities[name].fields}
    return rows.create(name, fields or known, row_id(run.id, node.id))


def change_rows(rows: Rows, node: Node, filter_: Values, fields: Values, now: Callable[[], str]) -> Any:
    """Update, move or delete rows, and return them as they are then. Raises FlowFailed."""
    config, name = node.config, node.config["entity"]
    limit = config.get("limit", MOST_ROWS)
    if node.operation == "update":
        found = rows.update(name, filter_, fields, limit)
    elif node.operation == "transition":
        found = rows.transition(name, filter_, config["to"], fields, limit)
    else:
        found = rows.soft_delete(name, filter_, now(), limit)
    if not is_one(config):
        return found
    if not found:
        raise FlowFailed("notFound", f"no row of {name} fits the filter of {node.id}")
    return found[0]


def named_rows(flow: ReadyFlow, data: Values) -> list[str]:
    """Return names of the rows whose ids follow from the input alone: these can be locked before a transaction."""
    names = []
    for node in flow.tool.nodes.values():
        if set(node.config.get("filter", ())) == {"id"} and "entity" in node.config:
            with suppress(FlowFailed):
                row = flow.values(node, "filter", {"input": data})["id"]
                names.append(f"{node.config['entity']} {str(row).lower()}")
    return names
