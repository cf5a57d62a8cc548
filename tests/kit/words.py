"""Files of words: what a language lacks, or says otherwise than English."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PLACEHOLDER = re.compile(r"\{(\w*)[^}]*\}")
SAME = {"brand"}  # a word that is the same in every language, or may be: our own name


def flat(folder: Path, locale: str) -> dict[str, str]:
    """Read a file as strictly as a translator needs: no name twice, no word that is empty or no text."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(pairs) == len(dict(pairs)), f"twice in {locale}.json: {[name for name, _ in pairs]}"
        return dict(pairs)

    read = json.loads((folder / f"{locale}.json").read_text("utf-8"), object_pairs_hook=members)
    words = {f"{section}/{name}": word for section, said in read.items() for name, word in said.items()}
    assert all(isinstance(word, str) and word.strip() for word in words.values())
    return words


def faults(folder: Path, locale: str) -> list[str]:
    """Everything that the language lacks, or says with other placeholders than English."""
    english, words = flat(folder, "en"), flat(folder, locale)
    found = [f"{name}: not translated" for name in english.keys() - words.keys()]
    found += [f"{name}: not an English word" for name in words.keys() - english.keys()]
    for name in sorted(english.keys() & words.keys()):
        if set(PLACEHOLDER.findall(words[name])) != set(PLACEHOLDER.findall(english[name])):
            found.append(f"{name}: other placeholders than in English")
        if words[name] == english[name] and name.rpartition("/")[2] not in SAME:
            found.append(f"{name}: not translated")
    return found
