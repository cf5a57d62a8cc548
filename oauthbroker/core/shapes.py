"""Tell which characters of a name have a shape on a screen.

Controls, direction marks and zero-width characters have none. The two joiners are kept where a script or an emoji
changes its look with them, and nowhere else, where no reader could see them (UAX 31 section 2.3.1, UTS 51 section 2.2):

- ZWNJ between two letters of Arabic script that would join
- ZWNJ after a virama and before a letter; ZWJ after a virama and not before a vowel sign, or in Bengali's ra + virama
- ZWJ between two emoji
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

JOINERS: Final = "\u200c\u200d"
_VIRAMA: Final = 9  # canonical combining class
_JOINING = re.compile("[\u0620-\u064a\u066e-\u06ff\u0750-\u077f\u08a0-\u08b4]")
_TO_THE_RIGHT_ALONE = re.compile(  # Joining_Type R and U: a letter after them does not join
    "[\u0621-\u0625\u0627\u0629\u062f-\u0632\u0648\u0671-\u0677\u0688-\u0699\u06c0\u06c3-\u06cb\u06cd\u06cf\u06d2-\u06d5"
    "\u06ee\u06ef\u0759-\u075b\u076b\u076c\u0771\u0773\u0774\u0778\u0779\u08aa-\u08ac\u08ae\u08b1\u08b2]"
)


def shapes(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each character, and whether it has a shape."""
    for place, character in enumerate(text):
        yield character, _joins(text, place) if character in JOINERS else character.isprintable()


def has_shape(text: str) -> bool:
    """Return whether a text is one line of characters that all have a shape."""
    return text.isprintable() or all(fits for _, fits in shapes(text))


def shaped(text: str) -> str:
    """Return a text with a blank in place of each character without a shape. A joiner leaves no gap."""
    if text.isprintable():
        return text
    return "".join(each if fits else " " for each, fits in shapes(text) if fits or each not in JOINERS)


def without_stray_joiners(text: str) -> str:
    """Return a text without the joiners that change nothing of its look."""
    return "".join(each for each, fits in shapes(text) if fits or each not in JOINERS)


def _joins(text: str, place: int) -> bool:
    """Return whether the joiner at that place changes the look of what stands beside it."""
    before, after = text[place - 1 : place], text[place + 1 : place + 2]
    if not before:
        return False
    if text[place] == "\u200d":
        if unicodedata.combining(before) == _VIRAMA:
            return not after or unicodedata.category(after) not in {"Mc", "Mn"}
        return (before == "\u09b0" and after == "\u09cd") or (_ends_emoji(before) and _is_emoji(after))
    if unicodedata.combining(before) == _VIRAMA:
        return bool(after) and unicodedata.category(after)[0] == "L"
    left = next((it for it in reversed(text[:place]) if unicodedata.category(it) != "Mn"), "")
    right = next((it for it in text[place + 1 :] if unicodedata.category(it) != "Mn"), "")
    is_joined = _JOINING.fullmatch(left) and not _TO_THE_RIGHT_ALONE.fullmatch(left)
    return bool(is_joined and _JOINING.fullmatch(right) and unicodedata.category(right) == "Lo")


def _is_emoji(character: str) -> bool:
    """Return whether it may be an emoji: a pictograph, or an arrow that emoji are joined with."""
    return bool(character) and (unicodedata.category(character) == "So" or character in "\u2194\u2195")


def _ends_emoji(character: str) -> bool:
    """Return whether an emoji may end with it: itself, the sign of its colored form, or a tone of skin."""
    return character == "\ufe0f" or "\U0001f3fb" <= character <= "\U0001f3ff" or _is_emoji(character)
