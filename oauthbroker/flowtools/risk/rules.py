"""The graph of a flow, the graph rules 1 to 6, and the risk rules. Each finding has a risk, a path that shows it, and a
suggestion. Every function takes graphs of any shape, cycles included."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final, TypeVar

from oauthbroker.flowtools.specification.source import nearest
from oauthbroker.flowtools.specification.spec import EXTERNAL, FlowTool, Node, has_effect

GREEN, YELLOW, RED = "green", "yellow", "red"
RISKS: Final = (GREEN, YELLOW, RED)
MANY_ROWS: Final = 100
WRAPPERS: Final = frozenset({"retry", "timeout"})
_EXISTING_ROWS: Final = frozenset({"update", "transition", "softDelete", "delete"})
Place = TypeVar("Place", bound=Hashable)
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFinding:
    """What a rule found: by its number or name, at a node (empty: the whole flow), to which `path` leads."""

    rule: str
    risk: str
    node: str
    path: Path
    what: str
    hint: str


def findings(tool: FlowTool) -> list[FlowFinding]:
    """Return all findings: graph rules by number, then risk rules, each in the order of the document."""
    found: list[FlowFinding] = []
    if ring := cycle(tool):
        hint = "remove one of its edges; to try again, use a retry node"
        found.append(_at("1", RED, ring, "the flow runs in a cycle", hint))
    if tool.start not in tool.nodes:
        hint = nearest(tool.start, tool.nodes) or "write the id of a node as startNode"
        return [*found, _at("2", RED, (), "startNode names no node", hint)]
    reached = paths([tool.start], tool.after)
    found += _dead_ends(tool, reached)
    found += _transactions(tool)
    found += _unwrapped(tool, reached, "retry", "5")
    for name in (name for name in tool.nodes if name not in reached):
        hint = "connect it with an edge, or remove it"
        found.append(_at("6", RED, (), "startNode does not lead here", hint, node=name))
    found += _unwrapped(tool, reached, "timeout", "external-without-timeout")
    found += _transitions(tool, reached)
    for name in reached:
        found += [_at(rule, risk, reached.to(name), *text) for rule, risk, *text in _of_node(tool.nodes[name], tool)]
    places = {name: at for at, name in enumerate(tool.nodes)}
    return sorted(found, key=lambda each: (len(each.rule) > 1, each.rule, places.get(each.node, -1)))


def risk_of(found: list[FlowFinding]) -> str:
    return max((each.risk for each in found), key=RISKS.index, default=GREEN)


def concurrency_of(tool: FlowTool) -> str:
    """Return how concurrent calls are kept apart: as written, else `none` where no existing row changes; `pessimistic`
    where one changes and something outside is called, which cannot be tried again; else `optimistic`."""
    changes = any(node.type == "write" and node.operation in _EXISTING_ROWS for node in tool.nodes.values())
    acts = any(has_effect(node) for node in tool.nodes.values() if node.type in EXTERNAL)
    chosen = "none" if not changes else "pessimistic" if acts else "optimistic"
    return tool.concurrency_strategy or chosen


def _at(rule: str, risk: str, way: Path, what: str, hint: str, *, node: str = "") -> FlowFinding:
    return FlowFinding(rule=rule, risk=risk, node=node or "".join(way[-1:]), path=way, what=what, hint=hint)


def _dead_ends(tool: FlowTool, reached: Ways[str]) -> Iterator[FlowFinding]:
    """Rule 3: from every node a terminal is reached, and every outcome of a branch leads on."""
    ends = paths((name for name, after in tool.after.items() if not after), tool.before)
    for name in reached:
        if name not in ends:
            hint = "lead the path to a node without edges"
            yield _at("3", RED, reached.to(name), "no terminal node is reached from here", hint)
    labels: dict[str, set[str | None]] = {}
    for edge in tool.edges:
        labels.setdefault(edge.source, set()).add(edge.label)
    for name, there in labels.items():
        wanted = {"if": ("true", "false"), "switch": ("default",)}.get(tool.nodes[name].type, ())
        for label in wanted if name in reached else ():
            if label not in there:
                hint = f"add an edge with the label {label}"
                yield _at("3", RED, reached.to(name), f"the outcome {label} reaches no terminal node", hint)


def _transactions(tool: FlowTool) -> Iterator[FlowFinding]:
    """Rule 4 and its neighbours: in which states of the transaction do paths reach each node?"""

    def onward(here: tuple[str, bool]) -> list[tuple[str, bool]]:
        node, is_open = tool.nodes[here[0]], here[1]
        then = node.operation != "commit" if node.type == "transaction" else is_open
        return [(following, then) for following in tool.after[node.id]]

    states = search([(tool.start, False)], onward)
    for pair in states:
        node, is_open, way = tool.nodes[pair[0]], pair[1], tuple(name for name, _ in states.to(pair))
        if node.type == "write" and not is_open:
            what, hint = "a write outside a transaction", "put a transaction node before it on this path"
            yield _at("4", RED, way, what, hint)
        elif node.type == "transaction" and is_open and node.operation != "commit":
            yield _at("4", RED, way, "a transaction inside a transaction", "remove it, or commit before it")
        elif node.type == "transaction" and not is_open and node.operation == "commit":
            yield _at("4", RED, way, "a commit, and no transaction is open", "begin one before it on this path")
        elif node.type in EXTERNAL and is_open:
            hint = "commit before it: its effect outside cannot be rolled back"
            risk = RED if has_effect(node) else YELLOW
            yield _at("external-in-transaction", risk, way, "an external call inside a transaction", hint)


def _unwrapped(tool: FlowTool, reached: Ways[str], wrapper: str, rule: str) -> Iterator[FlowFinding]:
    """Rule 5, and its like for timeouts: a wrapper stands before each external node, another one perhaps between."""
    for name in reached:
        if tool.nodes[name].type in EXTERNAL and (bare := _bare(tool, reached, name, wrapper)):
            hint = f"put a {wrapper} node directly before it"
            way = (*reached.to(bare[0]), *bare[1:])
            yield _at(rule, YELLOW, way, f"an external call without a {wrapper} node", hint)


def _bare(tool: FlowTool, reached: Ways[str], name: str, wrapper: str) -> Path:
    """Return the end of a path to the node on which the wrapper is missing; empty if no path lacks it."""
    waiting: list[Path] = [(name,)]
    seen = {name}
    while waiting:
        way = waiting.pop()
        if way[0] == tool.start:
            return way
        for each in tool.before[way[0]]:
            kind = tool.nodes[each].type
            if each in reached and kind not in WRAPPERS:
                return (each, *way)
            if each in reached and kind != wrapper and each not in seen:
                seen.add(each)
                waiting.append((each, *way))
    return ()


def _transitions(tool: FlowTool, reached: Ways[str]) -> Iterator[FlowFinding]:
    """Find external calls on one path with a status transition: one may succeed without the other."""
    moves = [name for name in reached if tool.nodes[name].operation == "transition"]
    behind, ahead = paths(moves, tool.after), paths(moves, tool.before)
    for name in reached:
        if tool.nodes[name].type not in EXTERNAL or (name not in behind and name not in ahead):
            continue
        if name in behind:
            move, *rest = behind.to(name)
            way = (*reached.to(move), *rest)
        else:
            way = (*reached.to(name), *reversed(ahead.to(name)[:-1]))
        hint = "let the status say that the call is pending, and settle it in another flow"
        yield _at("external-in-transition", YELLOW, way, "an external call in a status transition", hint, node=name)


def _of_node(node: Node, tool: FlowTool) -> Iterator[tuple[str, str, str, str]]:
    """Yield (rule, risk, what, hint) of the rules that look at one node alone."""
    by_id, limit = set(node.config.get("filter", ())) == {"id"}, node.config.get("limit")
    if node.type == "payment" and "paymentRollback" not in tool.policies:
        yield "payment-without-rollback", RED, "a payment without compensation", "add the policy paymentRollback"
    if node.type == "read" and not by_id and limit is None:
        yield "read-without-limit", YELLOW, "a read without a limit", "write `limit`, or filter by id alone"
    if (node.type == "write" or node.type in EXTERNAL) and has_effect(node) and tool.idempotency_key is None:
        hint = "write idempotencyKey: an expression of the input"
        yield "no-idempotency-key", YELLOW, "an effect, and the tool has no idempotency key", hint
    if node.type != "write":
        return
    if "sql" in node.config:
        yield "raw-sql", RED, "a write by raw SQL", "write an entity: create, update, transition or softDelete"
        return
    if node.operation == "delete":
        yield "hard-delete", RED, "a hard delete", "use softDelete"
    if node.operation in _EXISTING_ROWS and not node.config.get("filter"):
        yield "unbounded-update", RED, "a write to all rows", "write a filter"
    elif node.operation in _EXISTING_ROWS and not by_id and (limit is None or limit > MANY_ROWS):
        hint = f"write a limit of at most {MANY_ROWS}, or filter by id alone"
        yield "many-rows", YELLOW, f"a write that may touch more than {MANY_ROWS} rows", hint


def cycle(tool: FlowTool) -> Path:
    """Return a cycle, first node last too; empty if there is none."""
    try:
        TopologicalSorter(tool.before).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return ()


def order(tool: FlowTool) -> list[str]:
    """Return the nodes so that each comes after those before it. Cycles and the nodes behind them are left out."""
    sorter, found = TopologicalSorter(tool.before), list[str]()
    with suppress(CycleError):  # the sorter goes on as far as the cycles let it
        sorter.prepare()
    while ready := sorter.get_ready():
        found += ready
        sorter.done(*ready)
    return found


class Ways(dict[Place, Place | None]):
    """The places that were reached, each with the one before it on a shortest way to it."""

    def to(self, place: Place) -> tuple[Place, ...]:
        """Return the way, both ends included."""
        way = [place]
        while (above := self[way[-1]]) is not None:
            way.append(above)
        return tuple(reversed(way))


def paths(starts: Iterable[str], neighbours: Mapping[str, Sequence[str]]) -> Ways[str]:
    """Return the nodes that any of `starts` reaches, itself included."""
    return search(starts, lambda name: neighbours[name])


def search(starts: Iterable[Place], onward: Callable[[Place], Iterable[Place]]) -> Ways[Place]:
    """Return the places that any of `starts` reaches, itself included, in time linear in places and steps."""
    came = Ways[Place](dict.fromkeys(starts))
    waiting = deque(came)
    while waiting:
        here = waiting.popleft()
        for following in onward(here):
            if following not in came:
                came[following] = here
                waiting.append(following)
    return came
