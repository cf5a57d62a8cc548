"""Which characters of a name have a shape: joiners where they change the look of their neighbours alone."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.shapes import JOINERS, has_shape, shaped, without_stray_joiners

NAMES = {
    "Persian": "\u0639\u0644\u06cc\u200c\u0631\u0636\u0627",
    "Persian with a vowel sign": "\u0639\u0644\u06cc\u064e\u200c\u0631\u0636\u0627",
    "Hindi conjunct": "\u0915\u094d\u200d\u0937",
    "Hindi without one": "\u0915\u094d\u200c\u0937",
    "Hindi half form": "\u0915\u094d\u200d",
    "Sinhala": "\u0dc1\u0dca\u200d\u0dbb\u0dd3",
    "Bengali": "\u09b0\u200d\u09cd\u09af",
    "family": "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "rainbow flag": "\U0001f3f3\ufe0f\u200d\U0001f308",
    "dark judge": "\U0001f9d1\U0001f3ff\u200d\u2696\ufe0f",
}
STRAY = {
    "Latin": ("pay\u200dpal", "paypal"),
    "Cyrillic": ("\u043c\u200c\u0438\u0440", "\u043c\u0438\u0440"),
    "Hangul": ("\ud55c\u200c\uae00", "\ud55c\uae00"),
    "Arabic after a letter that does not join": ("\u0631\u200c\u0647\u0627", "\u0631\u0647\u0627"),
    "Arabic and Latin": ("\u06cc\u200cx", "\u06ccx"),
    "two in a row": ("\u0915\u094d\u200d\u200d\u0937", "\u0915\u094d\u200d\u0937"),
    "before a vowel sign": ("\u0915\u094d\u200d\u093f", "\u0915\u094d\u093f"),
    "after a virama at the end": ("\u0915\u094d\u200c", "\u0915\u094d"),
    "emoji and letter": ("\U0001f469\u200dx", "\U0001f469x"),
    "at the start": ("\u200d\U0001f469", "\U0001f469"),
    "at the end": ("\U0001f469\u200d", "\U0001f469"),
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_joiner_that_changes_the_look_of_a_name_stays(name: str):
    assert name == without_stray_joiners(name) == shaped(name)
    assert has_shape(name)


@pytest.mark.parametrize(("name", "seen"), STRAY.values(), ids=STRAY)
def test_a_joiner_that_changes_nothing_is_left_out(name: str, seen: str):
    assert seen == without_stray_joiners(name) == shaped(name)
    assert not has_shape(name)


def test_all_else_without_a_shape_becomes_a_blank():
    assert "a b c d e" == shaped("a\u202eb\u200bc\x1bd\u2028e")
    assert not has_shape("a\u200bb")


@given(st.text(st.sampled_from("ax\u0915\u094d\u093f\u06cc\u0631\U0001f469\ufe0f\u200c\u200d \u202e")))
def test_a_cleaned_name_is_clean(text: str):
    clean = shaped(text)
    assert has_shape(clean) or has_shape(shaped(clean))
    assert {it for it in clean if unicodedata.category(it) == "Cf"} <= {*JOINERS}
    assert clean.translate(dict.fromkeys(map(ord, JOINERS))) == "".join(
        each if each.isprintable() else " " for each in text if each not in JOINERS
    )
