"""Lay out a table for a terminal's width. No word of a cell is ever broken, because users copy ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from oauthbroker.core.dataclasses import dataclass

GAP: Final = 2
STYLES: Final = {
    "live": "green", "ok": "green", "set": "green",
    "missing": "yellow", "warning": "yellow", "expired": "yellow", "ending": "yellow",
    "must agree again": "yellow",
    "needs a new key": "yellow",
    "failure": "bold red", "revoked": "dim",
}  # fmt: skip
Cells = Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`widths` of the columns side by side; the columns in `apart` have a line of their own below each row. `width` is
    the terminal's."""

    head: Cells
    rows: Sequence[Cells]
    widths: dict[int, int]
    apart: tuple[int, ...]
    width: int

    @classmethod
    def of(cls, head: Cells, rows: Sequence[Cells], width: int) -> Layout:
        """Fold columns between words first; then move those with the longest words below. The first column stays."""
        cells = [[line[at] for line in (head, *rows)] for at in range(len(head))]
        least = {
            at: max(cell_len(word) for cell in column for word in cell.split(" ")) for at, column in enumerate(cells)
        }
        beside, apart = list(range(len(head))), list[int]()
        while len(beside) > 1 and _total(least[at] for at in beside) > width:
            widest = max(beside[1:], key=lambda at: least[at])
            beside.remove(widest)
            apart.append(widest)
        widths = {at: max(map(cell_len, cells[at])) for at in beside}
        while (over := _total(widths.values()) - width) > 0:
            loose = max(beside, key=lambda at: widths[at] - least[at])
            if widths[loose] == least[loose]:
                break
            widths[loose] = max(least[loose], widths[loose] - over)
        return cls(head=head, rows=rows, widths=widths, apart=tuple(sorted(apart)), width=width)

    def lines(self) -> Iterator[Text]:
        yield from self._beside(self.head, "bold")
        yield Text("\u2500" * min(self.width, _total(self.widths.values())))
        for row in self.rows:
            yield from self._beside(row, None)
            yield from self._below(row)

    def _beside(self, row: Cells, style: str | None) -> Iterator[Text]:
        folded = {at: _folded(row[at], width) for at, width in self.widths.items()}
        for number in range(max(map(len, folded.values()))):
            line = Text()
            for at, width in self.widths.items():
                part = folded[at][number] if number < len(folded[at]) else ""
                line.append(part, style=STYLES.get(row[at], "") if style is None else style)
                line.append(" " * (width + GAP - cell_len(part)))
            line.rstrip()
            yield line

    def _below(self, row: Cells) -> Iterator[Text]:
        label = max((cell_len(self.head[at]) for at in self.apart), default=0)
        indent = GAP + label + GAP
        for at in (at for at in self.apart if row[at]):
            first, *more = _folded(row[at], max(self.width - indent, 1))
            name = self.head[at] + " " * (label - cell_len(self.head[at]))
            yield Text(" " * GAP).append(name, style="dim").append(" " * GAP + first)
            yield from (Text(" " * indent + part) for part in more)


def _total(widths: Iterable[int]) -> int:
    every = list(widths)
    return sum(every) + GAP * (len(every) - 1)


def _folded(text: str, width: int) -> list[str]:
    """Return the text in lines of that width, broken between words. A longer word has a line of its own."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and cell_len(joined) > width:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines
