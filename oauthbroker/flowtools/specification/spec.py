"""A tool's specification: loaded with all its problems at once, both dialects of graphs in one form."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic.alias_generators import to_snake

from oauthbroker.flowtools.specification.source import (
    FlowRefused,
    FlowSource,
    Keys,
    nearest,
    read_source,
    refuse,
    shape_problems,
    slow_references,
)
from oauthbroker.flowtools.specification.triggers import Trigger, trigger_problems
from oauthbroker.plugins import json_schema_validator

EXTERNAL: Final = frozenset({"payment", "email", "sms", "httpRequest"})
_COPIED: Final = ("name", "description", "input", "output", "riskLevel", "concurrencyStrategy", "idempotencyKey")
_NODE_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_HOST = re.compile(r"(?=.{4,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]")
_SLOT = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
_PATH = re.compile(r"(/[A-Za-z0-9._~!$'()*+,;=:@-]*)*")
_INNER: Final = frozenset((
    "arpa", "corp", "home", "internal", "invalid", "lan", "local", "localdomain", "localhost", "onion", "test",
))  # fmt: skip
# Words that an expression cannot use as a name; `input` is the tool's input.
RESERVED: Final = frozenset((
    "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "input", "let",
    "loop", "namespace", "null", "package", "parameters", "return", "true", "var", "void", "while",
))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node in the one form: `operation` stands for `operation` and `action`. `path` is its place in the document."""

    id: str
    type: str
    operation: str
    config: Mapping[str, Any] = field(repr=False)
    path: Keys = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An edge. `label` is None where none is written."""

    source: str
    target: str
    label: str | None = None
    data_mapping: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowTool:
    """A tool's specification. `risk_level` is what its author wrote, which decides nothing. `after` and `before` are
    the nodes to which the edges of each node lead, and from which they come."""

    name: str
    version: int
    description: str
    trigger: Trigger
    input: Mapping[str, Any] = field(repr=False)
    output: Mapping[str, Any] = field(repr=False)
    nodes: Mapping[str, Node] = field(repr=False)
    edges: tuple[Edge, ...] = field(repr=False)
    after: Mapping[str, Sequence[str]] = field(repr=False)
    before: Mapping[str, Sequence[str]] = field(repr=False)
    start: str
    policies: tuple[str, ...] = ()
    auth_required: bool = True
    allowed_roles: tuple[str, ...] = ()
    run_as: str | None = None
    risk_level: str | None = None
    concurrency_strategy: str | None = None
    idempotency_key: str | None = None
    source: FlowSource = field(repr=False)

    @property
    def route(self) -> tuple[str, str] | None:
        """Return the method and the path of its own; None without one."""
        return (self.trigger.method or "POST", self.trigger.path) if self.trigger.path else None


def load_tool(raw: bytes, file: str) -> FlowTool:
    """Load a tool's specification from the bytes of a JSON or YAML file. Raises FlowRefused with every problem."""
    source = read_source(raw, file)
    problems = list(shape_problems(source, ""))
    data = source.data if isinstance(source.data, dict) else {}
    problems += [source.problem(*each) for each in trigger_problems(data.get("trigger"), data.get("auth"))]
    for member in ("input", "output"):
        if isinstance(data.get(member), dict):
            problems += [source.problem((member,), *each) for each in _schema_problems(data[member])]
    nodes = _nodes(data)
    for node in nodes:
        problems += [source.problem((*node.path, *path), *rest) for path, *rest in _node_problems(node)]
    problems += [source.problem(*each) for each in _graph_problems(nodes, data.get("flow"))]
    refuse(problems)
    auth = data.get("auth", {})
    after, before = ({node.id: list[str]() for node in nodes} for _ in range(2))
    for one in data["flow"]["edges"]:
        after[one["from"]].append(one["to"])
        before[one["to"]].append(one["from"])
    return FlowTool(
        **{to_snake(name): data[name] for name in _COPIED if name in data},
        version=int(data["version"]),
        trigger=Trigger(**{to_snake(name): value for name, value in data["trigger"].items()}),
        nodes={node.id: node for node in nodes},
        edges=tuple(
            Edge(source=one["from"], target=one["to"], label=one.get("label"), data_mapping=one.get("dataMapping", {}))
            for one in data["flow"]["edges"]
        ),
        after=after,
        before=before,
        start=data["flow"]["startNode"],
        policies=tuple(data.get("policies", ())),
        auth_required=auth.get("required", True),
        allowed_roles=tuple(auth.get("allowedRoles", ())),
        run_as=auth.get("runAs"),
        source=source,
    )


