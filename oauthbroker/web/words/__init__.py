"""The words of our pages: one JSON file per language, read on import; and which language a browser reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from oauthbroker.core.accept_headers import weighted
from oauthbroker.core.words import LOCALES, Locale, known_locale, read_words


class Words:
    """The words of one kind of pages in one language, each an attribute.

    `{names}` in braces are filled with escaped, direction-isolated words. No type checker knows the attributes:
    tests/unit/web/test_words.py compares them with the names in code and templates.
    """

    def __init__(self, words: Mapping[str, str]) -> None:
        self.__dict__.update(words)

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"no such word: {name}")


_FILES = read_words(Path(__file__).parent)
SECTIONS = {locale: _FILES.get(locale, _FILES["en"]) for locale in LOCALES}
PAGES = {locale: Words(sections["pages"]) for locale, sections in SECTIONS.items()}
CONNECTIONS = {locale: Words(sections["connections"]) for locale, sections in SECTIONS.items()}
ADMIN = {locale: Words(sections["admin"]) for locale, sections in SECTIONS.items()}
ERRORS = {locale: sections["errors"] for locale, sections in SECTIONS.items()}
"""What a page says in place of an error's sentence for programs, by its code."""


def locale_of(accept_language: str | None, default: Locale) -> Locale:
    """Return the language of `Accept-Language` (RFC 9110 section 12.5.4) that we speak and the reader likes best.

    Only the primary subtag counts. `default` is the broker's own locale: for no header, `*`, or no common language.
    """
    best, best_weight = default, 0.0
    for tag, weight in weighted(accept_language):
        subtag = tag.split("-")[0]
        spoken = default if subtag == "*" else known_locale(subtag)
        if spoken is not None and weight > best_weight:
            best, best_weight = spoken, weight
    return best
