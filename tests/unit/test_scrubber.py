"""The scrubber: every token it was told of goes out of text and data, and nothing else does."""

from __future__ import annotations

import hashlib
import json
import re
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker import scrubber as scrubber_module
from oauthbroker.scrubber import Scrubber
from oauthbroker.secret import Secret

TOKEN = "xoxb-17/26+35==.secret"
TURN = f"oabt.{'A' * 22}.eyJ0b29sIjoiVG9vbC94In0.{'b' * 43}"
KEY = f"oabk.{'A' * 22}.{'b' * 43}"


@pytest.fixture
def scrubber() -> Scrubber:
    made = Scrubber()
    made.remember(Secret(TOKEN))
    return made


@pytest.mark.case("91")
@pytest.mark.parametrize(
    "said, left",
    [
        (TOKEN, "***"),
        (f"the token is {TOKEN}, keep it", "the token is ***, keep it"),
        (f"Authorization:Bearer={TOKEN}&x=1", "Authorization:Bearer=***&x=1"),
        (f"{TOKEN}{TOKEN}", "******"),
        (json.dumps({"a": [TOKEN]}), '{"a": ["***"]}'),
        (json.dumps(TOKEN).replace("/", "\\/"), '"***"'),
        (f"?token={quote(TOKEN, safe='')}", "?token=***"),
        (f"?token={quote(TOKEN, safe='').replace('%2F', '%2f').replace('%2B', '%2b').replace('%3D', '%3d')}", "?token=***"),
        (f"<b>{TOKEN}</b>", "<b>***</b>"),
        (f"한국어{TOKEN}한국어", "한국어***한국어"),
        (f"turn {TURN}!", "turn ***!"),
        (f"key {KEY}", "key ***"),
        (TOKEN[:-1], TOKEN[:-1]),
        (TOKEN[1:], TOKEN[1:]),
        ("oabt is a prefix, oabk.short is no key", "oabt is a prefix, oabk.short is no key"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_token_that_was_handed_out_leaves_the_text_and_nothing_else_does(
    scrubber: Scrubber, said: str, left: str
) -> None:
    assert left == scrubber.text(said)


def test_data_keeps_its_shape(scrubber: Scrubber) -> None:
    data = {TOKEN: [TOKEN, 1, None, True, {"deep": (f"a {TOKEN}",)}], "plain": "plain"}
    assert {"***": ["***", 1, None, True, {"deep": ["a ***"]}], "plain": "plain"} == scrubber.json(data)


def test_of_two_tokens_that_begin_alike_the_longer_one_goes_whole() -> None:
    scrubber = Scrubber()
    for token in ("shared-beginning", "shared-beginning-and-more"):
        scrubber.remember(Secret(token))
    assert "*** ***" == scrubber.text("shared-beginning-and-more shared-beginning")


def test_only_so_many_are_remembered_and_one_that_is_used_again_stays() -> None:
    scrubber = Scrubber(most=2)
    tokens = [f"token-number-{number}" for number in range(3)]
    scrubber.remember(Secret(tokens[0]))
    scrubber.remember(Secret(tokens[1]))
    scrubber.remember(Secret(tokens[0]))
    scrubber.remember(Secret(tokens[2]))
    assert 2 == len(scrubber)
    assert f"*** {tokens[1]} ***" == scrubber.text(" ".join(tokens))
    for number in range(100):
        scrubber.remember(Secret(f"another-token-{number}"))
    assert len(scrubber._ends) <= 2


def test_forgetting_leaves_nothing_behind_and_what_two_tokens_share_in_their_spelling_stays() -> None:
    scrubber = Scrubber(most=2)
    scrubber.remember(Secret("a-token/with-a-slash"))
    scrubber.remember(Secret("a-token%2Fwith-a-slash"))
    scrubber.remember(Secret("another-token-entirely"))
    assert "*** a-token/with-a-slash" == scrubber.text("a-token%2Fwith-a-slash a-token/with-a-slash")
    scrubber.remember(Secret("another-token-entirely-2"))
    assert 2 == len(scrubber._ends)
    assert "a-token%2Fwith-a-slash" == scrubber.text("a-token%2Fwith-a-slash")


def test_what_is_too_short_to_be_told_from_a_word_is_left_alone() -> None:
    scrubber = Scrubber()
    scrubber.remember(Secret("short"))
    assert "a short word" == scrubber.text("a short word")


def test_a_scrubber_shows_no_token(scrubber: Scrubber) -> None:
    assert TOKEN not in repr(scrubber)
    assert TOKEN not in repr(vars(scrubber))


@given(
    st.lists(st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=12, max_size=60), min_size=1),
    st.text(),
    st.text(),
)
def test_no_token_survives_whatever_stands_around_it(tokens: list[str], before: str, after: str) -> None:
    tokens = [token for token in tokens if not set("\"'<>*") & set(token)]
    scrubber = Scrubber()
    for token in tokens:
        scrubber.remember(Secret(token))
    for token in tokens:
        assert token not in scrubber.text(f"{before} {token} {after}")


pieces = st.text("ab-", min_size=1, max_size=20)


@given(st.lists(pieces, max_size=6).map("".join), st.lists(st.text("ab-", min_size=12, max_size=16), max_size=6))
def test_what_was_remembered_is_gone_and_everything_else_untouched(text: str, tokens: list[str]) -> None:
    """Also where tokens overlap, hold each other, and end alike."""
    text = "".join([text, *tokens, text[:8], *[token[6:] for token in tokens]])
    scrubber, covered = Scrubber(), [False] * len(text)
    for token in tokens:
        scrubber.remember(Secret(token))
    for start, token in ((start, token) for start in range(len(text)) for token in tokens):
        if text.startswith(token, start):
            covered[start : start + len(token)] = [True] * len(token)
    left = scrubber.text(text)
    pattern = "".join("." if gone else re.escape(char) for char, gone in zip(text, covered, strict=True))
    shown = re.sub(r"\.+", lambda run: rf"(?:\*\*\*){{1,{len(run[0]) // 12}}}", pattern)
    assert re.fullmatch(shown, left)


HEADER = "eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiJ9."
KNOWN = 10_000
SIZE = 64 * 1024


def jwt(number: int) -> str:
    """Each begins like all others; they have a hundred lengths."""
    return HEADER + hashlib.shake_128(str(number).encode()).hexdigest(50 + number % 100)


@pytest.mark.parametrize(
    "text, candidates",
    [
        (HEADER[:16] * (SIZE // 16), 0),
        (HEADER * (SIZE // len(HEADER)), 0),
        (jwt(4242)[:-1] * (SIZE // len(jwt(4242))), 0),
        (jwt(4242)[-12:] * (SIZE // 12), SIZE // 12),
        (jwt(4242) * (SIZE // len(jwt(4242))), SIZE // len(jwt(4242))),
    ],
    ids=["beginnings", "headers", "cut tokens", "ends", "tokens"],
)
def test_ten_thousand_tokens_that_begin_alike_are_no_burden_to_what_a_tool_may_write(
    text: str, candidates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compared in full is what ends like a token, once for each length such a token has."""
    scrubber = Scrubber()
    for number in range(KNOWN + 100):
        scrubber.remember(Secret(jwt(number)))
    assert KNOWN == len(scrubber)
    compared: list[int] = []
    digest = scrubber_module._digest

    def counted(part: str) -> bytes:
        compared.append(len(part))
        return digest(part)

    monkeypatch.setattr(scrubber_module, "_digest", counted)
    scrubber.text(text)
    assert len(compared) <= candidates
    assert sum(compared) <= candidates * len(jwt(4242))


def test_a_long_transcript_is_no_burden() -> None:
    scrubber = Scrubber()
    for number in range(5_000):
        scrubber.remember(Secret(f"xoxb-{number:032d}"))
    transcript = "the quick brown fox jumps over https://example.com/a/very/long/address?with=parameters " * 2_000
    begun = time.process_time()
    assert transcript == scrubber.text(transcript)
    assert time.process_time() - begun < 2
