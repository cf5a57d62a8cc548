"""Draw a flow as SVG, findings in colour: nodes in layers from the start down, edges as curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

from oauthbroker.flowtools.risk.rules import FlowFinding, order, paths, risk_of
from oauthbroker.flowtools.specification.spec import FlowTool
from oauthbroker.plugins import two_sentences

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 200, 52, 40, 56, 32
_FILL: Final = {"green": "#e6f4ea", "yellow": "#fef3c7", "red": "#fde2e1"}
_LINE: Final = {"green": "#137333", "yellow": "#92620a", "red": "#b3261e"}
_LONGEST: Final = 24
_HEAD: Final = 'xmlns="http://www.w3.org/2000/svg" role="img" font-family="system-ui, sans-serif" font-size="13"'
_ARROW: Final = (
    '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="#5f6368"/></marker></defs>'
)
Point = tuple[float, float]


def draw(tool: FlowTool, found: Iterable[FlowFinding]) -> str:
    """Return an SVG document. A node has the colour of its worst finding, and the findings as its tooltip."""
    by_node: dict[str, list[FlowFinding]] = {name: [] for name in tool.nodes}
    for each in found:
        by_node.get(each.node, []).append(each)
    rank = _ranks(tool)
    place = _places(tool, rank)
    width = max((x for x, _ in place.values()), default=0) + _WIDTH + 2 * _MARGIN
    height = max((y for _, y in place.values()), default=0) + _HEIGHT + _MARGIN
    parts = [
        f'<svg {_HEAD} viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{escape(f'{tool.name}, version {tool.version}')}</title>",
        _ARROW,
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for edge in tool.edges:
        forward = rank[edge.source] < rank[edge.target]
        parts.append(_edge(place[edge.source], place[edge.target], edge.label or "", forward=forward))
    parts += [_node(name, tool.nodes[name].type, place[name], by_node[name], tool.start) for name in tool.nodes]
    return "\n".join([*parts, "</svg>", ""])


def _ranks(tool: FlowTool) -> dict[str, int]:
    """Return each node's layer: below all before it; in a cycle, by its distance from the start."""
    rank: dict[str, int] = {}
    for name in order(tool):
        rank[name] = max((rank[each] + 1 for each in tool.before[name]), default=0)
    near = paths([tool.start] if tool.start in tool.nodes else [], tool.after)
    deepest = max(rank.values(), default=0)
    for name in tool.nodes:
        if name not in rank:
            rank[name] = len(near.to(name)) - 1 if name in near else deepest + 1
    return rank


def _places(tool: FlowTool, rank: Mapping[str, int]) -> dict[str, Point]:
    """Return the upper left corner of each node. In a layer, nodes stand in the order of those before them."""
    layers: dict[int, list[str]] = {}
    for name in tool.nodes:
        layers.setdefault(rank[name], []).append(name)
    widest = max(map(len, layers.values()))
    column: dict[str, float] = {}
    for level in sorted(layers):
        names = layers[level]
        above = {name: [column[each] for each in tool.before[name] if each in column] for name in names}
        names.sort(key=lambda name: sum(above[name]) / len(above[name]) if above[name] else widest)
        for at, name in enumerate(names):
            column[name] = at + (widest - len(names)) / 2
    return {
        name: (_MARGIN + column[name] * (_WIDTH + _GAP_X), _MARGIN + rank[name] * (_HEIGHT + _GAP_Y))
        for name in tool.nodes
    }


def _node(name: str, kind: str, at: Point, found: list[FlowFinding], start: str) -> str:
    risk, middle, (x, y) = risk_of(found), at[0] + _WIDTH / 2, at
    texts = [f"{each.risk}, rule {each.rule}: {two_sentences(each.what, each.hint)}" for each in found]
    title = "\n".join(texts) or "no finding"
    marks = " ".join(dict.fromkeys(each.rule for each in found if len(each.rule) == 1))
    words = f"{kind}{', rule ' + marks if marks else ''}"
    return (
        f'<g class="{risk}"><title>{escape(f"{name}: {title}")}</title>'
        f'<rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="8" fill="{_FILL[risk]}" '
        f'stroke="{_LINE[risk]}" stroke-width="{3 if name == start else 1.5}"/>'
        f'<text x="{middle:g}" y="{y + 22:g}" text-anchor="middle" font-weight="600">{_short(name)}</text>'
        f'<text x="{middle:g}" y="{y + 40:g}" text-anchor="middle" fill="{_LINE[risk]}">{escape(words)}</text></g>'
    )


def _edge(source: Point, target: Point, label: str, *, forward: bool) -> str:
    """Return a curve from the lower side to the upper one. An edge of a cycle runs up at the right side, dashed."""
    if forward:
        x1, y1, x2, y2 = source[0] + _WIDTH / 2, source[1] + _HEIGHT, target[0] + _WIDTH / 2, target[1]
        right, bend, style = 0, (y2 - y1) / 2, ""
    else:
        x1, y1, x2, y2 = source[0] + _WIDTH, source[1] + _HEIGHT / 2, target[0] + _WIDTH, target[1] + _HEIGHT / 2
        right, bend, style = _MARGIN, 0.0, ' stroke-dasharray="5 4"'
    way = f"M{x1:g} {y1:g}C{x1 + right:g} {y1 + bend:g} {x2 + right:g} {y2 - bend:g} {x2:g} {y2:g}"
    text = ""
    if label:
        at = f'x="{(x1 + x2) / 2 + 6:g}" y="{(y1 + y2) / 2 + 4:g}"'
        text = f'<text {at} fill="#3c4043" stroke="#fff" stroke-width="4" paint-order="stroke">{_short(label)}</text>'
    return f'<path d="{way}" fill="none" stroke="#5f6368" stroke-width="1.5"{style} marker-end="url(#end)"/>{text}'


def _short(text: str) -> str:
    return escape(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")
