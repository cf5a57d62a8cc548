"""Words are data: every language has every word, and a new language is a new file."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import oauthbroker
from oauthbroker.core.words import LOCALES, read_words
from tests.kit.words import TERMS, faults, flat, wrong_sentences

PACKAGE = Path(oauthbroker.__file__).parent
FOLDERS = [PACKAGE / "core" / "words", PACKAGE / "web" / "words", PACKAGE / "flowtools" / "pages" / "words"]
OTHERS = [locale for locale in LOCALES if locale != "en"]


@pytest.mark.parametrize("locale", OTHERS)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_every_language_has_every_word_with_the_placeholders_of_english(folder: Path, locale: str):
    assert [] == faults(folder, locale)


@pytest.mark.parametrize("locale", TERMS)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_a_language_says_what_the_english_sentence_says(folder: Path, locale: str):
    assert [] == wrong_sentences(folder, locale)


@pytest.mark.parametrize(
    ("name", "said", "fault"),
    [
        ("password_hint", "키를 바꿀 때만 키를 묻습니다. 링크 만료: {expiry}", "password"),
        ("device_hint", "이 페이지는 비밀번호를 물을 수 있습니다. 코드 만료: {expiry}", "never"),
        ("missing_lead", "이 grant 의 링크를 다시 여십시오.", "has the English grant"),
        ("credential_long", "값을 입력하십시오.", "the sentence of another one"),
    ],
)
def test_the_comparison_finds_a_sentence_that_says_something_else(name: str, said: str, fault: str, tmp_path: Path):
    shutil.copytree(FOLDERS[1], tmp_path, dirs_exist_ok=True)
    words = json.loads((tmp_path / "ko.json").read_text("utf-8"))
    words["pages"][name] = said
    (tmp_path / "ko.json").write_text(json.dumps(words), "utf-8")
    found = wrong_sentences(tmp_path, "ko")
    assert [fault in it for it in found if it.startswith(("pages/", "connections/"))].count(True) >= 1, found


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
