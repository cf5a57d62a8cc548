"""Operators' pages of plug-ins: checked when the broker starts, then served as the broker's own pages are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from starlette.requests import Request

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import ConfigCauseError, Locale
from oauthbroker.core.foreign_code import foreign_code
from oauthbroker.core.words import LOCALES, read_words
from oauthbroker.plugins.plugin_pages import PluginPage, PluginPageRequest, PluginPages, PluginView
from oauthbroker.web.words import Words

_PATH = re.compile(r"(?:/(?:[A-Za-z0-9._-]+|\{[A-Za-z_]\w*\}))*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginPagesServed:
    """The pages of one open plug-in, with its words by language. `home` is its place below `/admin`."""

    home: str
    pages: tuple[PluginPage, ...]
    folder: Path
    words: Mapping[Locale, Words]

    def code(self, page: PluginPage) -> AbstractContextManager[None]:
        """Run the code and the template of a page as `foreign_code` does."""
        return foreign_code(f"the plug-in {self.home.rpartition('/')[2]}, the page {page.path or '/'}")

    async def view(self, page: PluginPage, request: Request, locale: Locale) -> PluginView:
        """Ask the plug-in for a page."""
        return await page.handler(
            PluginPageRequest(path=request.path_params, query=request.query_params, words=self.words[locale])
        )


def pages_of_plugins(plugins: Mapping[str, PluginPages | None]) -> tuple[PluginPagesServed, ...]:
    """Return the pages of all open plug-ins. Raises `configInvalid`, with a note that names the plug-in."""
    return tuple(_validated(name, pages) for name, pages in plugins.items() if pages is not None)


def _validated(name: str, pages: PluginPages) -> PluginPagesServed:
    for problem in _problems(pages):
        raise ConfigCauseError(f"the pages of the plug-in {name}: {problem}")
    return PluginPagesServed(
        home=f"/plugins/{name}", pages=tuple(pages.pages), folder=pages.folder, words=_words(pages.folder) or {}
    )


def _problems(pages: PluginPages) -> Iterator[str]:
    paths = [page.path for page in pages.pages]
    for path in paths:
        if not _PATH.fullmatch(path):
            yield f"{path}: a path has steps of letters, digits and `._-`, or a `{{name}}`"
    if "" not in paths or len({*paths}) < len(paths):
        yield "one page has the empty path, and no two have the same"
    if _words(pages.folder) is None:
        yield 'words/en.json is an object such as {"pages": {"nav": "Library"}}'


def _words(folder: Path) -> dict[Locale, Words] | None:
    """Return the words of a plug-in by language, English where it has no others. None if there are no usable ones."""
    try:
        found = read_words(folder / "words")
        words = {locale: Words(found.get(locale, found["en"])["pages"]) for locale in LOCALES}
        return words if all(each.nav for each in words.values()) else None
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return None
