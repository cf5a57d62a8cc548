"""Hostile actions, schemas and inputs: depth, size, surrogates, cycles and regex bombs are bounded. The counts are of
calls, because a clock says nothing on a busy machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from oauthbroker.gateway import rulebook, validate
from oauthbroker.gateway.values import FORMATS, MAX_DEPTH, MOST_VALUES
from tests.unit.gateway.kit import CART, explain

NO_JSON = "Action must be JSON: 32 levels and 10000 values at most, finite numbers, Unicode"


def nested(levels: int, pack: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = pack(value)
    return value


def cycle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def shared() -> Any:
    """Return a value of 2**64 parts in 64 lists."""
    return nested(64, lambda it: [it, it])


BAD = {
    "a deep array": lambda: nested(MAX_DEPTH + 1, lambda it: [it]),
    "a deep object": lambda: nested(10_000, lambda it: {"a": it}),
    "a cycle": cycle,
    "doubled parts": shared,
    "doubled parts in few levels": lambda: nested(30, lambda it: [it, it]),
    "many values": lambda: [0] * MOST_VALUES,
    "many members": lambda: {str(each): 0 for each in range(MOST_VALUES)},
    "half a surrogate pair": lambda: "\ud800",
    "half a pair in a name": lambda: {"\udfff": 1},
    "half a pair below": lambda: [["x\udc00"]],
    "not a number": lambda: [float("nan")],
    "infinity": lambda: {"a": -float("inf")},
    "a huge integer": lambda: 10**5000,
    "bytes": lambda: b"x",
    "a set": lambda: [{1}],
    "a name that is no text": lambda: {1: 2},
    "a tuple": lambda: (1,),
}


@pytest.mark.rule("gateway.procedure.2-d", "gateway.6-3")
@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
def test_an_action_that_is_no_bounded_json_is_rejected(make: Callable[[], Any]) -> None:
    schemas: list[Any] = [None, {"ADD_TO_CART": {}}, {"ADD_TO_CART": {"json_schema": {"type": "object"}}}]
    for schema in schemas:
        answer = explain([{**CART, "note": make()}, CART], schema)
        assert [False, True] == [each["is_valid"] for each in answer["validation_results"]]
        assert [NO_JSON] == [each["reason"] for each in answer["rejected_actions"]]
        assert [("TYPE_MISMATCH", None)] == [(each["tag"], each["field"]) for each in answer["details"]]


@pytest.mark.rule("gateway.inputs-3", "gateway.inputs-4", "gateway.procedure.2-b")
@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
def test_other_inputs_may_be_anything_and_nothing_is_found_in_them(make: Callable[[], Any]) -> None:
    value = make()
    for products in (value, [value], [{"id": value}]):
        assert not validate([CART], None, {"is_logged_in": value}, products)["valid_actions"]
    assert not validate([CART], {"ADD_TO_CART": value}, None)["valid_actions"]
    assert not validate([CART], {"ADD_TO_CART": {"json_schema": {"const": value}}}, None)["valid_actions"]
    assert not validate([{"action_type": value}])["valid_actions"]
    rules = {"ADD_TO_CART": {"rules": [{"field": "quantity", "op": "atMost", "context": "limit", "text": "no"}]}}
    assert not validate([CART], rules, {"limit": value if value != 10**5000 else None})["valid_actions"]


class HostileDict(dict[str, Any]):
    def get(self, *_: Any) -> Any:
        raise RuntimeError


class HostileList(list[Any]):
    def __iter__(self) -> Any:
        raise RuntimeError


def test_objects_that_only_look_like_json_are_never_run() -> None:
    """A subclass may raise, or answer differently the second time."""
    assert not validate([CART], HostileDict(ADD_TO_CART={}))["valid_actions"]
    assert not validate([CART], None, None, HostileList(["prod_1"]))["valid_actions"]
    assert "error" in validate(HostileList([CART]))
    rule = {"field": "product_id", "op": "in", "context": "mine", "text": "no"}
    book = rulebook({"actions": {"ADD_TO_CART": {"rules": [rule]}}})
    assert not validate([CART], book, {"mine": HostileList(["prod_1"])})["valid_actions"]


def test_the_bounds_themselves_are_allowed() -> None:
    good = [nested(MAX_DEPTH - 1, lambda it: [it]), [0] * (MOST_VALUES - 9), "\U0001f600", 2**4096 - 1, "x" * 1_000_000]
    assert len(good) == len(validate([{**CART, "note": each} for each in good])["valid_actions"])


def test_a_message_is_short_for_any_value() -> None:
    for value in ("x" * 10**6, 10**3000, "\ud800" * 999):
        (reason,) = [each["reason"] for each in validate([{"action_type": value}])["rejected_actions"]]
        assert len(reason.encode()) < 300


def test_a_message_shows_no_control_character_of_a_field_name() -> None:
    name = "a\x1b[31m\n"
    for form in ({"required_fields": [name]}, {"field_types": {name: "string"}}, {"constraints": {name: {"min": 9}}}):
        (reason,) = [
            each["reason"]
            for each in validate([CART if "required_fields" in form else {**CART, name: 1}], {"ADD_TO_CART": form})[
                "rejected_actions"
            ]
        ]
        assert reason.isprintable()
        assert "a\ufffd[31m" in reason


def steps(work: Callable[[], object]) -> int:
    """Count the calls of Python and C functions."""
    count = 0

    def count_call(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_the_work_grows_with_the_number_of_actions_and_entries_not_with_their_product() -> None:
    def work(many: int) -> int:
        actions = [{**CART, "product_id": f"prod_{each}", "price": 1} for each in range(many)]
        entries = [{"id": f"prod_{each}", "price": 1} for each in range(many)]
        return steps(lambda: validate(actions, None, None, entries))

    work(10)  # made once
    assert work(800) < 4.4 * work(200)


def test_a_long_enum_is_searched_once_and_told_in_part() -> None:
    """1,000 actions with an enum of 1,000 values fit into one request."""
    schema = {"ADD_TO_CART": {"constraints": {"note": {"enum": [*range(1000)]}}}}

    def work(note: int, many: int) -> int:
        return steps(lambda: validate([{**CART, "note": note}] * many, schema))

    for note in (999, 1000):
        assert work(note, 200) - work(note, 100) < 300 * 100
    (reason,) = [each["reason"] for each in validate([{**CART, "note": -1}], schema)["rejected_actions"]]
    assert f"Field note must be one of {', '.join(map(str, range(20)))}, …" == reason


# Texts at which a regex that matches some character in two ways takes the square of their length, or worse.
BOMBS = [
    "@".join(["a", "." * 50_000, "a"]),
    "a@" + "a." * 50_000 + "@",
    "prod_" + "-" * 50_000 + " ",
    "0-" * 50_000 + "\n",
    "+" * 100_000 + "\n",
]


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_matches_a_character_in_two_ways(name: str) -> None:
    """Each text ends with its mismatch. With the square of their lengths, this test takes minutes."""
    assert [] == [each[-9:] for each in BOMBS if FORMATS[name].fullmatch(each)]


def test_a_regex_bomb_of_an_operator_is_linear() -> None:
    book = rulebook({"actions": {"A": {"jsonSchema": {"properties": {"x": {"pattern": "^(a+)+$"}}}}}})
    assert not validate([{"action_type": "A", "x": "a" * 100_000 + "b"}], book)["valid_actions"]


def test_an_action_that_breaks_a_schema_everywhere_takes_about_as_long_as_a_valid_one() -> None:
    """The engine makes all errors before the first is read, which takes hundreds of times as long. A ratio of one run."""
    items = {"allOf": [{"type": "string"}] * 10}
    book = rulebook({"actions": {"A": {"jsonSchema": {"properties": {"x": {"items": items}}}}}})

    def seconds(value: Any, reason: str) -> float:
        taken = []
        for _ in range(3):
            begun = process_time()
            answer = validate([{"action_type": "A", "x": [value] * (MOST_VALUES - 9)}], book)
            taken.append(process_time() - begun)
            assert ([reason] if reason else []) == [each["reason"] for each in answer["rejected_actions"]]
        return min(taken)

    assert seconds(1, "Field x.0 must be string, got integer") < 5 * seconds("1", "")


def test_a_schema_that_refers_to_itself_ends() -> None:
    book = rulebook(
        {"actions": {"A": {"jsonSchema": {"$ref": "#"}}, "B": {"jsonSchema": {"properties": {"x": {"$ref": "#"}}}}}}
    )
    actions = [{"action_type": "A"}, {"action_type": "B", "x": nested(MAX_DEPTH - 1, lambda it: {"x": it})}]
    assert 2 == len(validate(actions, book)["valid_actions"])
