"""Plain columns that neither wrap nor let a stored text speak to the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as text, one line a row."""
    lines = [tuple(head), *(tuple(map(shown, row)) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def shown(text: str) -> str:
    """The text with everything that a terminal could obey spelt out."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
