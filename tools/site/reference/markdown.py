"""Pieces of Markdown that all parts of the reference are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from tools.quality.prose import MOST_WORDS

R = TypeVar("R")
_CODE = re.compile(r"(``.+?``|`[^`]*`|https?://[^\s`\"]*[^\s`\".,:;)])", re.DOTALL)
_SPECIAL = re.compile(r"([\\*_\[\]])")


class Rows(dict[str, R]):
    """The rows of tables in a page of docs/ by their first cell, which a person writes."""

    def __init__(self, page: str, rows: Mapping[str, R]) -> None:
        super().__init__(rows)
        self.page = page

    def __missing__(self, name: str) -> R:
        raise ValueError(f"docs/{self.page} has no row for `{name}`: add one to a table there")


def prose(text: str) -> str:
    """Return plain text as Markdown: backticks hold code, an address is a link, and no other character has a meaning."""
    return "".join(
        _kept(part) if odd % 2 else _SPECIAL.sub(r"\\\1", part).replace("<", "&lt;")
        for odd, part in enumerate(_CODE.split(text))
    )


def _kept(part: str) -> str:
    """Return code as it is, and an address as a link. A template of addresses is code."""
    return part if part[0] == "`" else code(part) if re.search(r"[{<]", part) else f"<{part}>"


def code(text: str) -> str:
    """Return text as code, also where it has backticks."""
    return f"`` {text} ``" if "`" in text else f"`{text}`" if text else ""


def block(text: str, language: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def heading(level: int, title: str, anchor: str) -> str:
    return f"{'#' * level} {title} {{ #{anchor} }}\n"


def slug(*parts: str) -> str:
    """Return an anchor, or a file's name, for these names."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, or nothing without rows. A column that would be empty is left out, and a cell that is too long to
    read goes on in the next row."""
    cells = [list(row) for row in rows]
    kept = [at for at in range(len(head)) if any(row[at] for row in cells)]
    if not cells:
        return ""
    lines = ["| " + " | ".join(head[at] for at in kept) + " |", "|" + "---|" * len(kept)]
    lines += ["| " + " | ".join(row[at].replace("|", "\\|") for at in kept) + " |" for row in _folded(cells)]
    return "\n".join(lines) + "\n"


def _folded(rows: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    for row in rows:
        pieces = [_pieces(cell) for cell in row]
        for number in range(max(map(len, pieces))):
            yield [each[number] if number < len(each) else "" for each in pieces]


def _pieces(text: str) -> list[str]:
    """Return a cell in pieces of at most MOST_WORDS words, cut between sentences or at a semicolon outside brackets."""
    if len(text.split()) <= MOST_WORDS:
        return [text]
    ends = [
        found.end()
        for found in re.finditer(r"[;.] (?=\S)", text)
        if text.count("(", 0, found.start()) == text.count(")", 0, found.start())
        and text.count("`", 0, found.start()) % 2 == 0
    ]
    pieces = [""]
    for begin, end in pairwise([0, *ends, len(text)]):
        if pieces[-1] and len((pieces[-1] + text[begin:end]).split()) > MOST_WORDS:
            pieces.append("")
        pieces[-1] += text[begin:end]
    return [each.strip() for each in pieces]
