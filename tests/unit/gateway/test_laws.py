"""Laws of the gateway: it never raises, keeps order and counts, changes nothing, and agrees with a naive second one."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.gateway import gate, validate
from tests.kit.forms import examples
from tests.unit.gateway import naive
from tests.unit.gateway.kit import explain

pytestmark = pytest.mark.slow

TEXTS = st.sampled_from(
    ["prod_1", "prod_", "prod_a-b", "order_9", "SAVE-10", "SAVE 10", "", "a@b.c", "a@.b", "a@b.", "a@b..c", "a@@b.c", "+82 10",
     "02-123(4)", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123", "2026-01-02T03:04:05.1Z", "2026-01-02 03:04:05",
     "123e4567-e89b-12d3-A456-426614174000", "123e4567-e89b-12d3-a456-42661417400g", "x\n", "\u0661", "a@b.c\n", "q" * 201]
)  # fmt: skip
NUMBERS = st.sampled_from(
    [0, 1, 2, 5, 6, 9, 10, 11, 100, 101, -1, 1.0, 0.5, 99.5, 1e8, 1e9, 30, 10**30, float("inf"), float("nan"), -0.0]
)
VALUES = st.one_of(
    TEXTS, NUMBERS, st.booleans(), st.none(), st.just([]), st.just({}), st.just([{"product_id": "prod_1"}])
)
CARTS = st.lists(
    st.one_of(
        st.just({"product_id": "prod_1", "quantity": 2}),
        st.fixed_dictionaries({"product_id": VALUES, "quantity": VALUES}, optional={"price": VALUES, "coupon_code": VALUES}),
        VALUES,
    ),
    max_size=3,
)  # fmt: skip
FIELDS = st.sampled_from([*naive.TYPES, "cart_items", "shipping_address", "query", "content", "note"])
GOOD = {
    "product_id": "prod_1", "quantity": 2, "cart_items": [], "shipping_address": {}, "order_id": "order_9", "coupon_code": "SAVE-10",
    "query": "tea", "rating": 5, "price": 10,
}  # fmt: skip
KINDS = st.sampled_from([*naive.ALLOWED, *naive.ALLOWED, "DELETE_USER", "add_to_cart", None, 3, True])


@st.composite
def near_actions(draw: Any) -> dict[str, Any]:
    """Draw an action that is often valid: its required members, and a few changes."""
    kind = draw(KINDS)
    action: dict[str, Any] = {
        "action_type": kind,
        **{name: GOOD[name] for name in naive.REQUIRED.get(kind, [])[1:] if draw(st.integers(0, 9))},
    }
    if "cart_items" in action:
        action["cart_items"] = draw(CARTS)
    return {**action, **draw(st.dictionaries(FIELDS, VALUES, max_size=2))}


ENTRIES = st.sampled_from(
    [
        "prod_1",
        "prod_2",
        {"product_id": "prod_1", "price": 2},
        {"id": "prod_1"},
        {"id": 1, "price": True},
        None,
        3,
        "SAVE-10",
        {"code": "SAVE-10"},
    ]
)
INPUTS = st.fixed_dictionaries(
    {},
    optional={
        "context": st.sampled_from(
            [
                {"is_logged_in": True, "user_id": "u1", "user_type": "consumer"},
                {"is_logged_in": True, "user_id": ""},
                {"is_logged_in": True, "user_type": "seller"},
                {"user_type": "admin"},
                {"is_logged_in": "yes"},
                {},
            ]
        ),
        "products": st.lists(ENTRIES, max_size=4),
        "coupons": st.lists(ENTRIES, max_size=4),
    },
)
BOUNDS = st.fixed_dictionaries(
    {}, optional={"min": st.integers(0, 20), "max": st.integers(0, 200), "max_length": st.integers(0, 8)}
)
SCHEMAS = st.dictionaries(
    st.sampled_from(naive.ALLOWED),
    st.fixed_dictionaries(
        {},
        optional={
            "required_fields": st.lists(FIELDS, max_size=3),
            "field_types": st.dictionaries(FIELDS, st.sampled_from(["string", "number", "integer", "boolean", "array", "object"]), max_size=3),
            "constraints": st.dictionaries(FIELDS, BOUNDS, max_size=3),
        },
    ),
    min_size=1, max_size=5,
)  # fmt: skip


def is_finite(requests: list[Any]) -> bool:
    try:
        json.dumps(requests, allow_nan=False)
    except ValueError:
        return False
    return True


def agree(requests: list[Any], schema: Any, inputs: dict[str, Any]) -> None:
    reported = explain(requests, schema, inputs.get("context"), inputs.get("products"), inputs.get("coupons"))
    expected = naive.answer(requests, schema, **inputs)
    assert expected.pop("tags") == {each["action_index"]: each["tag"] for each in reported.pop("details")}
    assert expected == reported


@pytest.mark.rule(
    "gateway.6-1", "gateway.procedure.2-g", "gateway.procedure.4-1", "gateway.procedure.4-3", "gateway.5-3"
)
@given(st.lists(near_actions(), min_size=1, max_size=8).filter(is_finite), INPUTS)
@settings(max_examples=examples(2000))
def test_it_agrees_with_a_naive_gateway_of_the_text(requests: list[Any], inputs: dict[str, Any]) -> None:
    agree(requests, None, inputs)


@pytest.mark.rule("gateway.4-5", "gateway.procedure.2-c", "gateway.procedure.2-d", "gateway.procedure.2-f")
@given(st.lists(near_actions(), min_size=1, max_size=4).filter(is_finite), SCHEMAS, INPUTS)
@settings(max_examples=examples(1000))
def test_it_agrees_with_a_naive_gateway_on_given_schemas(
    requests: list[Any], schema: Any, inputs: dict[str, Any]
) -> None:
    agree(requests, schema, inputs)


PRICES = st.one_of(
    st.integers(0, 10**8), st.decimals(0, 10**8, places=2).map(float), st.decimals(0, 1, places=3).map(float)
)


@pytest.mark.rule("gateway.procedure.4-2")
@given(st.lists(PRICES, min_size=1, max_size=20), st.one_of(PRICES, st.none()))
@settings(max_examples=examples(2000))
def test_a_price_is_high_from_three_averages_of_the_prices_as_written(prices: list[float], price: float | None) -> None:
    """None: the very bound. A price that lies within a trillionth below it may count too."""
    bound = 3 * sum(Fraction(str(each)) for each in prices) / len(prices)
    price = min(float(bound), 1e8) if price is None else price
    reported = validate(
        [{"action_type": "GET_RECOMMENDATIONS", "price": price}], None, None, [{"price": each} for each in prices]
    )
    is_high = reported["validation_results"][0]["warnings"] == ["Unusually high price"]
    written = Fraction(str(price))
    if bound > 0 and (written >= bound or written < bound * (1 - Fraction(1, 10**11))):
        assert is_high is (written >= bound)
    assert bound > 0 or not is_high


ODD = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.just("\ud800"), st.just(10**3000), st.just(object())),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.tuples(inner), st.dictionaries(st.one_of(FIELDS, st.text(), st.integers(), st.none()), inner, max_size=4)),
    max_leaves=12,
)  # fmt: skip
ODD_ACTIONS = st.one_of(
    ODD,
    near_actions(),
    st.dictionaries(FIELDS, ODD, max_size=4).map(lambda more: {"action_type": "ADD_TO_CART", **GOOD, **more}),
)
ODD_SCHEMAS = st.one_of(
    ODD,
    SCHEMAS,
    st.dictionaries(st.sampled_from(naive.ALLOWED), st.dictionaries(st.sampled_from(["required_fields", "field_types", "constraints", "json_schema", "rules", "login", "user_types"]), ODD, max_size=3), max_size=3),
)  # fmt: skip


TAGS = {"MISSING_REQUIRED_FIELD", "UNKNOWN_ACTION_TYPE", "TYPE_MISMATCH", "VALUE_OUT_OF_RANGE", "INVALID_FORMAT",
        "BUSINESS_LOGIC_VIOLATION", "UNAUTHORIZED_ACTION", "SCHEMA_NOT_FOUND"}  # fmt: skip


@pytest.mark.rule(
    "gateway.outputs-1", "gateway.outputs-2", "gateway.outputs-3", "gateway.outputs-4", "gateway.outputs-5"
)
@pytest.mark.rule("gateway.6-1", "gateway.6-2", "gateway.6-3", "gateway.procedure.3-1", "gateway.procedure.3-2")
@pytest.mark.rule("gateway.procedure.4-4", "gateway.procedure.5-1")
@given(st.one_of(ODD, st.lists(ODD_ACTIONS, max_size=5)), ODD_SCHEMAS, ODD, ODD, ODD)
@settings(max_examples=examples(2000))
def test_it_never_raises_and_keeps_order_counts_and_inputs(
    requests: Any, schema: Any, context: Any, products: Any, coupons: Any
) -> None:
    before = repr_of(requests)
    reported = explain(requests, schema, context, products, coupons)
    assert before == repr_of(requests)
    actions = list(requests) if isinstance(requests, list | tuple) else []
    assert list(range(len(actions))) == [each["action_index"] for each in reported["validation_results"]]
    good = [each["is_valid"] for each in reported["validation_results"]]
    assert [id(each) for each, is_valid in zip(actions, good, strict=True) if is_valid] == [
        id(each) for each in reported["valid_actions"]
    ]
    assert [id(each) for each, is_valid in zip(actions, good, strict=True) if not is_valid] == [
        id(each["action"]) for each in reported["rejected_actions"]
    ]
    results, reasons = reported["validation_results"], [each["reason"] for each in reported["rejected_actions"]]
    assert {int, bool} >= {type(value) for each in results for value in (each["action_index"], each["is_valid"])}
    texts = [text for each in results for text in (*each["errors"], *each["warnings"])]
    assert {str} >= {type(text) for text in (*texts, *reasons)}
    assert all(
        error.startswith(reason)
        for error, reason in zip((e for each in results for e in each["errors"]), reasons, strict=True)
    )
    assert {each["tag"] for each in reported["details"]} <= TAGS
    assert all(len(each["errors"]) == (0 if each["is_valid"] else 1) for each in reported["validation_results"])
    assert all(each["is_valid"] or not each["warnings"] for each in reported["validation_results"])
    summary = reported["validation_summary"]
    assert (len(actions), sum(good)) == (summary["total_count"], summary["valid_count"])
    assert len(actions) - sum(good) == summary["rejected_count"] == len(reported["details"])
    assert ("error" in reported) is (not actions)
    assert {**reported, "details": None} == {**validate(requests, schema, context, products, coupons), "details": None}
    gate("ADD_TO_CART", requests, schema, user_context=context)


def repr_of(value: Any) -> str:
    """Return a text of a value; numbers of thousands of digits have none in Python."""
    try:
        return repr(value)
    except ValueError:
        return str(id(value))
