"""A flow that is ready to run. One that cannot run here is refused: an unknown entity, a port without an adapter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from oauthbroker.flowtools.entities.definition import Entity, read_from
from oauthbroker.flowtools.entities.rows import MOST_COMPOSITES, known_fields
from oauthbroker.flowtools.risk.assessment import RiskAssessment, assess
from oauthbroker.flowtools.risk.records import undeployable
from oauthbroker.flowtools.running.ports import Ports
from oauthbroker.flowtools.specification.expression_text import folded
from oauthbroker.flowtools.specification.expressions import EvaluationFailed, Expression
from oauthbroker.flowtools.specification.failures import Actor, FlowFailed
from oauthbroker.flowtools.specification.policies import Policy, check_condition, policies_by_name
from oauthbroker.flowtools.specification.source import Keys, nearest, one_of, refuse
from oauthbroker.flowtools.specification.spec import (
    Edge,
    FlowTool,
    Node,
    has_effect,
    is_one,
    lower_camel,
    policy_names,
    sample_url,
)
from oauthbroker.plugins import ConfigProblem, harmless_text, json_schema_validator


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyFlow:
    """A flow that can run. `edges` are by node and label. A `withdrawn` version takes no new call; its runs go on."""

    tool: FlowTool
    assessment: RiskAssessment = field(repr=False)
    ports: Ports = field(repr=False)
    policies: Mapping[str, tuple[Policy, Expression]] = field(repr=False)
    edges: Mapping[tuple[str, str | None], Edge] = field(repr=False)
    input: Any = field(repr=False)
    output: Any = field(repr=False)
    withdrawn: bool = False

    @property
    def is_pessimistic(self) -> bool:
        return self.assessment.concurrency == "pessimistic"

    def value(self, path: Keys, values: Mapping[str, Any]) -> Any:
        """Return the value of an expression. Raises FlowFailed: `notFound` if a row that it reads was not found."""
        expression, place = self.assessment.expressions[path], ".".join(map(str, path))
        try:
            return expression.value(values)
        except EvaluationFailed as error:
            why = error
        if missing := [name for name in expression.nulls(values) if "." not in name]:
            raise FlowFailed("notFound", f"{place} needs the row {missing[0]}, and none was found")
        raise FlowFailed("expressionFailed", f"{place} has no value: {why}")

    def values(self, node: Node, member: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a member of a node's config that maps names to expressions."""
        written = node.config.get(member, {})
        return {name: self.value((*node.path, "config", member, name), values) for name in written}


def bound_at_start(data: Any, actor: Actor | None) -> dict[str, Any]:
    """Return what expressions read before the first node: the input, and the caller's id, empty without a caller."""
    return {"input": data, "caller": {"id": actor.id if actor else ""}}


def ready(
    tool: FlowTool, *, entities: Mapping[str, Entity], ports: Ports, policies: Iterable[Policy] = ()
) -> ReadyFlow:
    """Check a tool against the entities and the configured ports. Raises FlowRefused with every problem."""
    known = policies_by_name(policies)
    assessment = assess(tool, known.values(), readable(entities))
    found = [each for node in tool.nodes.values() for each in _port_problems(node, ports)]
    there = entity_problems(tool, entities)
    refuse([*undeployable(tool, assessment), *(tool.source.problem(*each) for each in found), *there])
    named = {name for _, name in policy_names(tool)}
    return ReadyFlow(
        tool=tool,
        assessment=assessment,
        ports=ports,
        policies={name: (known[name], check_condition(known[name])) for name in sorted(named)},
        edges={(edge.source, edge.label): edge for edge in tool.edges},
        input=json_schema_validator(tool.input),
        output=json_schema_validator(tool.output),
    )


def readable(entities: Mapping[str, Entity]) -> list[str]:
    """Return what a read can name: the entities and their composites."""
    return [*entities, *(name for each in entities.values() for name in each.composites)]


def entity_problems(tool: FlowTool, entities: Mapping[str, Entity]) -> Iterator[ConfigProblem]:
    """Yield what of a tool does not fit the entities."""
    for node in tool.nodes.values():
        if node.type in {"read", "write"} and "sql" not in node.config:
            yield from (tool.source.problem(*each) for each in _entity_problems(node, entities))
    for at, edge in enumerate(tool.edges):
        place: Keys = ("flow", "edges", at, "dataMapping")
        yield from (tool.source.problem(place, *each) for each in _mapped(tool, edge, entities))


