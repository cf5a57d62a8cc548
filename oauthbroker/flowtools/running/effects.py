"""What nodes do: the rows that they read and write, and the effects that they send. Names and keys stay the same in
each attempt."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

from oauthbroker import BrokerError, Turn
from oauthbroker.flowtools.entities.definition import Entity, read_from
from oauthbroker.flowtools.entities.rows import MOST_COMPOSITES, MOST_ROWS, Rows
from oauthbroker.flowtools.running import ports
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.journal import RunRecord
from oauthbroker.flowtools.running.ports import Adapter, Effect, Requests
from oauthbroker.flowtools.specification.failures import FlowFailed, json_fault
from oauthbroker.flowtools.specification.spec import Node, has_effect, is_one, url_slots
from oauthbroker.plugins import ForeignFault, foreign_code

_LOG: Final = logging.getLogger("oauthbroker.flowtools")
_SEGMENT: Final = re.compile(r"(?!\.*$)[^/\\%?#;]{1,256}")
Values = Mapping[str, Any]


def effect_of(
    flow: ReadyFlow, run: RunRecord, node: Node, *, values: Values, mapped: Values, key: str, seconds: float, at: str
) -> Effect:
    """Return what an external node sends. `mapped` are the fields that the edge before it maps. Raises FlowFailed."""
    operation, turn = node.operation, None
    if node.type == "httpRequest":
        operation, turn = node.config.get("method", "GET"), _turn(run)
        fields = _request(flow, node, values, mapped)
    elif node.type == "payment":
        operation = operation or "charge"
        fields = {**mapped, **flow.values(node, "fields", values)} or dict(run.input)
    else:
        members = [name for name in ("to", "subject", "body") if name in node.config]
        fields = {name: flow.value((*node.path, "config", name), values) for name in members}
    about: dict[str, Any] = {"kind": node.type, "operation": operation, "turn": turn, "seconds": seconds, "at": at}
    return Effect(**about, fields=fields, key=key, most_recipients=node.config.get("mostRecipients", 1))


def effect_key(run: RunRecord, name: str, generation: int) -> str:
    """Return the key of an effect: the same in each attempt, and for the same idempotency key of the tool. Behind one
    that certainly did not happen, the next generation has another key: a provider answers a known key as before."""
    base = f"{run.tool}\n{run.key}" if run.key is not None else run.id
    base += f"\n{generation}" if generation else ""
    return hashlib.sha256(f"{base}\n{name}".encode()).hexdigest()[:40]


def _request(flow: ReadyFlow, node: Node, values: Values, mapped: Values) -> dict[str, Any]:
    """Return the fields of a request. A null of `query` is left out; a request without an effect has no body."""
    path, query, body = (flow.values(node, name, values) for name in ("path", "query", "body"))
    body = {**mapped, **body} if has_effect(node) else {}
    return {
        "app": node.config["oauthAppRef"],
        "url": address(node.config["url"], path),
        "query": {name: plain_text(value) for name, value in query.items() if value is not None},
        "body": whole(body) if body or "body" in node.config else None,
    }


def _turn(run: RunRecord) -> Turn | None:
    """Return the turn of a request: this run is the place to go on, unless the caller's own turn goes on."""
    given = run.actor.turn if run.actor else None
    if run.actor and run.actor.repeats:
        return given
    return given and Turn(ports.AGENT, run.id, origin=given.origin, auth=given.auth, locale=given.locale)


def adapter_of(flow: ReadyFlow, node: Node) -> Adapter:
    """Return the adapter of a payment, email or SMS."""
    if node.type == "payment":
        return flow.ports.payments[node.config["provider"]]
    found: Adapter = getattr(flow.ports, node.type)
    return found


