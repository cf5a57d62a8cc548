"""Files of words: what a language lacks, or says otherwise than English."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PLACEHOLDER = re.compile(r"\{(\w*)[^}]*\}")
SAME = {"brand"}  # a word that is the same in every language, or may be: our own name
SENTENCE = re.compile(r"[.?!](\s|$)")
# What must be said where English says it, and the words of English that are no words in a language of another script.
TERMS = {
    "ko": {
        "password": "비밀번호", "key": "키", "keys": "키", "browser": "브라우저", "cookie": "쿠키", "link": "링크",
        "account": "계정", "code": "코드|{code}", "token": "토큰", "operator": "운영자", "administrator": "관리자",
        "service": "서비스", "expired": "만료", "expires": "만료", "cannot": "없|못|불가", "nothing": "않|없",
        "never": "않|아니|없",
    }
}  # fmt: skip
COMMANDS = re.compile(
    r"`[^`]*`|\{[^}]*\}|\"[^\"]*\"|\w*\([^)]*\)|--[a-z]+( config)?|oauthbroker( [a-z]+)*|https?://\S+"
)
ENGLISH_WORD = re.compile(r"(?<![\w./\\@])[a-z]{2,}(?![\w./@(])")


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


def wrong_sentences(folder: Path, locale: str) -> list[str]:
    """What the language says instead of the English sentence, as far as a program sees it: a term is missing, an
    English word was left, or two different sentences became one."""
    english, words = flat(folder, "en"), flat(folder, locale)
    found, meanings = list[str](), dict[str, str]()
    for name in sorted(english.keys() & words.keys()):
        said = set(re.findall(r"[a-z_]+", english[name].lower()))
        missing = [it for it, term in TERMS[locale].items() if it in said and not re.search(term, words[name])]
        found += [f"{name}: says nothing of {it}" for it in missing]
        found += [f"{name}: has the English {it}" for it in ENGLISH_WORD.findall(COMMANDS.sub("", words[name]))]
        if SENTENCE.search(english[name]) and meanings.setdefault(words[name], english[name]) != english[name]:
            found.append(f"{name}: the sentence of another one")
    return found
