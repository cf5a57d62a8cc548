"""Print tables: drawn on a terminal, plain columns elsewhere. Control characters in stored text are escaped."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress

from rich.console import Console
from rich.text import Text

from oauthbroker.cli.output.column_widths import Layout
from oauthbroker.core.shapes import shapes

_LESS = "FRX"  # exit if the text fits, show colours, leave the text on the screen


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as text, one line per row, neither wrapped nor cut."""
    lines = [tuple(head), *(tuple(map(shown, row)) for row in rows)]
    return _joined(lines, _widths(lines))


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _joined(lines: Iterable[Sequence[str]], widths: Sequence[int]) -> str:
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, aside: bool = False) -> None:
    """Print a table on stdout, or `aside` on stderr: laid out for the terminal's width, else as `columns`."""
    whole = Table(head, aside=aside)
    whole.add([*rows])
    whole.end()


class Table:
    """Prints a table in parts, so that a long one is never in memory. On a terminal each part is a table of its own,
    and with `paged` a single one that is longer than the terminal is shown in the pager. Elsewhere the first part has
    the head and decides the widths."""

    def __init__(self, head: Sequence[str], *, aside: bool = False, paged: bool = False) -> None:
        self._head, self._aside, self._paged = head, aside, paged
        self._part: list[tuple[str, ...]] | None = None
        self._widths = list[int]()

    def add(self, rows: Iterable[Sequence[str]]) -> None:
        if self._part is not None:
            self._paged = False
            self._print(self._part)
        self._part = [tuple(map(shown, row)) for row in rows]

    def end(self) -> None:
        if self._part is not None:
            self._print(self._part)

    def _print(self, rows: list[tuple[str, ...]]) -> None:
        console = Console(stderr=self._aside, highlight=False, markup=False, emoji=False)
        if not console.is_terminal or console.is_dumb_terminal:
            lines = rows if self._widths else [tuple(self._head), *rows]
            self._widths = self._widths or _widths(lines)
            console.file.write(_joined(lines, self._widths) + "\n")
            return
        drawn_lines = [*Layout.of(self._head, rows, console.width).lines()]
        with console.capture() as drawn:
            for line in drawn_lines:
                console.print(line, soft_wrap=True)
        if not (self._paged and len(drawn_lines) >= console.height and page(drawn.get())):
            console.file.write(drawn.get())


def page(text: str) -> bool:
    """Show the text in the user's pager, as git does: `PAGER`, else `less`, which exits if the text fits the screen.
    False if there is none: `PAGER` is empty, `cat`, or cannot be started."""
    command = os.environ.get("PAGER", "less").strip()
    if command in {"", "cat"}:
        return False
    try:
        shown = subprocess.Popen(  # noqa: S603  (the user chose it)
            shlex.split(command), stdin=subprocess.PIPE, env={"LESS": _LESS, **os.environ}, text=True, encoding="utf-8"
        )
    except (OSError, ValueError):
        return False
    while True:
        with suppress(KeyboardInterrupt):  # Ctrl-C is for the pager
            shown.communicate(text)
            return True


def facts(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair per line."""
    rows = [(name, shown(value)) for name, value in pairs]
    width = max((len(name) for name, _ in rows), default=0)
    console = Console(highlight=False, markup=False, emoji=False)
    for name, value in rows:
        line = Text(name.ljust(width), style="dim").append(f"  {value}", style="not dim")
        line.rstrip()
        console.print(line, soft_wrap=True)


def shown(text: str) -> str:
    """Return the text with terminal control characters escaped."""
    return "".join(char if fits else f"\\u{ord(char):04x}" for char, fits in shapes(text))


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
