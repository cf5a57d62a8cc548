"""Expressions: values that are no JSON, texts with NUL, numbers beyond a double, and work that loops multiply."""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.flowtools.specification.expression_text import MOST_ROUNDS, ExpressionRefused
from oauthbroker.flowtools.specification.expressions import EvaluationFailed, Names, Scope
from oauthbroker.flowtools.specification.failures import json_fault, scalar_fault
from tests.kit.forms import examples

OPEN = Scope(Names(types={"d": "DYN", "l": "LIST", "t": "STRING"}))
MANY = [float(each) for each in range(1000)]


@pytest.mark.rule("000-dsl-5")
@pytest.mark.parametrize(
    "text",
    ["b'abc'", "{true: 2}", "[b'a']", "{'a': {true: 1}}", "[[{false: 1}]]", "int", "[double]", "l == [] ? b'a' : b''"],
)
def test_an_expression_whose_type_is_no_json_is_refused_before_it_runs(text):
    with pytest.raises(ExpressionRefused, match="its value is no JSON"):
        OPEN.compile(text)


@pytest.mark.rule("000-dsl-5")
@pytest.mark.parametrize(
    "text",
    [
        "[double('inf')]",
        "{'a': double('nan')}",
        "{'a': 1e99 * 1e99 * 1e99 * 1e99}",
        "{'a': [-1e99 * 1e99 * 1e99 * 1e99]}",
        "l == [] ? d : b'a'",
        "{d.key: 1}",
        "'a\\u0000b'",
        "['\\u0000']",
        "{'\\u0000': 1}",
        "concat('a', double('inf'))",
    ],
)
def test_a_value_that_is_no_json_fails(text):
    with pytest.raises(EvaluationFailed):
        OPEN.compile(text).value({"d": {"key": True}, "l": [1], "t": ""})


@pytest.mark.rule("000-dsl-5")
@pytest.mark.parametrize(
    "value", ["admin\0", {"n\0": 1}, {"a": ["\0"]}, 10**400, -(10**400), [math.inf], {"a": math.nan}, "\ud800"]
)
def test_a_value_that_two_readers_read_differently_reaches_no_expression(value):
    with pytest.raises(EvaluationFailed):
        OPEN.compile("d").value({"d": value, "l": [], "t": ""})


@pytest.mark.rule("000-dsl-4")
@pytest.mark.parametrize(
    "text",
    [
        "l.all(a, length(d) > 0)",
        "l.all(a, d == d)",
        "l.all(a, !(a in d))",
        "l.all(a, length(concat(t, 'a')) > 0)",
        "l.all(a, !t.matches('(x|xx)*y'))",
        "l.all(a, [t].all(b, length(b) > 0))",
        "[d].all(e, l.all(a, length(e) > 0))",
        "l.all(a, l.filter(b, length(d) > 0) == l)",
        f"l.all(a, {' && '.join(['length(t) > a'] * 25)})",
        "{'k': d}.all(k, l.all(a, length(d) > 0))",
    ],
)
def test_work_that_a_loop_repeats_on_large_values_ends_before_it_begins(text):
    begun = time.process_time()
    with pytest.raises(EvaluationFailed, match="more work than is allowed"):
        OPEN.compile(text).value({"d": [[1.0] * 10] * 2000, "l": MANY, "t": "x" * 1_000_000})
    assert time.process_time() - begun < 5  # of CPU time: done, the least of them takes a minute


@pytest.mark.rule("000-dsl-4")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("d.items.exists(e, e.id == d.wanted)", True),
        ("d.items.filter(e, e.price > 2 && length(e.name) > 0).all(e, startsWith_(e))", None),
        ("d.items.all(e, d.tags.exists(t, t == e.tag))", True),
        ("length(d.items)", 1000.0),
        ("d == d", True),
    ],
)
def test_work_in_proportion_to_its_data_is_done(text, value):
    items = [{"id": str(at), "price": at, "name": f"item {at}", "tag": "a"} for at in range(1000)]
    text = text.replace("startsWith_(e)", "e.name.startsWith('item')")
    found = OPEN.compile(text).value({"d": {"items": items, "wanted": "999", "tags": ["b", "a"]}, "l": [], "t": ""})
    assert found == (True if value is None else value)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters(codec=None), max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
@settings(max_examples=examples(300), deadline=None)
def test_a_json_value_has_a_fault_or_every_expression_reads_it_as_it_is(value):
    if fault := json_fault(value):
        place, keyword = fault
        assert keyword in {"nul", "number", "text"}
        assert scalar_fault(reduce(lambda there, step: there[step], place, value)) in {keyword, ""}
        return
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    assert OPEN.compile("d == [d][0]").value({"d": value, "l": [], "t": ""}) is True


@pytest.mark.rule("000-dsl-4")
@pytest.mark.parametrize(
    "text", ["l.all(x, x >= 0)", "l.exists_one(x, x == 1)", "d.a.exists(x, x < 0)", "d.m.all(x, true)"]
)
def test_a_loop_over_its_most_values_is_done_and_over_one_more_fails_before_it_begins(text):
    for more, ends in ((-1, True), (0, False), (90_000, False)):
        many = [float(each) for each in range(MOST_ROUNDS + more)]
        values = {"l": many, "d": {"a": many, "m": dict.fromkeys(map(str, many), 1.0)}, "t": ""}
        if ends:
            OPEN.compile(text).value(values)
            continue
        begun = time.process_time()
        with pytest.raises(EvaluationFailed, match="more work than is allowed"):
            OPEN.compile(text).value(values)
        assert time.process_time() - begun < 2


@pytest.mark.rule("000-dsl-4")
def test_the_loops_of_an_expression_share_their_rounds():
    half, two = [1.0] * (MOST_ROUNDS // 2), OPEN.compile("l.all(x, x > 0) && d.all(x, x > 0)")
    assert two.value({"l": half, "d": half[1:], "t": ""}) is True
    with pytest.raises(EvaluationFailed, match="more work than is allowed"):
        two.value({"l": half, "d": half, "t": ""})


@pytest.mark.rule("000-dsl-4")
@pytest.mark.parametrize(
    "text",
    [
        "length(l.filter(x, x > 1)) > 0",
        "length(d[0].filter(x, x > 1)) > 0",
        "d.all(y, length(y.filter(x, x > 1)) > 0)",
        "length(l.filter(x, x > 1).filter(x, x > 2)) > 0",
    ],
)
def test_a_filter_that_copies_too_much_fails_before_it_begins(text):
    def ends(length: int) -> bool:
        many = [float(each) for each in range(length)]
        begun = time.process_time()
        with suppress(EvaluationFailed):
            return bool(OPEN.compile(text).value({"l": many, "d": [many], "t": ""}))
        return time.process_time() - begun > 2

    assert (ends(300), ends(9999)) == (True, False)
