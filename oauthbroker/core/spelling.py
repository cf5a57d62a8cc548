"""Which known word a written one was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_JOINTS = str.maketrans("", "", "-_ ")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known name that is close to `word`, in any case, or an empty text."""
    names = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(word.casefold(), list(names), n=1, cutoff=0.6)
    return names[close[0]] if close else ""


def nearest_tool(tool: str, declared: Iterable[str]) -> str:
    """Return the declared tool of the same kind whose name is close to that of `tool`, or an empty text. A name without
    a kind is looked for in all kinds."""
    if "/" not in tool:
        kinds = {each.partition("/")[2]: each for each in declared}
        return kinds.get(nearest(tool, kinds), "")
    kind, slash, name = tool.partition("/")
    close = nearest(name, [each.removeprefix(kind + slash) for each in declared if each.startswith(kind + slash)])
    return f"{kind}/{close}" if close else ""


def is_slip(word: str, known: str, most: int = 1) -> bool:
    """Return whether `word` is a typo of `known`: another case, other joints, or at most so many letters wrong."""
    if word == known or abs(len(word) - len(known)) > most + 2:
        return False
    return _distance(word.casefold().translate(_JOINTS), known.casefold().translate(_JOINTS)) <= most


def is_slip_of_field(word: str, known: str) -> bool:
    """Return the same for a field among fields of other programs: a word that holds the known one (`author`) is its
    own."""
    return is_slip(word, known) and (known not in word.casefold() or word.casefold() == known)


def _distance(one: str, other: str) -> int:
    """Count the letters that were added, left out or replaced, and the neighbours that were swapped."""
    before, last = list[int](), list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, wanted in enumerate(other, 1):
            cost = min(last[column] + 1, now[-1] + 1, last[column - 1] + (letter != wanted))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == wanted:
                cost = min(cost, before[column - 2] + 1)
            now.append(cost)
        before, last = last, now
    return last[-1]