def lower_camel(name: str) -> str:
    """Return the name by which expressions know an entity: `vehicle` for `Vehicle`."""
    return name[:1].lower() + name[1:]


def read_name(node: Node) -> str:
    """Return the entity or composite that a read node names; empty for another node."""
    return str(node.config.get("entity") or node.config.get("composite") or "") if node.type == "read" else ""


def is_one(config: Mapping[str, Any]) -> bool:
    """Tell whether a read or write means one row: by id alone, or a limit of 1."""
    return set(config.get("filter", ())) == {"id"} or config.get("limit") == 1


def policy_names(tool: FlowTool) -> list[tuple[Keys, str]]:
    """Return the policies that a tool and its nodes name, each with its path in the document."""
    named: list[tuple[Keys, str]] = [(("policies", at), name) for at, name in enumerate(tool.policies)]
    checks = (node for node in tool.nodes.values() if node.type == "policyCheck")
    return [*named, *(((*node.path, "config", "policy"), str(node.config["policy"])) for node in checks)]


def refuse_changed(tool: FlowTool, known_digest: str | None) -> None:
    """Refuse other bytes under a version that is known. A version is immutable. Raises FlowRefused."""
    if known_digest not in {None, tool.source.digest}:
        hint = f"write version {tool.version + 1}"
        raise FlowRefused([tool.source.problem(("version",), "this version exists with other bytes", hint)])


