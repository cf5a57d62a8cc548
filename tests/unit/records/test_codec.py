"""Decoding keeps nothing of its input, and a record that was read is as its constructor makes it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field

import pytest

from oauthbroker.core.secret import Secret
from oauthbroker.records import Grant, Token, codec
from tests.unit.records import kit


@dataclass(frozen=True, slots=True)
class Plain:
    name: str
    secret: Secret | None = None
    facts: Mapping[str, int] = field(default_factory=dict, metadata=codec.OPTIONAL)


@dataclass(frozen=True)
class WithoutSlots:
    name: str


@dataclass(frozen=True, slots=True)
class Checked:
    name: str

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a name has a letter")


@dataclass(frozen=True, slots=True)
class Counting:
    name: str
    length: int = field(default=4, init=False, metadata=codec.APART)


def test_no_value_of_a_decoded_record_stays_in_a_cache() -> None:
    """Tokens are short strings. A parser that caches them would hold them after their record is gone."""
    body = codec.encode("Sample", {"spec": {"token": "only-here-1", "other": ["only-here-2"]}})
    spec = codec.decode("Sample", body)["spec"]
    alone = [f"never-seen-{len(body)}"]
    for holder, key in ((spec, "token"), (spec["other"], 0)):
        assert sys.getrefcount(holder[key]) == sys.getrefcount(alone[0])


@pytest.mark.parametrize("record", [Plain("a", Secret("s"), {"b": 1}), Plain("a"), WithoutSlots("a"), Checked("a")])
def test_a_record_that_was_read_is_as_its_constructor_makes_it(record: object) -> None:
    read = codec.made(type(record), codec.members(record))
    assert (record, hash(type(read)), repr(record)) == (read, hash(type(record)), repr(read))
    with pytest.raises(FrozenInstanceError):
        read.name = "b"  # type: ignore[attr-defined]


def test_a_constructor_that_does_more_is_called() -> None:
    with pytest.raises(ValueError, match="a letter"):
        codec.made(Checked, {"name": ""})
    assert 4 == codec.made(Counting, {"name": "a"}).length


def test_a_record_with_a_missing_or_an_unknown_field_is_not_made() -> None:
    with pytest.raises(KeyError):
        codec.made(Plain, {"secret": None})
    with pytest.raises(KeyError):
        codec.made(Plain, {"name": "a", "secret": None}, other=1)


def test_a_grant_that_was_read_has_each_field() -> None:
    for kind in (Grant, Token):
        assert codec._setters(kind), f"the slots of a {kind.__name__} are set without its constructor"
    grant = kit.grant()
    assert (grant, repr(grant)) == ((read := Grant.from_plaintext(grant.to_plaintext())), repr(read))
