"""Cut the long pages of the reference between their sections, and lead the links to a section to its page."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import partial
from math import ceil

from tools.quality.words import MOST_OF_PAGE, count

_SECTION = re.compile(r"(?m)^(?=## )")
_ANCHOR = re.compile(r"\{ #([\w-]+) \}")
_LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)#([\w-]+)\)")
Homes = Mapping[tuple[str, str], str]  # the page of each section that has moved, by the page before and the anchor


def short_pages(pages: Mapping[str, str]) -> dict[str, str]:
    """Return the pages, a long one as `NAME.md`, `NAME-2.md` and so on."""
    parts = {path: [*_parts(path, text)] for path, text in pages.items()}
    homes = {
        (path, anchor): _path(path, number)
        for path, texts in parts.items()
        for number, text in enumerate(texts)
        for anchor in _ANCHOR.findall(text)
        if len(texts) > 1
    }
    return {
        _path(path, number): _whole(path, texts, number, homes)
        for path, texts in parts.items()
        for number in range(len(texts))
    }


def _parts(path: str, text: str) -> Iterator[str]:
    """Yield the sections of a page, in parts of about the same size."""
    words = count(path, text).words
    most = words / ceil(words / MOST_OF_PAGE)
    part = ""
    for section in _SECTION.split(text):
        if part and count(path, part + section).words > most * 1.1:
            yield part
            part = ""
        part += section
    yield part


def _path(path: str, number: int) -> str:
    return path if number == 0 else f"{path.removesuffix('.md')}-{number + 1}.md"


def _whole(path: str, texts: list[str], number: int, homes: Homes) -> str:
    """Return a part with a title, below which the other parts are linked, and with its links as they lead now."""
    title, _, head = texts[0].partition("\n")
    body = f"\n{texts[number]}" if number else head
    if len(texts) > 1:
        names = (f"[part {at + 1}]({posixpath.basename(_path(path, at))})" for at in range(len(texts)) if at != number)
        body = f"\nThis is part {number + 1} of {len(texts)}; see also {', '.join(names)}.\n{body}"
    title += f", part {number + 1}" if number else ""
    return _LINK.sub(partial(_led, path, _path(path, number), homes), f"{title}\n{body}")


def _led(path: str, here: str, homes: Homes, link: re.Match[str]) -> str:
    folder = posixpath.dirname(path)
    target = posixpath.normpath(posixpath.join(folder, link[1])) if link[1] else path
    if (home := homes.get((target, link[2]))) is None:
        return link[0]
    return f"](#{link[2]})" if home == here else f"]({posixpath.relpath(home, folder or '.')}#{link[2]})"
