"""The assessment of a tool: its risk with every finding, what refuses it, and whether it can be deployed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from oauthbroker.flowtools.risk import rules
from oauthbroker.flowtools.risk.rules import FlowFinding, order, paths
from oauthbroker.flowtools.specification.expression_text import ExpressionRefused, folded, rewritten
from oauthbroker.flowtools.specification.expressions import (
    DYNAMIC,
    NO_NAMES,
    NUMBER,
    TEXT,
    TRUTH,
    Expression,
    Names,
    Scope,
    names_of_schema,
)
from oauthbroker.flowtools.specification.policies import Policy, policies_by_name
from oauthbroker.flowtools.specification.source import Keys, closest, nearest
from oauthbroker.flowtools.specification.spec import (
    EXTERNAL,
    FlowTool,
    Node,
    is_one,
    lower_camel,
    policy_names,
    read_name,
)
from oauthbroker.plugins import ConfigProblem

MOST_EXPRESSIONS: Final = 2000
_KEPT: Final = frozenset({TEXT, NUMBER, TRUTH, "LIST", "MAP"})  # types of a transform's result
_MOST_NAMED: Final = 9  # in a hint
_ANSWERED: Final = EXTERNAL | {"transform", "write"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskAssessment:
    """The assessment of a tool. `expressions` are by path in the document; `notes` tell what decides nothing."""

    risk: str
    findings: tuple[FlowFinding, ...]
    problems: tuple[ConfigProblem, ...]
    notes: tuple[str, ...]
    concurrency: str
    expressions: Mapping[Keys, Expression] = field(repr=False)

    @property
    def deployable(self) -> str:
        """Return `no`, `acknowledge` for a yellow tool, or `yes`."""
        if self.problems or self.risk == rules.RED:
            return "no"
        return "acknowledge" if self.risk == rules.YELLOW else "yes"


def assess(tool: FlowTool, policies: Iterable[Policy] = (), entities: Collection[str] = ()) -> RiskAssessment:
    """Assess a tool. Pure: no clock, no network, no file. `entities` are the names of those and of composites, where
    they are known: then another problem tells of a read of an unknown one, and none of names that it leaves
    unbound."""
    found = rules.findings(tool)
    known = policies_by_name(policies)
    others = f"known are {', '.join(sorted(known))}; name the file of another one: --policy"
    problems = [
        tool.source.problem(path, "an unknown policy", nearest(name, known) or others)
        for path, name in policy_names(tool)
        if name not in known
    ]
    expressions = _Expressions(tool, entities)
    if sum(1 for node in tool.nodes.values() for _ in _texts(node)) > MOST_EXPRESSIONS:
        what = f"more than {MOST_EXPRESSIONS} expressions"
        problems.append(tool.source.problem(("flow", "nodes"), what, "split the tool"))
    else:
        problems += expressions.problems()
        problems += _unseen(tool, known, expressions.checked)
    risk = rules.risk_of(found)
    notes = [*_idle(tool), *_may_be_null(tool, expressions.checked.values())]
    if tool.risk_level not in {None, risk}:
        notes.append(f"riskLevel is written as {tool.risk_level}; the risk is {risk}")
    return RiskAssessment(
        risk=risk,
        findings=tuple(found),
        problems=tuple(problems),
        notes=tuple(notes),
        concurrency=rules.concurrency_of(tool),
        expressions=expressions.checked,
    )


class _Expressions:
    """The expressions of a tool, `checked` against the names that every path to their node binds."""

    def __init__(self, tool: FlowTool, entities: Collection[str]) -> None:
        self._tool, self._caller = tool, names_of_schema(tool.input, "input") | Names(types={"caller.id": TEXT})
        self._entities = {lower_camel(name) for node in tool.nodes.values() if (name := read_name(node))}
        # a node or entity may have been named so before the caller was bound
        is_taken = "caller" in {*tool.nodes, *self._entities}
        self._given = names_of_schema(tool.input, "input") if is_taken else self._caller
        strange = any(name not in entities for node in tool.nodes.values() if (name := read_name(node)))
        self._meant = set(map(lower_camel, entities)) - self._entities if strange else set[str]()
        self.checked: dict[Keys, Expression] = {}

    def problems(self) -> Iterator[ConfigProblem]:
        """Check the expressions, and yield their problems."""
        tool = self._tool
        if tool.idempotency_key is not None:
            text = (("idempotencyKey",), tool.idempotency_key, TEXT)
            yield from self._check([text], Scope(self._caller), self._caller, ())
        for node in tool.nodes.values():
            if folded(node.id) in self._entities and lower_camel(read_name(node)) != node.id:
                hint = "rename the node: a read binds its entity by this name"
                yield tool.source.problem((*node.path, "id"), "the name of an entity that the flow reads", hint)
        binds: dict[str, Names] = {}
        scopes: dict[tuple[object, ...], Scope] = {}
        reached = paths([tool.start], tool.after) if tool.start in tool.nodes else ()
        for name in (name for name in order(tool) if name in reached):  # rule 6 has named the others
            node, result = tool.nodes[name], DYNAMIC
            bound = _common([binds[each] for each in tool.before[name] if each in binds])
            if texts := list(_texts(node)):
                known = self._given | bound
                used = known.used_in(text for _, text, _ in texts)
                key = (*sorted(used.types.items()), used.optional)
                if key not in scopes:  # a scope costs milliseconds, and nodes often read the same names
                    scopes[key] = Scope(used, [each for each in tool.nodes if "-" in each])
                yield from self._check(texts, scopes[key], known, {*tool.nodes, *self._entities} - bound.types.keys())
                if node.type == "transform" and texts[0][0] in self.checked:
                    result = self.checked[texts[0][0]].type
            binds[name] = bound | _bound_by(node, result)

    def _check(
        self, texts: Iterable[tuple[Keys, str, str]], scope: Scope, known: Names, unbound: Collection[str]
    ) -> Iterator[ConfigProblem]:
        for path, text, wanted in texts:
            try:
                self.checked[path] = scope.compile(text, wanted)
            except ExpressionRefused as error:
                name = error.unknown.partition(".")[0]
                if name in self._meant:
                    continue  # the read that should bind it names an unknown entity, which is the problem
                hint = _bind(error.unknown, self._tool, unbound, known) if name else error.hint
                yield self._tool.source.problem(path, f"{error.what} (character {error.column})", hint)


def _unseen(tool: FlowTool, known: Mapping[str, Policy], checked: Mapping[Keys, Expression]) -> Iterator[ConfigProblem]:
    """Yield where a policy that reads `amount` sees no number: in a payment, or in the input."""
    names, numbers = names_of_schema(tool.input, "input").types, {NUMBER, DYNAMIC}
    in_input = names.get("input.amount", names.get("input")) in numbers
    unseen = list[Keys]()
    payments = [node for node in tool.nodes.values() if node.type == "payment"]
    for node in payments:
        fields, path = node.config.get("fields", {}), (*node.path, "config", "fields", "amount")
        mapped = [edge.data_mapping.values() for edge in tool.edges if edge.target == node.id]
        seen = all("amount" in each for each in mapped) if any(mapped) else in_input and not fields
        if not (seen if "amount" not in fields else path not in checked or checked[path].type in numbers):
            unseen.append(path)
    for path, name in policy_names(tool):
        if name not in known or "amount" not in rewritten(known[name].condition, frozenset()).reads:
            continue
        of_input = path[0] != "policies" or not payments
        for place in ([] if in_input else [path]) if of_input else unseen:
            what = f"the policy {name} reads amount, which is no number here"
            yield tool.source.problem(place, what, "write an `amount` that is one")


def _idle(tool: FlowTool) -> Iterator[str]:
    """Tell of the retry and timeout nodes that stand before no external node: each has one edge at most."""
    after = {edge.source: tool.nodes[edge.target] for edge in tool.edges}
    for node in tool.nodes.values():
        seen, there = set[str](), node
        while there.type in rules.WRAPPERS and there.id in after and there.id not in seen:
            seen.add(there.id)
            there = after[there.id]
        if node.type in rules.WRAPPERS and there.type not in EXTERNAL:
            yield f"{node.id}: a {node.type} node has no effect here; put it directly before an external node"


def _may_be_null(tool: FlowTool, expressions: Iterable[Expression]) -> Iterator[str]:
    """Tell of the reads of one row whose members are used, and which no expression compares with null."""
    known = list(expressions)
    for node in tool.nodes.values():
        names = {folded(node.id), lower_camel(read_name(node))} if node.type == "read" and is_one(node.config) else ()
        used = {path.partition(".")[0] for each in known for path in each.reads if "." in path}
        if used & set(names) and not any(each.compares_with_null(name) for each in known for name in names):
            yield f"{node.id}: it may find no row; compare it with null first, else the answer is notFound"
        for name, text in node.config.get("filter", {}).items():
            if text.strip() in names_of_schema(tool.input, "input").optional:
                yield f"{node.id}: {text.strip()} may be absent, and then no row fits its filter {name}"


def _bound_by(node: Node, result: str) -> Names:
    """Return what a node binds. A read also binds its entity's name."""
    if node.type == "read":
        return Names(types=dict.fromkeys((node.id, lower_camel(read_name(node))), DYNAMIC))
    kind = result if result in _KEPT else DYNAMIC
    return Names(types={f"{node.id}.result": kind}) if node.type in _ANSWERED else NO_NAMES