def sent(way: Adapter | Requests, effect: Effect, node: Node) -> Any:
    """Send the effect of a node, and return its answer as JSON that a flow takes. Raises the exceptions of the
    port: if an adapter raises or returns something else, the effect may have happened."""
    whose = f"the adapter {node.config.get('provider', node.type)}"
    try:
        with foreign_code(whose, ports.NotSent, ports.EffectRefused, ports.AnswerLost, ports.ConsentNeeded):
            answer = json.loads(json.dumps(way.send(effect), allow_nan=False))
    except (ForeignFault, BrokerError) as fault:
        word = str(fault)
    else:
        if json_fault(answer) is None:
            return answer
        word = f"{whose}: an answer that no flow takes"
    _LOG.warning("an effect was sent, and its answer is lost: %s", word)
    raise ports.AnswerLost(word)


def repeatable(flow: ReadyFlow, node: Node) -> bool:
    """Tell whether an effect may be sent again after its answer was lost."""
    if node.type == "httpRequest":
        return not has_effect(node) or bool(node.config.get("takesKeys"))
    return adapter_of(flow, node).takes_keys


def case_of(value: Any) -> str:
    """Return the label of a switch for a value: texts as they are, whole numbers without a point."""
    return ("true" if value else "false") if isinstance(value, bool) else str(whole(value))


def address(url: str, values: Mapping[str, Any]) -> str:
    """Return a URL with values in place of its slots. Raises FlowFailed for one that another parser could read as more
    than one segment, or as a way up."""
    found = {}
    for slot in url_slots(url):
        text = plain_text(values[slot[1:-1]])
        if not _SEGMENT.fullmatch(text) or not text.isprintable():
            raise FlowFailed("requestInvalid", f"the value of {slot} cannot stand in a URL")
        found[slot] = quote(text, safe="")
    return "/".join(found.get(each, each) for each in url.split("/"))


def plain_text(value: Any) -> str:
    """Return the text of a text, number or truth. Raises FlowFailed for others."""
    if not isinstance(value, str | int | float):
        raise FlowFailed("requestInvalid", "a value of a URL is no text, number or truth")
    return case_of(value)


def whole(value: Any) -> Any:
    """Return a JSON value with whole numbers as integers: expressions have doubles alone."""
    if isinstance(value, Mapping):
        return {name: whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def row_id(run: str, node: str) -> str:
    """Return the id of a row that a node creates: the same in each attempt, so that it cannot be created twice."""
    digits = hashlib.sha256(f"{run}\n{node}".encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"


def _absent(node: Node, filter_: Values) -> list[str]:
    """Return what of a filter is null, and not written as `null`: no row fits an absent value."""
    written = node.config.get("filter", {})
    return [name for name, value in filter_.items() if value is None and written.get(name, "").strip() != "null"]


def read_rows(rows: Rows, entities: Mapping[str, Entity], node: Node, filter_: Values, *, lock: bool) -> Any:
    """Return the rows that a read node asks for; for a read of one row, that row or None."""
    entity, parts = read_from(entities, node.config)
    assert entity is not None  # noqa: S101  (ready has found it)
    limit = node.config.get("limit", MOST_COMPOSITES if parts else MOST_ROWS)
    found = [] if _absent(node, filter_) else rows.read_with(entity.name, parts, filter_, limit, lock=lock)
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
    if absent := _absent(node, filter_):
        raise FlowFailed("valueMissing", f"{node.id}: its filter {absent[0]} is null, which fits no row of a write")
    if node.operation == "softDelete":
        found = rows.soft_delete(name, filter_, now(), limit)
    else:
        found = rows.update(name, filter_, fields, limit, to=config.get("to"))
    if not is_one(config):
        return found
    if not found:
        raise FlowFailed("notFound", f"no row of {name} fits the filter of {node.id}")
    return found[0]


def named_rows(flow: ReadyFlow, start: Values) -> list[str]:
    """Return names of the rows whose ids follow from the values at the start: these can be locked before a
    transaction."""
    names = []
    for node in flow.tool.nodes.values():
        if set(node.config.get("filter", ())) == {"id"} and "entity" in node.config:
            with suppress(FlowFailed):
                row = flow.values(node, "filter", start)["id"]
                names.append(f"{node.config['entity']} {str(row).lower()}")
    return names
