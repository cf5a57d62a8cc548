"""Secret: a text that comes out by one word and by no other way."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from oauthbroker.core.secret import Secret
from oauthbroker.testing import Canaries


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    name: str
    secret: Secret


class Model(BaseModel):
    secret: Secret


PRINTS: dict[str, Callable[[Secret], object]] = {
    "str": str,
    "repr": repr,
    "format": lambda it: f"{it} {it!r} {it!s} {it:>40} {it:.3}",
    "percent": lambda it: "%s %r" % (it, it),  # noqa: UP031
    "a list": lambda it: repr([it, {it.__class__: it}]),
    "a dataclass": lambda it: repr(Holder("a", it)),
    "a model": lambda it: repr(Model(secret=it)) + str(Model(secret=it)),
    "an exception": lambda it: repr(ValueError("wrong", it)),
    "dir": lambda it: repr(dir(it)),
    "the class": lambda it: repr(type(it)) + repr(it.__init__),
}
REFUSES: dict[str, Callable[[Any], object]] = {
    "json": json.dumps,
    "pickle": pickle.dumps,
    "pickle 0": lambda it: pickle.dumps(it, protocol=0),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy of its holder": lambda it: copy.deepcopy(Holder("a", it)),
    "pickle of its holder": lambda it: pickle.dumps(Holder("a", it)),
    "vars": vars,
    "hash": hash,
    "iteration": list,
    "length": len,
    "index": lambda it: it[0],
    "joining": lambda it: "".join(["a", it]),  # noqa: FLY002
    "adding": lambda it: "a" + it,
    "bytes": bytes,
    "a set": lambda it: {it},
}


@pytest.mark.case("92")
@pytest.mark.parametrize("way", PRINTS)
def test_every_way_to_print_a_secret_prints_stars(way: str, canaries: Canaries) -> None:
    secret = canaries.mint("access token")
    said = str(PRINTS[way](secret))
    assert [] == canaries.search(said, way)
    assert "***" in said or way in {"dir", "the class"}


@pytest.mark.case("92")
@pytest.mark.parametrize("way", REFUSES)
def test_every_way_to_copy_or_unpack_a_secret_is_refused(way: str, canaries: Canaries) -> None:
    secret = canaries.mint("access token")
    with pytest.raises(TypeError) as caught:
        REFUSES[way](secret)
    canaries.look(caught.value, f"the refusal of {way}")


@pytest.mark.case("92")
@pytest.mark.parametrize("mode", ["json", "python"])
def test_a_model_takes_a_secret_in_and_never_gives_it_out(mode: str, canaries: Canaries) -> None:
    secret = canaries.mint("client secret")
    model = Model.model_validate({"secret": secret.reveal()})
    assert secret == model.secret
    with pytest.raises(Exception, match="not serialised") as caught:
        model.model_dump(mode=mode)
    canaries.look(caught.value, "the refusal of a dump")


def test_a_model_refuses_a_value_that_is_no_text_without_quoting_it() -> None:
    with pytest.raises(ValidationError):
        Model.model_validate({"secret": 5})


@pytest.mark.case("92")
def test_a_traceback_that_shows_locals_shows_stars(canaries: Canaries) -> None:
    def spend(secret: Secret) -> None:
        held = Holder("a", secret)
        raise ValueError(held.name)

    with pytest.raises(ValueError) as caught:
        spend(canaries.mint("refresh token"))
    said = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "Secret(***)" in said
    assert [] == canaries.search(said, "a traceback")


def test_a_secret_holds_text_and_nothing_else() -> None:
    for other in (None, 5, b"bytes", Secret("a")):
        with pytest.raises(TypeError):
            Secret(other)  # type: ignore[arg-type]


@given(st.text(), st.text())
def test_equality_is_that_of_the_texts_and_only_among_secrets(left: str, right: str) -> None:
    one, other = Secret(left), Secret(right)
    assert (left == right) is (one == other)
    assert (left == right) is one.matches(right)
    assert not one == left  # noqa: SIM201
    assert bool(left) is bool(one)
    assert left == one.reveal()


@given(st.text(alphabet=st.characters(categories=["Cs", "L"]), min_size=1))
def test_text_from_outside_may_hold_anything_and_still_compares(outside: str) -> None:
    assert not Secret("expected-value").matches(outside)


def test_nothing_can_be_hung_on_a_secret() -> None:
    attributes: Any = Secret("abc")
    with pytest.raises(AttributeError):
        attributes.note = "b"
