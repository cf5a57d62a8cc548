"""Print tables: drawn on a terminal, plain columns elsewhere. Control characters in stored text are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from oauthbroker.cli.output.column_widths import Layout
from oauthbroker.cli.output.pager import page


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as text, one line per row, neither wrapped nor cut."""
    lines = [tuple(head), *(tuple(map(shown, row)) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, aside: bool = False, paged: bool = False) -> None:
    """Print a table on stdout, or `aside` on stderr: laid out for the terminal's width, else as `columns`.

    With `paged`, one that is longer than the terminal is shown in the pager."""
    console = Console(stderr=aside, highlight=False, markup=False, emoji=False)
    if not console.is_terminal or console.is_dumb_terminal:
        console.file.write(columns(head, rows) + "\n")
        return
    lines = [*Layout.of(head, [tuple(map(shown, row)) for row in rows], console.width).lines()]
    with console.capture() as drawn:
        for line in lines:
            console.print(line, soft_wrap=True)
    if not (paged and len(lines) >= console.height and page(drawn.get())):
        console.file.write(drawn.get())


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
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
