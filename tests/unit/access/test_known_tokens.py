"""Known tokens: whatever is kept and forgotten in whatever order, what is left is what a plain list would hold."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.access.known_tokens import KnownTokens

MOST = 6


@dataclass(frozen=True)
class Kept:
    locator: str
    bundle: str


turns = st.sampled_from("abc")
steps = st.one_of(
    st.tuples(st.just("keep"), turns, st.integers(0, 4), st.sampled_from(["older"] * 9 + ["newer"])),
    st.tuples(st.just("forget"), turns, st.integers(0, 4), st.just("")),
    st.tuples(st.just("end"), turns, st.just(0), st.just("")),
)


@given(st.lists(steps, max_size=60))
def test_what_is_left_is_what_a_plain_list_would_hold(steps: list[tuple[str, str, int, str]]) -> None:
    known, plain = KnownTokens[Kept](MOST), list[tuple[bytes, Kept]]()
    for step, turn, number, bundle in steps:
        digest, token = f"{turn}{number}".encode(), Kept(turn, bundle)
        match step:
            case "keep":
                known.keep(digest, token)
                others = [each for each in plain if each[0] != digest and each[1].bundle == bundle]
                plain = [*others, (digest, token)][-MOST:]
            case "forget":
                known.forget(digest)
                plain = [each for each in plain if each[0] != digest]
            case _:
                known.forget_turns([turn])
                plain = [each for each in plain if each[1].locator != turn]
        assert (len(plain), {each[1].locator for each in plain}) == (len(known), known.turns())
        assert all(known.get(digest) == token for digest, token in plain)
    known.forget_turns("abc")
    assert (0, set()) == (len(known), known.turns())
