"""Export, copy and verify find the tags of each of a million entries in little memory."""

from __future__ import annotations

import tracemalloc
from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.store.migration.tags_by_name import TagsByName

NAMES = st.integers(0, 5).map(lambda number: sha256(bytes([number])).hexdigest())
VALUES = st.integers(0, 3).map(lambda number: f"{number:032x}")
TAGS = st.lists(st.tuples(st.sampled_from(["app", "who", "ending"]), VALUES, NAMES))


@given(TAGS, st.sampled_from(["x", "0" * 97, f"{0:032x}.{0:063x}"]))
def test_each_entry_has_its_tags_and_no_others(tags: list[tuple[str, str, str]], strange: str) -> None:
    wanted = defaultdict[str, set[tuple[str, str]]](set)
    for label, value, name in tags:
        wanted[name].add((label, value))
    found = TagsByName([*((label, f"{value}.{name}") for label, value, name in tags), ("who", strange)])
    for number in range(7):
        name = sha256(bytes([number])).hexdigest()
        assert wanted[name] == found.of(name)
    assert sorted(name for _, _, name in tags) == list(found.names())


def test_a_tag_takes_less_than_a_hundred_bytes() -> None:
    count = 20_000

    def places() -> Iterator[tuple[str, str]]:
        for number in range(count):
            name = sha256(number.to_bytes(4, "big")).hexdigest()
            yield "who", f"{number:032x}.{name}"

    tracemalloc.start()
    try:
        found = TagsByName(places())
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 100 * count > most >= kept
    assert found.of(sha256(bytes(4)).hexdigest()) == {("who", f"{0:032x}")}
