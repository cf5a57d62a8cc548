"""The graph of a flow as the rules see it. Every function takes graphs of any shape, cycles included."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Generic, TypeVar

from oauthbroker.flowtools.specification.spec import FlowTool, Node

State = TypeVar("State", bound=Hashable)
Place = TypeVar("Place", bound=Hashable)
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes by id, and who follows and precedes each of them."""

    nodes: Mapping[str, Node]
    start: str
    after: Mapping[str, Sequence[str]] = field(repr=False)
    before: Mapping[str, Sequence[str]] = field(repr=False)


def graph_of(tool: FlowTool) -> Graph:
    after: dict[str, list[str]] = {name: [] for name in tool.nodes}
    before: dict[str, list[str]] = {name: [] for name in tool.nodes}
    for edge in tool.edges:
        after[edge.source].append(edge.target)
        before[edge.target].append(edge.source)
    return Graph(nodes=tool.nodes, start=tool.start, after=after, before=before)


def cycle(graph: Graph) -> Path:
    """Return a cycle, first node last too; empty if there is none."""
    try:
        TopologicalSorter(graph.before).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return ()


def order(graph: Graph) -> list[str]:
    """Return the nodes so that each comes after those before it. Cycles and the nodes behind them are left out."""
    sorter, found = TopologicalSorter(graph.before), list[str]()
    with suppress(CycleError):  # the sorter goes on as far as the cycles let it
        sorter.prepare()
    while ready := sorter.get_ready():
        found += ready
        sorter.done(*ready)
    return found


@dataclass(frozen=True, slots=True)
class Ways(Generic[Place]):
    """The places that were reached, and a shortest way to each of them."""

    came: Mapping[Place, Place | None]

    def __contains__(self, place: Place) -> bool:
        return place in self.came

    def __iter__(self) -> Iterator[Place]:
        return iter(self.came)

    def to(self, place: Place) -> tuple[Place, ...]:
        """Return the way, both ends included."""
        way = [place]
        while (above := self.came[way[-1]]) is not None:
            way.append(above)
        return tuple(reversed(way))


def paths(starts: Iterable[str], neighbours: Mapping[str, Sequence[str]]) -> Ways[str]:
    """Return the nodes that any of `starts` reaches, itself included."""
    return _search(starts, lambda name: neighbours[name])


def walk(
    start: tuple[str, State], neighbours: Mapping[str, Sequence[str]], leave: Callable[[str, State], State]
) -> Ways[tuple[str, State]]:
    """Return the pairs of a node and a state in which some path reaches it, in time linear in nodes, edges and states.
    `leave` says how a node changes the state."""

    def onward(here: tuple[str, State]) -> Iterator[tuple[str, State]]:
        then = leave(*here)
        return ((following, then) for following in neighbours[here[0]])

    return _search([start], onward)


def _search(starts: Iterable[Place], onward: Callable[[Place], Iterable[Place]]) -> Ways[Place]:
    came: dict[Place, Place | None] = dict.fromkeys(starts)
    waiting = deque(came)
    while waiting:
        here = waiting.popleft()
        for following in onward(here):
            if following not in came:
                came[following] = here
                waiting.append(following)
    return Ways(came)