def _schema_problems(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        json_schema_validator(schema)
    except ValueError:
        yield "not a usable JSON Schema 2020-12", "correct it: known formats, no other documents, linear regexes"
        return
    if why := slow_references(schema):
        yield "a JSON Schema whose references multiply", why


def _nodes(data: Mapping[str, Any]) -> list[Node]:
    """Return the nodes of either dialect that have the shape of one."""
    flow = data.get("flow")
    written: Any = flow.get("nodes") if isinstance(flow, dict) else None
    named = isinstance(written, dict)
    items = written.items() if named else enumerate(written) if isinstance(written, list) else ()
    found = []
    for at, node in ((at, node) for at, node in items if isinstance(node, dict)):
        name, kind, config = at if named else node.get("id"), node.get("type"), node.get("config", {})
        if isinstance(name, str) and isinstance(kind, str) and kind and isinstance(config, dict):
            operation = config.get("operation", config.get("action", ""))
            one = {key: value for key, value in config.items() if key not in {"operation", "action"}}
            one |= {"both": True} if {"operation", "action"} <= config.keys() else {}
            operation = operation if isinstance(operation, str) else ""
            path: Keys = ("flow", "nodes", at)
            found.append(Node(id=name, type=lower_camel(kind), operation=operation, config=one, path=path))
    return found


def _node_problems(node: Node) -> Iterator[tuple[Keys, str, str]]:
    config = node.config
    if not _NODE_ID.fullmatch(node.id) or node.id in RESERVED:
        yield (), "an id that expressions cannot use", "use letters, digits, _ and -, and no word of the language"
    if config.get("both"):
        yield ("config", "action"), "beside `operation`, which means the same", "keep one of them"
    if node.type == "read" and ("entity" in config) == ("composite" in config):
        yield ("config",), "not exactly one of entity and composite", "name the entity, or the composite"
    if node.type == "write" and "sql" not in config:
        for member, there in (("entity", "entity" in config), ("operation", bool(node.operation))):
            if not there:
                yield ("config", member), "missing", "write it"
        if (node.operation == "transition") != ("to" in config):
            yield ("config", "to"), "does not fit the operation", "a transition has `to`, and no other write has it"
        if node.operation == "create" and "filter" in config:
            yield ("config", "filter"), "not for the operation create", "remove it"
    if node.type == "httpRequest" and isinstance(url := config.get("url"), str):
        yield from _request_problems(node, url)


def _request_problems(node: Node, url: str) -> Iterator[tuple[Keys, str, str]]:
    if not is_public_url(sample_url(url)):
        hint = "write a literal https URL: a public host name, no user, port, query or fragment, no . or .. segments"
        yield ("config", "url"), "not a URL that a flow may call", hint
    if sorted(url_slots(url)) != sorted(f"{{{name}}}" for name in node.config.get("path", ())):
        yield ("config", "path"), "does not fit the url", "write one expression for each {name} of the url"
    if "body" in node.config and not has_effect(node):
        yield ("config", "body"), "not for this method", "write method: POST, or use query"


def sample_url(url: str) -> str:
    """Return a URL with a plain segment in place of each slot."""
    slots = url_slots(url)
    return "/".join("x" if each in slots else each for each in url.split("/"))


def url_slots(url: str) -> list[str]:
    """Return the segments `{name}` of a URL's path, for which a run has values."""
    return [each for each in url.split("/")[3:] if _SLOT.fullmatch(each)]


def has_effect(node: Node) -> bool:
    """Tell whether a write or external node changes something (RFC 9110 section 9.2.1)."""
    return node.type != "httpRequest" or node.config.get("method", "GET") not in {"GET", "HEAD"}


def is_public_url(url: str) -> bool:
    """Tell whether a URL is https, to a public host name, and reads the same for every parser."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    host, segments = parts.netloc, parts.path.split("/")
    return bool(
        url == f"https://{host}{parts.path}"
        and _HOST.fullmatch(host)
        and host.rpartition(".")[2] not in _INNER
        and _PATH.fullmatch(parts.path)
        and not {".", ".."} & set(segments)
        and "" not in segments[1:-1]
    )


def _graph_problems(nodes: list[Node], flow: Any) -> Iterator[tuple[Keys, str, str]]:
    """Yield the problems of the graph as a text: names that stand twice or for nothing, labels at wrong places."""
    if not isinstance(flow, dict):
        return
    folded = Counter(node.id.replace("-", "_") for node in nodes)
    for node in nodes:
        if folded[node.id.replace("-", "_")] > 1:
            yield (*node.path, "id"), "an id twice", "rename one; - and _ are one letter in expressions"
    by_id = {node.id: node for node in nodes}
    edges = flow.get("edges")
    cases = Counter[tuple[str, str | None]]()
    leaving = Counter[str]()
    for at, edge in enumerate(edges if isinstance(edges, list) else ()):
        path: Keys = ("flow", "edges", at)
        ends = (edge.get("from"), edge.get("to")) if isinstance(edge, dict) else (None, None)
        for member, end in zip(("from", "to"), ends, strict=True):
            if isinstance(end, str) and end not in by_id:
                yield (*path, member), "no node of this flow", nearest(end, by_id) or "name a node"
        if not isinstance(ends[0], str) or ends[0] not in by_id:
            continue
        label, source = edge.get("label"), by_id[ends[0]]
        cases[source.id, label] += 1
        leaving[source.id] += 1
        problem = _label_problem(source, label, cases, leaving)
        if problem:
            yield (*path, "label") if "label" in edge else path, *problem
        targets = Counter(map(str, edge["dataMapping"].values())) if isinstance(edge.get("dataMapping"), dict) else {}
        if any(count > 1 for count in targets.values()):
            yield (*path, "dataMapping"), "two fields lead to one", "map each field of the target once"


def _label_problem(
    source: Node, label: Any, cases: Mapping[tuple[str, str | None], int], leaving: Mapping[str, int]
) -> tuple[str, str] | None:
    if source.type == "if" and label not in {"true", "false"}:
        return "an edge of an if node without `true` or `false`", "write label: true or label: false, quoted in YAML"
    if source.type == "switch" and label is None:
        return "an edge of a switch node without a label", "write the case, or default"
    if source.type not in {"if", "switch"} and label is not None:
        return "a label, and its node does not branch", "remove it, or branch with an if or switch node"
    if source.type not in {"if", "switch"} and leaving[source.id] > 1:
        hint = "put the nodes one after another, or branch with an if or switch node"
        return "a second edge from a node that does not branch", hint
    if label is not None and cases[source.id, label] > 1:
        return "a label twice", "write each case once"
    return None
