"""Words are data: every language has every word, and a new language is a new file."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import oauthbroker
from oauthbroker.core.words import LOCALES, read_words

PACKAGE = Path(oauthbroker.__file__).parent
FOLDERS = [PACKAGE / "core" / "words", PACKAGE / "web" / "words"]
OTHERS = [locale for locale in LOCALES if locale != "en"]
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


@pytest.mark.parametrize("locale", OTHERS)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_every_language_has_every_word_with_the_placeholders_of_english(folder: Path, locale: str):
    assert [] == faults(folder, locale)


def test_a_language_is_the_primary_subtag_of_rfc_5646_and_has_a_file_in_every_folder():
    assert all(re.fullmatch(r"[a-z]{2,3}", locale) for locale in LOCALES)
    for folder in FOLDERS:
        assert set(LOCALES) == {file.stem for file in folder.iterdir() if file.suffix == ".json"}


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda words: words.pop("rateLimited"), "errors/rateLimited: not translated"),
        (lambda words: words.update(more="x"), "errors/more: not an English word"),
        (lambda words: words.update(subjectUnavailable="x"), "errors/subjectUnavailable: other placeholders"),
        (lambda words: words.update(notFound=flat(FOLDERS[0], "en")["errors/notFound"]), "errors/notFound: not tr"),
    ],
)
def test_the_test_of_completeness_finds_what_a_language_lacks(damage, fault: str, tmp_path: Path):
    shutil.copytree(FOLDERS[0], tmp_path, dirs_exist_ok=True)
    words = json.loads((tmp_path / "ko.json").read_text("utf-8"))
    damage(words["errors"])
    (tmp_path / "ko.json").write_text(json.dumps(words), "utf-8")
    [found] = faults(tmp_path, "ko")
    assert found.startswith(fault)


def test_a_word_that_a_language_lacks_is_english(tmp_path: Path):
    for locale, words in {"en": {"a": "one", "b": "two"}, "xx": {"b": "deux"}}.items():
        (tmp_path / f"{locale}.json").write_text(json.dumps({"numbers": words}), "utf-8")
    assert {"a": "one", "b": "deux"} == read_words(tmp_path)["xx"]["numbers"]
