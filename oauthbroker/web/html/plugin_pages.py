"""Operators' pages of add-on rooms: judged when the broker starts, then served as the broker's own pages are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request

from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.core.words import LOCALES, read_words
from oauthbroker.plugins.plugin_pages import RoomPage, RoomPages, RoomView, RoomVisit
from oauthbroker.web.words import Words

_PATH = re.compile(r"(?:/(?:[A-Za-z0-9._-]+|\{[A-Za-z_]\w*\}))*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesOfRoom:
    """The pages of one open room, with its words by language. `home` is its place below `/admin`."""

    home: str
    pages: tuple[RoomPage, ...]
    folder: Path
    words: Mapping[Locale, Words]

    async def view(self, page: RoomPage, request: Request, locale: Locale) -> RoomView:
        """Ask the room for a page."""
        visit = RoomVisit(path=request.path_params, query=request.query_params, words=self.words[locale])
        try:
            return await page.handler(visit)
        except SystemExit:
            raise RuntimeError("a room wants to end the process") from None


def pages_of_rooms(rooms: Mapping[str, RoomPages | None]) -> tuple[PagesOfRoom, ...]:
    """Return the pages of all open rooms. Raises `configInvalid`, with a note that names the room."""
    return tuple(_judged(name, pages) for name, pages in rooms.items() if pages is not None)


def _judged(name: str, pages: RoomPages) -> PagesOfRoom:
    for flaw in _flaws(pages):
        raise BrokerError(Code.CONFIG_INVALID, note=f"the pages of the room {name}: {flaw}")
    return PagesOfRoom(
        home=f"/rooms/{name}", pages=tuple(pages.pages), folder=pages.folder, words=_words(pages.folder) or {}
    )


def _flaws(pages: RoomPages) -> Iterator[str]:
    paths = [page.path for page in pages.pages]
    for path in paths:
        if not _PATH.fullmatch(path):
            yield f"{path}: a path has steps of letters, digits and `._-`, or a `{{name}}`"
    if "" not in paths or len({*paths}) < len(paths):
        yield "one page has the empty path, and no two have the same"
    if _words(pages.folder) is None:
        yield 'words/en.json is an object such as {"pages": {"nav": "Library"}}'


def _words(folder: Path) -> dict[Locale, Words] | None:
    """Return the words of a room by language, English where it has no others. None if there are no usable ones."""
    try:
        found = read_words(folder / "words")
        words = {locale: Words(found.get(locale, found["en"])["pages"]) for locale in LOCALES}
        return words if all(each.nav for each in words.values()) else None
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return None
