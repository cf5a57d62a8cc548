"""Known tokens: kept and forgotten in any order, the cache holds the entries that a plain list would hold."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.access.turn_token_cache import Known, KnownTokens, TurnTokenHolder
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Settings
from oauthbroker.model.turn import Turn
from oauthbroker.records.turn_record import TurnRecord

MOST = 6
NOW = datetime(2026, 11, 21, tzinfo=UTC)


BUNDLES = {name: Bundle(Settings(locale=name), {}) for name in ("en", "ko")}


def token_of(locator: str, bundle: Bundle, size: int = 1) -> Known:
    turn = Turn("planner", "thread")
    token_holder = TurnTokenHolder(turn=turn, turn_id=f"turn-{locator}", expires_at=NOW)
    return Known(
        record=TurnRecord(locator=locator, turn=turn, created_at=NOW, expires_at=NOW),
        bundle=bundle,
        token_holder=token_holder,
        size=size,
    )


turns = st.sampled_from("abc")
steps = st.one_of(
    st.tuples(st.just("keep"), turns, st.integers(0, 4), st.sampled_from(["en"] * 9 + ["ko"])),
    st.tuples(st.just("forget"), turns, st.integers(0, 4), st.just("")),
    st.tuples(st.just("end"), turns, st.just(0), st.just("")),
)


@given(st.lists(steps, max_size=60))
def test_the_cache_holds_what_a_plain_list_would_hold(steps: list[tuple[str, str, int, str]]) -> None:
    known, plain = KnownTokens(MOST), list[tuple[bytes, Known]]()
    for step, turn, number, bundle in steps:
        digest, made = f"{turn}{number}".encode(), BUNDLES.get(bundle, BUNDLES["en"])
        token = token_of(turn, made)
        match step:
            case "keep":
                known.keep(digest, token)
                others = [each for each in plain if each[0] != digest and each[1].bundle is made]
                plain = [*others, (digest, token)][-MOST:]
            case "forget":
                known.forget(digest)
                plain = [each for each in plain if each[0] != digest]
            case _:
                known.forget_turns([turn])
                plain = [each for each in plain if each[1].record.locator != turn]
        assert (len(plain), {each[1].record.locator for each in plain}) == (len(known), known.turns())
        assert all(known.get(digest) == token for digest, token in plain)
    known.forget_turns("abc")
    assert (0, set()) == (len(known), known.turns())


def test_a_newer_configuration_forgets_tokens_and_turns_of_the_one_before() -> None:
    known = KnownTokens(MOST)
    known.keep(b"a", token_of("a", BUNDLES["en"]))
    known.keep(b"b", token_of("b", BUNDLES["ko"]))
    assert (1, {"b"}, None) == (len(known), known.turns(), known.get(b"a"))


def test_tokens_of_large_turns_stay_within_their_bytes() -> None:
    known = KnownTokens(MOST, most_bytes=100)
    for number in range(5):
        known.keep(f"a{number}".encode(), token_of("a", BUNDLES["en"], size=40))
    assert (2, {"a"}) == (len(known), known.turns())
    known.keep(b"b", token_of("b", BUNDLES["en"], size=101))
    assert (2, {"a"}) == (len(known), known.turns())
    for number in (3, 4):
        known.forget(f"a{number}".encode())
    assert (0, set()) == (len(known), known.turns())
