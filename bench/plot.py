"""Plots as SVG, in a few lines and without a library: bars and lines on a logarithmic or linear axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, RIGHT, ROW, TOP = 720, 90, 24, 34
LETTER = 6.4  # the width of an average letter
HEIGHT = 320
COLOURS = ("#1f6feb", "#d1742f", "#2da44e", "#8250df")
OTHERS = "#9aa4b2"


@dataclass(frozen=True)
class Bar:
    name: str
    value: float
    ours: bool = False


def bars(title: str, unit: str, rows: Sequence[Bar], *, logarithmic: bool = False) -> str:
    """Return horizontal bars; ours have a colour of their own."""
    low, high = min(row.value for row in rows) / 2, max(row.value for row in rows)
    left = round(max(len(row.name) for row in rows) * LETTER) + 16
    parts = []
    for number, row in enumerate(rows):
        y = TOP + number * ROW
        part = _share(row.value, low, high, logarithmic=logarithmic)
        length = max(1.0, part * (WIDTH - left - RIGHT))
        colour = COLOURS[0] if row.ours else OTHERS
        parts += [
            _text(left - 8, y + 15, row.name, "end"),
            f'<rect x="{left}" y="{y + 3}" width="{length:.1f}" height="{ROW - 7}" fill="{colour}"/>',
            _text(left + length + 6, y + 15, f"{row.value:,g} {unit}"),
        ]
    scale = ", logarithmic" if logarithmic else ""
    return _svg(f"{title} ({unit}{scale})", parts, TOP + ROW * len(rows) + 8)


def lines(title: str, x_name: str, unit: str, series: Mapping[str, Mapping[float, float]]) -> str:
    """Return one line for each series, on two logarithmic axes."""
    places = sorted({x for points in series.values() for x in points})
    values = [y for points in series.values() for y in points.values()]
    low, high = min(values) / 2, max(values) * 2
    bottom, right = HEIGHT - 46, WIDTH - 150

    def at(x: float, y: float) -> tuple[float, float]:
        across = _share(x, places[0], places[-1], logarithmic=True) * (right - 70)
        return 70 + across, bottom - _share(y, low, high, logarithmic=True) * (bottom - TOP)

    parts = [f'<path d="M70 {TOP}V{bottom}H{right}" stroke="{OTHERS}" fill="none"/>']
    parts += [_text(at(x, low)[0], bottom + 18, f"{x:,g}", "middle") for x in places]
    parts.append(_text((70 + right) / 2, bottom + 36, x_name, "middle"))
    for number, (name, points) in enumerate(series.items()):
        colour, corners = COLOURS[number % len(COLOURS)], [at(x, y) for x, y in sorted(points.items())]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        parts.append(f'<polyline points="{path}" stroke="{colour}" stroke-width="2" fill="none"/>')
        for (x, y), (_, value) in zip(corners, sorted(points.items()), strict=True):
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>']
            parts.append(_text(x, y - 7, f"{value:,g}", "middle"))
        parts.append(_text(corners[-1][0] + 26, corners[-1][1] + 4, name))
    return _svg(f"{title} ({unit}, both axes logarithmic)", parts, HEIGHT)


def _share(value: float, low: float, high: float, *, logarithmic: bool) -> float:
    if not logarithmic:
        return value / high if high else 0.0
    return math.log(value / low) / math.log(high / low) if high > low else 1.0


def _text(x: float, y: float, said: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(said)}</text>'


def _svg(title: str, parts: Sequence[str], height: int) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="12" fill="#24292f">'
    )
    back = f'<title>{escape(title)}</title><rect width="100%" height="100%" fill="#fff"/>'
    name = f'<text x="12" y="20" font-weight="bold">{escape(title)}</text>'
    return "\n".join([head, back, name, *parts, "</svg>", ""])
