"""A token that a provider's answer repeats does not reach the tool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.secret import Secret
from oauthbroker.injection.token_masking import LONGEST, Masker

pytestmark = pytest.mark.case("110")
TOKENS = st.text("ab.", min_size=8, max_size=12)  # a small alphabet: beginnings of the token occur everywhere
TEXTS = st.text("ab.*", max_size=30)


def masked(token: str, pieces: list[bytes]) -> list[bytes]:
    masker = Masker(Secret(token))
    return [*map(masker.feed, pieces), masker.end()]


def cut(text: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(text[:size])
        text = text[size:]
    return [*pieces, text]


@given(TOKENS, TEXTS, TEXTS, st.lists(st.integers(0, 9), max_size=12))
def test_wherever_the_answer_is_cut_the_token_is_masked_and_the_length_stays(token, before, after, sizes):
    text = f"{before}{token}{after}".encode()
    found = b"".join(masked(token, cut(text, sizes)))
    assert text.replace(token.encode(), b"*" * len(token)) == found


def test_only_an_end_that_may_begin_the_token_waits_for_the_next_piece():
    assert [b"data: 1\n\n", b"the ", b"sec", b"ret", b""] != masked(
        "secretsecret", [b"data: 1\n\n", b"the sec", b"ret"]
    )
    assert [b"data: 1\n\n", b"the ", b"", b"secret!", b""] == masked(
        "secretsecret", [b"data: 1\n\n", b"the sec", b"ret", b"!"]
    )


def test_a_text_too_short_to_be_a_secret_is_not_masked():
    assert [b"a banana", b""] == masked("a", [b"a banana"])


def test_of_a_very_long_token_so_much_is_masked_that_the_rest_is_useless():
    token = "x" * (2 * LONGEST)
    assert b"*" * LONGEST + b"y" == b"".join(masked(token, [b"x" * LONGEST + b"y"]))
    assert b"**" == Masker(Secret("t" * 9)).once(b"t" * 9)[:2]


@pytest.mark.parametrize("name", [b"X-secretSECRET-Left", b"x-secretsecret-left", b"X-SECRETSECRET-LEFT"])
def test_the_token_in_the_name_of_a_header_is_masked_in_each_case(name):
    assert b"x-************-left" == Masker(Secret("secretSECRET")).name(name)
    assert b"x-left" == Masker(Secret("short")).name(b"X-Left")
