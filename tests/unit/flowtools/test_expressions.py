"""Expressions: values, types, and bounds."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from oauthbroker.flowtools.specification.expression_text import ExpressionRefused
from oauthbroker.flowtools.specification.expressions import EvaluationFailed, Names, Scope, names_of_schema

SCHEMA = {
    "type": "object",
    "required": ["a", "from", "list", "inner"],
    "properties": {
        "a": {"type": "number"},
        "i": {"type": "integer"},
        "n": {"type": "string"},
        "from": {"type": "string", "format": "date-time"},
        "list": {"type": "array"},
        "inner": {"type": "object", "required": ["yes"], "properties": {"yes": {"type": "boolean"}}},
        "odd": {"anyOf": [{"type": "string"}, {"type": "number"}]},
    },
}
NAMES = names_of_schema(SCHEMA, "input") | Names(
    types={"get-order": "DYN", "order": "DYN", "x": "DOUBLE", "y": "DOUBLE", "big": "STRING"}
)
SCOPE = Scope(NAMES, ["get-order"])
VALUES = {
    "input": {"a": 3, "from": "2026-01-01T00:00:00Z", "list": [1, 2.5], "inner": {"yes": True}},
    "get-order": {"result": {"total": 4}},
    "order": {"rate": 10},
    "x": 5,
    "y": 2,
    "big": "b" * 60_000,
}


@pytest.mark.rule("000-dsl-1", "000-dsl-2", "000-dsl-3", "001-idempotency")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("input.a > 2", True),
        ("input.a * 2 + 1", 7.0),
        ("diffDays(input.from, '2026-01-03T12:00:00Z') * order.rate", 25.0),
        ("diffDays('2026-01-02', '2026-01-01')", -1.0),
        ("concat('a', '-', 3, 1.5, input.a)", "a-31.53"),
        ("concat(concat('a'), 2)", "a2"),
        ("concat()", ""),
        ("get-order.result.total - 1", 3.0),
        ("x-y", 3.0),
        ("x -y - 1", 2.0),
        ("input.n == null", True),
        ("input.n", None),
        ("input.i == null ? 0 : input.i", 0.0),
        ("input.list[1]", 2.5),
        ("input.list.all(e, e > 0) && input.list.exists(e, e == 1)", True),
        ("input.list.filter(e, e > 2)", [2.5]),
        ("length(input.list) + length('abc')", 5.0),
        ("order['rate']", 10.0),
        ("'it\\'s (x-y'", "it's (x-y"),
    ],
)
def test_an_expression_has_its_value(text, value):
    assert value == SCOPE.compile(text).value(VALUES)


@pytest.mark.rule("000-dsl-1")
@pytest.mark.parametrize(
    ("text", "what", "column"),
    [
        ("input.a + 'x'", "no operator fits '_+_' applied to '(double, string)'", 9),
        ("input.n + 1", "no operator fits '_+_' applied to '(wrapper(string), double)'", 9),
        ("concat('a') == input.zz", "the name input.zz is not bound here", 21),
        ("get-ordr.result", "the name get is not bound here", 1),
        ("input.list.map(e, e)", "the function map is not known", 12),
        ("has(input.n)", "the function has is not known", 1),
        ("exec('rm')", "the function exec is not known", 1),
        ("all(input.list)", "the function all without a list", 1),
        ("'open", "a text without its end", 1),
        ("1u", "a number of another form", 1),
        ("99999999999999999999", "a number of another form", 1),
        ("x == 1 ? 'a' : 2", "no operator fits '_?_:_' applied to '(bool, string, double)'", 8),
    ],
)
def test_an_expression_of_wrong_types_or_names_is_refused_at_its_place(text, what, column):
    with pytest.raises(ExpressionRefused) as refused:
        SCOPE.compile(text)
    assert (what, column) == (refused.value.what, refused.value.column)


ONES = f"[{','.join(['1'] * 100)}]"


@pytest.mark.rule("000-dsl-4")
@pytest.mark.parametrize(
    "text",
    [
        "1/0",
        "diffDays('x', 'y')",
        "diffDays('2026-01-01', '2026-01-01T00:00:00Z')",
        "concat(true)",
        "concat(big, big)",
        "big + big",
        "order.rate.of.what",
        "input.list[7]",
        f"{ONES}.all(a, {ONES}.all(b, {ONES}.all(c, a + b + c > 0)))",
    ],
)
def test_an_expression_without_a_value_or_beyond_a_bound_fails_soon(text):
    begun = time.process_time()
    with pytest.raises(EvaluationFailed):
        SCOPE.compile(text).value(VALUES)
    assert time.process_time() - begun < 5  # of CPU time: unbounded, the nested loops take minutes


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{'a': 1}[input.text]", "no such key"),
        ("input[input.text]", "no such key"),
        ("[1, 2][input.n]", "no such index"),
        ("diffDays(input.text, input.text)", "diffDays takes dates of ISO 8601"),
        ("input.text.matches(input.text)", "a pattern that cannot be read"),
        ("double(input.text)", "cannot convert string to double"),
        ("input.text + 1", "a value of a type that the operator or function does not take"),
        ("{input.text: 1, input.text: 2}", "it cannot be evaluated"),
    ],
)
@pytest.mark.parametrize("value", ["s3cret(", "No such key: s3cret(", "concat takes texts and numbers s3cret("])
def test_the_reason_of_a_failure_quotes_no_value(text, why, value):
    with pytest.raises(EvaluationFailed) as failed:
        Scope(Names(types={"input": "DYN"})).compile(text).value({"input": {"text": value, "n": -7777}})
    assert why == str(failed.value)


@pytest.mark.rule("000-dsl-4")
@pytest.mark.parametrize(
    "text",
    ["(" * 4000 + "1" + ")" * 50, "[" * 2000, "1" + "+1" * 2000, "!" * 4000, "a." * 2000 + "b", "", "x x", "\x00"],
)
def test_an_expression_bomb_is_refused_or_small(text):
    with suppress(ExpressionRefused):
        assert len(SCOPE.compile(text).type) < 10


def test_types_come_from_the_schema():
    assert {
        "input.a": "DOUBLE",
        "input.n": "STRING",
        "input.inner.yes": "BOOL",
        "input.odd": "DYN",
    }.items() <= NAMES.types.items()
    assert {"input.i", "input.n", "input.odd"} == NAMES.optional
    assert "BOOL" == SCOPE.compile("input.a > 2").type
    assert "DYN" == names_of_schema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#"}}}, "input").types["input"]
