"""Link the terms of docs/glossary.md on the pages of the site: the first use of each on a page leads to its row, and shows its
meaning under the pointer. The Markdown of the repository stays as it is."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from posixpath import dirname, relpath
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

PAGE = "docs/glossary.md"
# Words of everyday language, too: a link at each would be in the reader's way.
EVERYDAY = frozenset(
    [
        "action",
        "app",
        "attempt",
        "caller",
        "claim",
        "drain",
        "event",
        "export",
        "fact",
        "feed",
        "generation",
        "handle",
        "handler",
        "health",
        "owner",
        "pair",
        "provider",
        "queue",
        "record",
        "refresh",
        "registry",
        "reload",
        "rotation",
        "runtime",
        "secret",
        "seed",
        "slot",
        "state",
        "store",
        "tag",
        "target",
        "tool",
        "user",
    ]
)
_ROW = re.compile(r"(?m)^\| \*\*([A-Za-z][\w -]*)\*\*(.*?) \| (.+?) \| ")
_KEPT = (  # code, headings, links, tags and comments
    r"(?ms:^ *```.*?^ *```$)|(?m:^#+ .*$)|<!--(?s:.*?)-->|``.+?``|`[^`\n]*`|!?\[(?:[^\[\]]|\[[^\]]*\])*\]\([^)]*\)|<[^>\n]+>"
)
_BEFORE = r"(?i:an?|the|its|each|every|one|no|that|this|of|by) "  # a noun follows: "turn" and "grant" are verbs, too


class Term(NamedTuple):
    name: str
    anchor: str
    meaning: str


@cache
def terms() -> dict[str, Term]:
    """Return the terms that are linked, by their names."""
    text = (ROOT / PAGE).read_text("utf-8")
    found = (Term(name, f"term-{name.replace(' ', '-').lower()}", _plain(said)) for name, _, said in _ROW.findall(text))
    return {each.name: each for each in found if each.name not in EVERYDAY}


def linked(path: str, text: str) -> str:
    """Return the text of a page with a link at the first use of each term. The glossary gets an anchor for each."""
    if path == PAGE:
        return _ROW.sub(_anchored, text)
    place, seen = relpath(PAGE, dirname(path) or "."), set[str]()

    def link(found: re.Match[str]) -> str:
        name = found["term"] or found["noun"]
        if name is None or name in seen:
            return found[0]
        seen.add(name)
        term, before = terms()[name], found["before"] or ""
        return f'{before}[{found[0][len(before) :]}]({place}#{term.anchor} "{term.meaning}")'

    return _pattern().sub(link, text)


@cache
def _pattern() -> re.Pattern[str]:
    """Return a pattern that finds kept parts, each term of several words, and each of one word behind an article."""
    phrases = sorted((name for name in terms() if re.search(r"[ -]", name)), key=len, reverse=True)
    nouns = [name for name in terms() if name not in phrases]
    return re.compile(
        rf"(?:{_KEPT})|\b(?P<term>{'|'.join(phrases)})s?\b|\b(?P<before>{_BEFORE})(?P<noun>{'|'.join(nouns)})s?\b(?![-'])"
    )


def _anchored(row: re.Match[str]) -> str:
    if row[1] in EVERYDAY:
        return row[0]
    return row[0].replace("| ", f'| <a id="{terms()[row[1]].anchor}"></a>', 1)


def _plain(cell: str) -> str:
    """Return a meaning as plain text, which stands between quotation marks in a cell of a table."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell).replace("**", "").replace("`", "").replace('"', "'")
