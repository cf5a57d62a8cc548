"""Say a problem in two sentences: the problem, and the hint. The two stay apart as data until they are shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST_LISTED = 30
# A plain word. Names, paths, protocols and quoted text keep their case.
_WORD = re.compile(r"(?!https?\b)[a-z][a-z'-]*[,;]?(?=\s|$)")


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop. One that begins with a name or with code keeps its case."""
    opened = text[:1].upper() + text[1:] if _WORD.match(text) else text
    return opened if opened.endswith((".", "?", "!")) else f"{opened}."


def listed(names: Sequence[str]) -> str:
    """Return the names as a sentence lists them: the first thirty, since a model reads it, too."""
    return ", ".join([*names[:MOST_LISTED], *(["..."] if len(names) > MOST_LISTED else [])])


def two_sentences(what: str, hint: str) -> str:
    """Return the problem and its hint as two sentences; without a hint the first one alone."""
    return f"{sentence(what)} {sentence(hint)}" if hint else sentence(what)
