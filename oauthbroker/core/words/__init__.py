"""The languages that the broker speaks, and the sentences of errors and invitations: one JSON file per language.

The files are read on import, because a sentence may be needed when no file can be opened any more. Every client imports
this, so they are JSON (the parser is in C and loaded anyway) and found without pathlib, which takes as long as both.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Literal

Words = dict[str, dict[str, str]]  # by section and name


def read_words(folder: str | os.PathLike[str]) -> dict[str, Words]:
    """Return the words of each language that has a file in `folder`. A word that a file lacks is English."""
    with os.scandir(folder) as entries:
        places = {entry.name.removesuffix(".json"): entry.path for entry in entries if entry.name.endswith(".json")}
    files = {locale: _read(places[locale]) for locale in sorted(places)}
    return {
        locale: {section: {**english, **words.get(section, {})} for section, english in files["en"].items()}
        for locale, words in files.items()
    }


def _read(path: str) -> Words:
    with open(path, "rb") as file:  # noqa: PTH123  (above: without pathlib)
        return json.loads(file.read())  # type: ignore[no-any-return]


SENTENCES = read_words(os.path.dirname(__file__))  # noqa: PTH120  (above: without pathlib)
LOCALES = tuple(SENTENCES)
if TYPE_CHECKING:
    Locale = str
else:
    Locale = Literal[LOCALES]  # what pydantic accepts and the OpenAPI document lists


def known_locale(word: object) -> Locale | None:
    """Return the locale of that name, None for any other word."""
    return word if isinstance(word, str) and word in SENTENCES else None
