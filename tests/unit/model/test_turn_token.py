"""Turn tokens: a holder can narrow it; it cannot be widened or forged."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.turn_token import MAX_CAVEATS, MAX_LENGTH, Caveat, TurnToken, narrow

ROOT, LOCATOR = bytes(range(32)), "L" * 22
FIRST = TurnToken.first(LOCATOR, ROOT).to_text()

words = st.text(max_size=30)
caveats = st.one_of(
    words.map(lambda tool: Caveat(tool=tool)),
    st.dictionaries(words, st.none() | st.lists(words, max_size=3).map(tuple), max_size=3).map(
        lambda apps: Caveat(apps=apps)
    ),
    st.integers(0, 4_000_000_000).map(lambda seconds: Caveat(expires_at=datetime.fromtimestamp(seconds, UTC))),
)


def good(text: str, root: bytes = ROOT) -> bool:
    try:
        return TurnToken.parse(text).signed_with(root)
    except BrokerError as error:
        if error.code is not Code.UNAUTHENTICATED:
            raise
        return False


@given(st.lists(caveats, max_size=6))
def test_a_narrowed_token_lists_its_narrowings_in_order(given_caveats: list[Caveat]) -> None:
    token = TurnToken.parse(FIRST.reveal())
    for caveat in given_caveats:
        token = token.with_caveat(caveat)
    text = token.to_text().reveal()
    if len(text) > MAX_LENGTH:
        return
    assert good(text)
    assert given_caveats == [Caveat.from_text(each) for each in TurnToken.parse(text).caveats]


@given(st.lists(caveats, min_size=1, max_size=4), st.data())
def test_no_caveat_can_be_taken_away_changed_or_moved(given_caveats: list[Caveat], data: st.DataObject) -> None:
    token = TurnToken.parse(FIRST.reveal())
    for caveat in given_caveats:
        token = token.with_caveat(caveat)
    others = data.draw(
        st.lists(st.sampled_from(token.caveats) | caveats.map(Caveat.to_text), max_size=4).filter(
            lambda drawn: tuple(drawn) != token.caveats
        )
    )
    assert not TurnToken(LOCATOR, tuple(others), token.signature).signed_with(ROOT)


@pytest.mark.case("79")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "oabt",
        "oabt.",
        FIRST.reveal()[:-1],
        FIRST.reveal() + "A",
        FIRST.reveal() + ".",
        FIRST.reveal().replace("oabt.", "oabk."),
        FIRST.reveal().replace("L", "M", 1),
        " " + FIRST.reveal(),
        FIRST.reveal() + "\n",
        FIRST.reveal().upper(),
        f"oabt.{LOCATOR}.{'A' * 43}",
        f"oabt.{LOCATOR}.{'A' * 42}B",  # no 32 bytes are spelt like this
        f"oabt.{LOCATOR}..{'A' * 43}",
        f"oabt.{LOCATOR}.{'A' * 5000}.{'A' * 43}",
        "oabt." + ".".join(["A" * 22] + ["AAAA"] * (MAX_CAVEATS + 1) + ["A" * 43]),
        "é" * 30,
    ],
)
def test_every_foreign_token_gets_the_same_refusal(text: str) -> None:
    assert not good(text)


def test_another_brokers_token_is_no_token() -> None:
    assert good(FIRST.reveal())
    assert not good(FIRST.reveal(), root=bytes(32))


@given(st.integers(0, 300), st.sampled_from("ABab01-_"))
def test_one_changed_character_is_noticed(at: int, character: str) -> None:
    text = narrow(FIRST, tool="Tool/mail", apps={"mail": ["read"]}).reveal()
    at %= len(text)
    changed = text[:at] + character + text[at + 1 :]
    assert (changed == text) is good(changed)


@pytest.mark.parametrize(
    "body",
    ["e30", "bnVsbA", "W10", "eyJ0b29sIjoxfQ", "eyJleHAiOnRydWV9", "eyJleHAiOiIxIn0", "eyJhcHBzIjp7ImEiOiJiIn19",
     "eyJzdWJqZWN0IjoiYm9iIn0", "eyJ0b29sIjoiYSIsImV4cCI6MX0", "_w"],
)  # fmt: skip
def test_a_caveat_that_is_not_understood_is_never_passed_over(body: str) -> None:
    with pytest.raises((ValueError, BrokerError), match=r".") as refused:
        Caveat.from_text(body)
    assert Code.UNAUTHENTICATED is getattr(refused.value, "code", Code.UNAUTHENTICATED)


@pytest.mark.parametrize("body", [b'{"tool":"Tool/a","tool":"Tool/b"}', b'{"apps":{"mail":["read"],"mail":null}}'])
def test_a_caveat_with_a_name_twice_is_unauthenticated(body: bytes) -> None:
    with pytest.raises(BrokerError, match="a name twice") as caught:
        Caveat.from_text(base64.urlsafe_b64encode(body).rstrip(b"=").decode())
    assert Code.UNAUTHENTICATED is caught.value.code


def test_narrowing_has_an_end() -> None:
    token = FIRST
    with pytest.raises(BrokerError) as caught:
        for _ in range(MAX_CAVEATS + 1):
            token = narrow(token, tool="Tool/mail")
    assert Code.REQUEST_INVALID is caught.value.code
    with pytest.raises(BrokerError):
        narrow(Secret("oabt.x"), tool="Tool/mail")


def test_a_token_does_not_print() -> None:
    assert "LLLL" not in repr(TurnToken.parse(FIRST.reveal()))
    assert "LLLL" not in f"{FIRST!r} {FIRST}"
