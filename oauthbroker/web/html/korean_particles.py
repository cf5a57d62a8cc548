"""Korean particles that fit the name before them: 슬랙을 but 노트를, 서울로 but 부산으로.

A particle depends on how the name's last syllable ends. Hangul says so itself. Digits are read as Sino-Korean numbers.
Latin letters are read as they are usually written in Hangul: a rule of thumb, right for most names of services.
"""

from __future__ import annotations

import re
from typing import Literal

Ending = Literal["vowel", "rieul", "consonant"]
_HANGUL_FIRST, _HANGUL_LAST, _FINALS, _RIEUL = 0xAC00, 0xD7A3, 28, 8
_RIEUL_DIGITS, _CONSONANT_DIGITS = "178", "036"  # 일 칠 팔; 영 삼 육, and 십, 백, 천 for what ends in 0
_LETTERS = re.compile(r"[A-Za-z]+$")
_RIEUL_SOUND = re.compile(r"(l|[^rl]le)$")  # Gmail 지메일, Google 구글, File 파일
_CONSONANT_SOUND = re.compile(  # Zoom 줌, Notion 노션, Ring 링, Phone 폰, Slack 슬랙, HubSpot 허브스팟, App 앱
    r"(m|n|ng|[aeiouy][mn]e|ck|[aeiouy][ckpt]|pp|tt)$"
)
_SPELT_RIEUL, _SPELT_CONSONANT = "lr", "mn"  # letters that are read by their names: 엘, 알, 엠, 엔


def particle(name: str, pair: str) -> str:
    """Return the one of `pair` ("을/를", "은/는", "이/가", "으로/로") that follows `name`; `을(를)` if unknown."""
    after_consonant, _, after_vowel = pair.partition("/")
    ending = ending_of(name)
    if ending is None:
        return f"({after_consonant[0]}){after_vowel}" if after_vowel == "로" else f"{after_consonant}({after_vowel})"
    is_open = ending == "vowel" or (ending == "rieul" and after_vowel == "로")
    return after_vowel if is_open else after_consonant


def ending_of(name: str) -> Ending | None:
    """Return the name's ending when it is read aloud; None for what ends in no letter or digit that we can read."""
    bare = name.rstrip(" \u2069\"')]}>.,!?")
    last = bare[-1:]
    if last and _HANGUL_FIRST <= ord(last) <= _HANGUL_LAST:
        final = (ord(last) - _HANGUL_FIRST) % _FINALS
        return "vowel" if final == 0 else "rieul" if final == _RIEUL else "consonant"
    if last.isascii() and last.isdigit():
        return "rieul" if last in _RIEUL_DIGITS else "consonant" if last in _CONSONANT_DIGITS else "vowel"
    word = _LETTERS.search(bare)
    return None if word is None else _ending_of_word(word[0])


def _ending_of_word(word: str) -> Ending:
    lower = word.lower()
    if word.isupper() or not re.search(r"[aeiouy]", lower):  # API, CRM: letter by letter
        return "rieul" if lower[-1] in _SPELT_RIEUL else "consonant" if lower[-1] in _SPELT_CONSONANT else "vowel"
    if _RIEUL_SOUND.search(lower):
        return "rieul"
    return "consonant" if _CONSONANT_SOUND.search(lower) else "vowel"
