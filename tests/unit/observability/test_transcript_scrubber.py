"""The scrubber: every token it was told of goes out of text and data, and nothing else does."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.secret import Secret
from oauthbroker.observability import transcript_scrubber as scrubber_module
from oauthbroker.observability.transcript_scrubber import Scrubber

TOKEN = "xoxb-17/26+35==.se^cr|et~(1)*"
ENCODE_URI = "xoxb-17/26+35==.se%5Ecr%7Cet~(1)*"
ENCODE_URI_COMPONENT = "xoxb-17%2F26%2B35%3D%3D.se%5Ecr%7Cet~(1)*"
FORM_OF_A_BROWSER = "xoxb-17%2F26%2B35%3D%3D.se%5Ecr%7Cet%7E%281%29*"
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
        (f"?token={re.sub('%..', lambda found: found[0].lower(), quote(TOKEN, safe=''))}", "?token=***"),
        (f"?token={quote(TOKEN)}", "?token=***"),
        (f"?token={ENCODE_URI}", "?token=***"),
        (f"?token={ENCODE_URI.replace('%5E', '%5e').replace('%7C', '%7c')}", "?token=***"),
        (f"?token={ENCODE_URI_COMPONENT}", "?token=***"),
        (urlencode({"token": TOKEN}), "token=***"),
        (f"token={FORM_OF_A_BROWSER}", "token=***"),
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


def test_a_token_too_short_to_differ_from_a_word_is_left_alone() -> None:
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
def test_no_token_survives_in_any_context(tokens: list[str], before: str, after: str) -> None:
    tokens = [token for token in tokens if not set("\"'<>*") & set(token)]
    scrubber = Scrubber()
    for token in tokens:
        scrubber.remember(Secret(token))
    for token in tokens:
        assert token not in scrubber.text(f"{before} {token} {after}")


pieces = st.text("ab-", min_size=1, max_size=20)


@given(st.lists(pieces, max_size=6).map("".join), st.lists(st.text("ab-", min_size=12, max_size=16), max_size=4))
def test_remembered_tokens_are_masked_and_all_other_text_is_untouched(text: str, tokens: list[str]) -> None:
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


@pytest.mark.sample(2)
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
    """Only texts that end like a token are compared, once for each length such a token has."""
    scrubber = Scrubber()
    for number in range(KNOWN + 100):
        scrubber.remember(Secret(jwt(number)))
    assert KNOWN == len(scrubber)
    compared = counted(monkeypatch)
    scrubber.text(text)
    assert len(compared) <= candidates


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many characters were compared, each time that a piece of a text was held against tokens."""
    compared: list[int] = []
    look = scrubber_module._look

    def counting(text: str, start: int, end: int) -> int:
        compared.append(end - start)
        return look(text, start, end)

    monkeypatch.setattr(scrubber_module, "_look", counting)
    return compared


MEGABYTE = 1024 * 1024
COMMON = "-the-end-of-each-of-these-tokens"
LONG = "".join(hashlib.sha256(bytes([each])).hexdigest() for each in range(160))
IN_VAIN = [  # they begin and end alike, and are of as many lengths as are tried
    "a" * 12 + "b" * begun + "a" * rest
    for begun, rest in ((1, 13), (2, 13), (3, 13), (4, 13), (10, 100), (10, 200), (10, 300), (10, 400))
]
HOSTILE: dict[str, tuple[Callable[[], Iterable[str]], str]] = {  # tokens of 50 MiB, made when they are tried
    "a common end": (lambda: ("x" * each + COMMON for each in range(KNOWN)), COMMON),
    "a common end of twelve": (lambda: ("x" * each + COMMON[-12:] for each in range(KNOWN)), COMMON[-12:]),
    "one letter": (lambda: ("a" * each for each in range(12, 12 + KNOWN)), "a"),
    "one letter, begun otherwise": (lambda: ("b" + "a" * each for each in range(12, 12 + KNOWN)), "a"),
    "one letter, begun otherwise here and there": (
        lambda: ("b" + "a" * each for each in range(12, KNOWN)),
        "b" + "a" * 999,
    ),
    "few lengths, and none fits": (lambda: ("b" + "a" * each for each in (13, 14, 15, 40, 41, 42, 4_000)), "a"),
    "few lengths, and each fits": (lambda: ("a" * each for each in (13, 14, 15, 40, 41, 42, 4_000)), "a"),
    "beginnings of one text": (lambda: (LONG[:each] for each in range(12, KNOWN)), LONG),
    "encoded texts": (lambda: ("/" * each for each in range(12, 1_000)), "%2F"),
    "looks in vain": (lambda: IN_VAIN, "a"),
    "looks in vain in each of many pieces": (lambda: IN_VAIN, "a" * 300 + " "),
    "looks in vain in each of very many pieces": (lambda: IN_VAIN, "a" * 40 + " "),
}


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_tokens_make_a_megabyte_of_text_a_burden(hostile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So much work for a character, however the text is cut into pieces, and half a second for all of them."""
    tokens, piece = HOSTILE[hostile]
    scrubber, text = Scrubber(), piece * (MEGABYTE // len(piece))
    for token in tokens():
        scrubber.remember(Secret(token))
    begun = time.process_time()
    scrubber.text(text)
    assert time.process_time() - begun < 10
    part, compared = text[: MEGABYTE // 8], counted(monkeypatch)
    most = len(part) // scrubber_module._TAIL + scrubber_module._FREE_LOOKS + 2 * scrubber_module._MOST_LENGTHS
    scrubber.text(part)
    assert len(compared) <= most
    compared.clear()
    scrubber.json({"a": [part[at : at + 300] for at in range(0, len(part), 300)]})
    assert len(compared) <= most


def test_of_many_tokens_that_end_alike_in_many_lengths_none_stays() -> None:
    """A text that differs from tokens by its length alone is masked with the possible beginning of a longer one."""
    tokens = [f"v4.public.{'ab' * each}c{each}.{COMMON}" for each in range(100)]
    scrubber = Scrubber()
    for token in tokens:
        scrubber.remember(Secret(token))
    said = " ".join(f"{token}, and ?token={token}&more {COMMON}" for token in tokens)
    assert " ".join(f"***, and ?token=***&more {COMMON}" for _ in tokens) == scrubber.text(said)
    for number in range(scrubber_module.MOST_TOKENS):
        scrubber.remember(Secret(jwt(number)))
    assert said == scrubber.text(said)


def test_a_long_transcript_is_no_burden() -> None:
    scrubber = Scrubber()
    for number in range(5_000):
        scrubber.remember(Secret(f"xoxb-{number:032d}"))
    transcript = "the quick brown fox jumps over https://example.com/a/very/long/address?with=parameters " * 2_000
    begun = time.process_time()
    assert transcript == scrubber.text(transcript)
    assert time.process_time() - begun < 2