def _common(all_bound: list[Names]) -> Names:
    """Return the names that each of them has. A name of two types is dynamic."""
    if not all_bound:
        return NO_NAMES
    first, *others = all_bound
    return Names(
        types={
            name: kind if all(other.types[name] == kind for other in others) else DYNAMIC
            for name, kind in first.types.items()
            if all(name in other.types for other in others)
        }
    )


def _texts(node: Node) -> Iterator[tuple[Keys, str, str]]:
    """Yield (path in the document, text, wanted type) of each expression of a node."""
    config, place = node.config, (*node.path, "config")
    if isinstance(config.get("expression"), str):
        yield (*place, "expression"), config["expression"], TRUTH if node.type in {"if", "assert"} else ""
    for member in ("filter", "fields", "path", "query"):
        for key, text in config.get(member, {}).items():
            yield (*place, member, key), text, ""
    for member in ("to", "subject", "body") if node.type in EXTERNAL else ():
        written = config.get(member)
        if isinstance(written, str):
            yield (*place, member), written, TEXT
        for key, text in written.items() if isinstance(written, dict) else ():
            yield (*place, member, key), text, ""


def _bind(unknown: str, tool: FlowTool, unbound: Collection[str], known: Names) -> str:
    """Return what to do about a name that is not bound on every path, or nowhere."""
    name, _, member = unknown.partition(".")
    if name in known.roots:
        members = [each.removeprefix(f"{name}.") for each in known.types if each.startswith(f"{name}.")]
        there = ", ".join(f"{name}.{each}" for each in members[:_MOST_NAMED])
        found = closest(member, members)
        return f"the nearest known name is {name}.{found}" if found else f"correct the name; known here: {there}"
    if name in unbound:
        node = "let every path run its node before this one, and read `.result` of it"
        return node if name in tool.nodes else "let every path read the entity before this node"
    entity = f"{name[:1].upper()}{name[1:]}"
    return nearest(name, known.roots) or f"let every path read the entity {entity} before it, or correct the name"
