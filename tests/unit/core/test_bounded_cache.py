"""The one cache: never above its bounds, the newest entries kept, every other one reported as evicted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.bounded_cache import Bounded

KEYS = st.integers(0, 8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("keep"), KEYS, st.text("x", max_size=12)),
        st.tuples(st.just("touch"), KEYS, st.just("")),
        st.tuples(st.just("pop"), KEYS, st.just("")),
    ),
    max_size=60,
)
Entries = list[tuple[int, str]]


def newest(entries: Entries, most: int, most_bytes: int) -> Entries:
    """As many of the last entries as fit."""
    while len(entries) > most or sum(len(value) for _, value in entries) > most_bytes:
        entries = entries[1:]
    return entries


@given(STEPS, st.integers(1, 5), st.integers(4, 20))
def test_it_holds_the_newest_entries_that_fit_and_never_more(
    steps: list[tuple[str, int, str]], most: int, most_bytes: int
) -> None:
    cache, plain = Bounded[int, str](most, most_bytes=most_bytes, size_of=len), Entries()
    for step, key, value in steps:
        others = [entry for entry in plain if entry[0] != key]
        if step == "keep":
            before = [*others, (key, value)]
            plain = newest(before, most, most_bytes) if len(value) <= most_bytes else others
            assert cache.keep(key, value) == [entry for entry in before if entry not in plain]
        elif step == "pop":
            assert cache.pop(key) == dict(plain).get(key)
            plain = others
        elif len(others) < len(plain):
            cache.touch(key)
            plain = [*others, (key, dict(plain)[key])]
        assert cache.items() == plain
        assert len(cache) <= most
        assert cache.bytes == sum(len(each) for _, each in plain) <= most_bytes
        assert all(cache.get(name) == each for name, each in plain)


@given(st.lists(KEYS, max_size=40), st.integers(1, 5))
def test_without_sizes_only_the_count_is_bounded(keys: list[int], most: int) -> None:
    cache = Bounded[int, str](most)
    for key in keys:
        cache.keep(key, "x" * 1000)
        assert key in cache
        assert len(cache) <= most
    cache.clear()
    assert (0, 0, []) == (len(cache), cache.bytes, list(cache))


def test_an_entry_that_does_not_fit_evicts_no_other() -> None:
    cache = Bounded[str, str](3, most_bytes=10, size_of=len)
    cache.keep("small", "x" * 4)
    assert [("large", "x" * 11)] == cache.keep("large", "x" * 11)
    assert [("small", "x" * 4)] == cache.items()


class Compared:
    """A key that counts how often it is compared."""

    comparisons = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return isinstance(other, Compared) and other.number == self.number


def test_whether_a_key_is_there_costs_no_walk_through_the_others() -> None:
    cache = Bounded[Compared, None](1000)
    for number in range(1000):
        cache.keep(Compared(number), None)
    Compared.comparisons = 0
    assert Compared(999) in cache
    assert Compared(1000) not in cache
    assert Compared.comparisons <= 4


def test_an_entry_as_large_as_the_bound_is_kept_in_place_of_all_others() -> None:
    cache = Bounded[str, str](3, most_bytes=10, size_of=len)
    cache.keep("small", "x" * 4)
    assert [("small", "x" * 4)] == cache.keep("whole", "x" * 10)
    assert (["whole"], 10) == ([*cache], cache.bytes)
