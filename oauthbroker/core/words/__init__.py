"""The languages that the broker speaks, and the sentences of errors and invitations: one JSON file per language.

The files are read on import, because a sentence may be needed when no file can be opened any more. JSON, because every
client imports this: the parser is in C and loaded anyway.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

Words = dict[str, dict[str, str]]  # by section and name


def read_words(folder: Path) -> dict[str, Words]:
    """Return the words of each language that has a file in `folder`. A word that a file lacks is English."""
    files = {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json"))}
    return {
        locale: {section: {**english, **words.get(section, {})} for section, english in files["en"].items()}
        for locale, words in files.items()
    }


SENTENCES = read_words(Path(__file__).parent)
LOCALES = tuple(SENTENCES)
if TYPE_CHECKING:
    Locale = str
else:
    Locale = Literal[LOCALES]  # what pydantic accepts and the OpenAPI document lists


def known_locale(word: object) -> Locale | None:
    """Return the locale of that name, None for any other word."""
    return word if isinstance(word, str) and word in SENTENCES else None