def member_problems(
    tool: FlowTool, expressions: Mapping[Keys, Expression], entities: Mapping[str, Entity]
) -> list[ConfigProblem]:
    """Return where expressions read a member of a row that its entity does not have. A deployed version that does so
    on one of its ways still runs on the others."""
    rows, problems = dict[str, Entity](), list[ConfigProblem]()
    for node in tool.nodes.values():
        entity = entities.get(node.config.get("entity", "")) if node.type == "read" and is_one(node.config) else None
        if entity is not None:
            rows |= dict.fromkeys((folded(node.id), lower_camel(entity.name)), entity)
    for path, expression in expressions.items():
        for root, member in sorted({tuple(each.split(".")[:2]) for each in expression.reads if "." in each}):
            if root in rows and member not in (known := known_fields(rows[root])):
                what = f"it reads {harmless_text(member)} of a row of {rows[root].name}, which has no such field"
                problems.append(tool.source.problem(path, what, one_of(member, sorted(known))))
    return problems


def _port_problems(node: Node, ports: Ports) -> Iterator[tuple[Keys, str, str]]:
    config, missing, hint = node.config, "", "configure an adapter where there is one, or remove the node"
    if node.type in {"email", "sms"} and getattr(ports, node.type) is None:
        missing = f"the node type {node.type} is not configured"
    elif node.type == "payment" and config["provider"] not in ports.payments:
        missing, hint = "no configured provider of payments", nearest(config["provider"], ports.payments) or hint
    elif node.type == "httpRequest" and ports.requests is None:
        missing = "requests are not configured: they need a broker"
    if missing:
        yield node.path, missing, hint
    if node.type == "httpRequest" and ports.requests is not None:
        why = ports.requests.problem(config["oauthAppRef"], config.get("method", "GET"), sample_url(config["url"]))
        if why:
            yield (*node.path, "config", "url"), why, "add it to the `api` of the app, or correct it"


def _mapped(tool: FlowTool, edge: Edge, entities: Mapping[str, Entity]) -> Iterator[tuple[str, str]]:
    """Yield the fields that an edge maps into a node which does not take them."""
    node = tool.nodes[edge.target]
    if node.type == "payment" or (node.type == "httpRequest" and has_effect(node)):
        return  # its provider or API knows the fields
    entity, known = None, frozenset[str]()
    if node.type in {"read", "write"} and "sql" not in node.config:
        entity, _ = read_from(entities, node.config)
    if entity is not None and node.operation != "softDelete":
        known = known_fields(entity) if node.type == "read" else frozenset(entity.fields)
    for name in edge.data_mapping.values():
        if name not in known:
            what = f"node {node.id} takes no field {harmless_text(name)}"
            yield what, one_of(name, sorted(known)) if known else "it takes none"


def _entity_problems(node: Node, entities: Mapping[str, Entity]) -> Iterator[tuple[Keys, str, str]]:
    config, place = node.config, (*node.path, "config")
    entity, parts = read_from(entities, config)
    if entity is None:
        kind = "composite" if "composite" in config else "entity"
        known = entities if kind == "entity" else [name for each in entities.values() for name in each.composites]
        hint = f"{one_of(config[kind], sorted(known))}; or declare it" if known else "declare it"
        yield (*place, kind), f"no declared {kind}", hint
        return
    if parts and config.get("limit", 0) > MOST_COMPOSITES:
        yield (*place, "limit"), "too many composites at once", f"write at most {MOST_COMPOSITES}"
    for member, names in (("filter", known_fields(entity)), ("fields", frozenset(entity.fields))):
        for name in config.get(member, {}):
            if name not in names:
                yield (*place, member, name), f"no field of {entity.name}", one_of(name, sorted(names))
    if node.operation == "transition":
        targets = {to for all_ in entity.status.transitions.values() for to in all_} if entity.status else set()
        if config["to"] not in targets:
            hint = one_of(config["to"], sorted(targets)) if targets else "declare the status machine of the entity"
            yield (*place, "to"), f"{entity.name} has no transition to it", hint
