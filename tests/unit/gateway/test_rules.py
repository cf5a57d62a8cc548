"""The rules of the gateway's specification on schemas and answers, sentence by sentence (tools/quality/action_rules.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.gateway import validate
from oauthbroker.gateway.validation import default_rulebook
from tests.unit.gateway.kit import CART, REQUIRED, UUID, explain, reported

EXAMPLES = json.loads(Path(__file__).with_name("examples.json").read_text("utf-8"))
TYPES = ["ADD_TO_CART", "REMOVE_FROM_CART", "CREATE_ORDER", "CANCEL_ORDER", "APPLY_COUPON", "SEARCH_PRODUCTS",
         "GET_RECOMMENDATIONS", "WRITE_REVIEW", "UPDATE_PROFILE"]  # fmt: skip


@pytest.mark.rule("gateway.example-1", "gateway.example-2", "gateway.example-3", "gateway.example-4")
@pytest.mark.rule(
    "gateway.outputs-1", "gateway.outputs-2", "gateway.outputs-3", "gateway.outputs-4", "gateway.procedure.5-1"
)
@pytest.mark.rule("gateway.role-1", "gateway.goals-1", "gateway.inputs-1", "gateway.inputs-3")
@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_the_printed_examples_are_answered_as_printed(example: Any) -> None:
    answer = validate(**example["input"])
    assert json.dumps(example["output"]) == json.dumps(answer), "true is not 1, and members are in the printed order"
    assert answer == validate(tuple(example["input"].pop("action_requests")), **example["input"])


@pytest.mark.rule(
    "gateway.1-1", "gateway.3-1", "gateway.2-1", "gateway.2-2", "gateway.procedure.1-2", "gateway.inputs-2"
)
def test_the_nine_actions_are_valid_with_their_required_members_and_invalid_without_them() -> None:
    assert TYPES == list(default_rulebook().spec.actions)
    for kind, fields in REQUIRED.items():
        action = {"action_type": kind, **fields}
        assert ("", "", None) == reported(action)
        for name in fields:
            missing = {each: value for each, value in action.items() if each != name}
            schemas: list[Any] = [{}, {"required_fields": ["action_type"]}, {"json_schema": {}}]
            for schema in (None, *({kind: each} for each in schemas)):
                assert (f"Missing required field: {name}", "MISSING_REQUIRED_FIELD", name) == reported(missing, schema)


@pytest.mark.rule("gateway.1-2", "gateway.1-3", "gateway.3-1", "gateway.procedure.2-a", "gateway.tags-2")
@pytest.mark.parametrize(
    ("kind", "shown"),
    [("DELETE_USER", "DELETE_USER"), ("add_to_cart", "add_to_cart"), ("", ""), (None, "null"), (3, "3"), (True, "true"),
     ([], "array"), ({}, "object"), (["ADD_TO_CART"], "array"), ("ADD_TO_CART ", "ADD_TO_CART "), ("ADD_TO_CART\0", "ADD_TO_CART�"),
     ("\uff21DD_TO_CART", "\uff21DD_TO_CART"), ("a\nb\x1b[0m", "a�b�[0m"), ("x" * 99, "x" * 64 + "…")],
)  # fmt: skip
def test_an_unknown_type_is_refused(kind: Any, shown: str) -> None:
    assert (f"Unknown action_type: {shown}", "UNKNOWN_ACTION_TYPE", "action_type") == reported({"action_type": kind})


@pytest.mark.rule("gateway.1-3", "gateway.inputs-1")
@pytest.mark.parametrize("action", [{}, None, 3, "ADD_TO_CART", [], ["ADD_TO_CART"], {"type": "ADD_TO_CART"}])
def test_an_action_without_a_type_is_of_an_unknown_type(action: Any) -> None:
    assert ("Unknown action_type: null", "UNKNOWN_ACTION_TYPE", "action_type") == reported(action)


@pytest.mark.rule("gateway.procedure.2-b", "gateway.tags-8", "gateway.procedure.1-2", "gateway.1-1", "gateway.inputs-2")
def test_a_type_without_a_schema_is_refused() -> None:
    schema = {"ADD_TO_CART": {"required_fields": ["action_type"]}, "DELETE_USER": {}}
    missing = ("No schema defined for action_type: CANCEL_ORDER", "SCHEMA_NOT_FOUND", "action_type")
    assert ("", "", None) == reported(CART, schema)
    assert missing == reported({"action_type": "CANCEL_ORDER", "order_id": "order_1"}, schema)
    none: list[Any] = [{}, [], "", 0, False, ["CANCEL_ORDER"], "ActionSchema/default"]
    for each in none:
        assert missing == reported({"action_type": "CANCEL_ORDER"}, each), "only null is no schema at all"
    assert "UNKNOWN_ACTION_TYPE" == reported({"action_type": "DELETE_USER"}, schema)[1]


@pytest.mark.rule("gateway.procedure.2-b")
@pytest.mark.parametrize(
    "entry",
    [None, [], "x", {"required_fields": "quantity"}, {"field_types": {"quantity": "int"}}, {"constraints": {"quantity": {"mni": 1}}},
     {"requiredFields": []}, {"required_fields": [], "more": 1}, {"constraints": {"quantity": {"min": float("nan")}}},
     {"required_fields": ["quantity", 5]}, {"required_fields": [""]}, {"required_fields": None}, {"constraints": {"quantity": 5}},
     {"json_schema": {"type": "nothing"}}, {"json_schema": {}, "required_fields": ["quantity"]}],
)  # fmt: skip
def test_a_malformed_schema_is_no_schema_and_those_of_other_types_hold(entry: Any) -> None:
    schema = {"ADD_TO_CART": entry, "SEARCH_PRODUCTS": {"constraints": {"query": {"max_length": 1}}}}
    assert "SCHEMA_NOT_FOUND" == reported(CART, schema)[1]
    assert "VALUE_OUT_OF_RANGE" == reported({"action_type": "SEARCH_PRODUCTS", "query": "tea"}, schema)[1]


@pytest.mark.rule("gateway.2-3", "gateway.goals-2", "gateway.procedure.2-c", "gateway.tags-1")
def test_the_first_missing_field_in_the_order_of_the_schema_is_told() -> None:
    schema = {"ADD_TO_CART": {"required_fields": ["action_type", "z", "a"]}}
    assert ("Missing required field: z", "MISSING_REQUIRED_FIELD", "z") == reported(CART, schema)
    assert ("Missing required field: a", "MISSING_REQUIRED_FIELD", "a") == reported({**CART, "z": 1}, schema)
    for name in ("product_id", "quantity"):
        assert (f"Missing required field: {name}", "MISSING_REQUIRED_FIELD", name) == reported({**CART, name: None})
    order = {"action_type": "CREATE_ORDER", **REQUIRED["CREATE_ORDER"], "shipping_address": None}
    assert "Missing required field: shipping_address" == reported(order)[0], "it has no type that null could miss"
    assert ("Field price must be number, got null", "TYPE_MISMATCH", "price") == reported({**CART, "price": None})
    empty: list[Any] = ["", [], {}, 0, False]
    for value in empty:
        assert ("", "", None) == reported({**order, "shipping_address": value}), "an empty value is there"
        assert ("", "", None) == reported({**CART, "배송": value}, {"ADD_TO_CART": {"required_fields": ["배송"]}})
    lengths = {"CREATE_ORDER": {"constraints": {"shipping_address": {"min_length": 1}}}}
    assert "VALUE_OUT_OF_RANGE" == reported({**order, "shipping_address": ""}, lengths)[1]
    filled = {"CREATE_ORDER": {"json_schema": {"properties": {"cart_items": {"minItems": 1}}}}}
    assert "VALUE_OUT_OF_RANGE" == reported({**order, "shipping_address": "a street"}, filled)[1]
    nested = {"action_type": "ADD_TO_CART", "product_id": "prod_1", "details": {"quantity": 1}}
    assert "Missing required field: quantity" == reported(nested)[0]


@pytest.mark.rule("gateway.procedure.2-d", "gateway.goals-3", "gateway.tags-3")
def test_each_type_takes_its_own_values_only() -> None:
    values = {"string": "x", "number": 1.5, "integer": 1, "boolean": True, "array": [], "object": {}, "null": None}
    for wanted in list(values)[:-1]:
        schema = {"ADD_TO_CART": {"field_types": {"note": wanted}}}
        for actual, value in values.items():
            fits = actual == wanted or (wanted, actual) == ("number", "integer")
            text = "" if fits else f"Field note must be {wanted}, got {actual}"
            assert text == reported({**CART, "note": value}, schema)[0]
    names = {"ADD_TO_CART": {"field_types": {"a": "string", "b": "string"}}}
    assert ["b", "a"] == [reported({**CART, **each}, names)[2] for each in ({"b": 1, "a": 1}, {"a": 1, "b": 1})]


PRINTED_TYPES = {"product_id": "string", "quantity": "integer", "price": "number", "order_id": "string", "coupon_code": "string",
                 "timestamp": "string", "discount_rate": "number", "rating": "integer"}  # fmt: skip


@pytest.mark.rule(
    "gateway.3-2",
    "gateway.3-3",
    "gateway.3-4",
    "gateway.3-5",
    "gateway.3-6",
    "gateway.3-7",
    "gateway.4-3",
    "gateway.4-4",
)
@pytest.mark.parametrize(("field", "wanted"), PRINTED_TYPES.items())
def test_each_printed_field_has_its_type_in_every_action_and_with_any_schema(field: str, wanted: str) -> None:
    values: list[Any] = ["5", 5, 5.5, True, None, ["5"], {"value": 5}]
    names = ["string", "integer", "number", "boolean", "null", "array", "object"]
    schemas: list[Any] = [None, {"GET_RECOMMENDATIONS": {}}]
    for schema in schemas:
        for actual, value in zip(names, values, strict=True):
            found = reported({"action_type": "GET_RECOMMENDATIONS", field: value}, schema)
            if actual == wanted or (wanted, actual) == ("number", "integer"):
                assert "TYPE_MISMATCH" != found[1]
            else:
                assert (f"Field {field} must be {wanted}, got {actual}", "TYPE_MISMATCH", field) == found


@pytest.mark.rule("gateway.3-3", "gateway.3-4", "gateway.procedure.2-d")
@pytest.mark.parametrize(
    ("field", "value", "text"),
    [("quantity", True, "Field quantity must be integer, got boolean"), ("quantity", 1.0, "Field quantity must be integer, got number"),
     ("quantity", "2", "Field quantity must be integer, got string"), ("price", "9", "Field price must be number, got string"),
     ("price", float("nan"), "Field price must be number, got no finite number"),
     ("price", float("inf"), "Field price must be number, got no finite number"),
     ("product_id", 5, "Field product_id must be string, got integer"), ("product_id", b"prod_1", "Field product_id must be string, got no JSON value")],
)  # fmt: skip
def test_a_wrong_type_is_reported_as_printed(field: str, value: Any, text: str) -> None:
    assert (text, "TYPE_MISMATCH", field) == reported({**CART, field: value})


FORMATS = {
    "product_id": (["prod_xxx", "prod_A-1_b", UUID], ["prod_", "prod 1", "prod_1\n", "Prod_1", UUID[:-1], UUID + "0", "prod_é"]),
    "order_id": (["order_xxx", UUID], ["order_", "prod_1", "order_1 "]),
    "coupon_code": (["SAVE10", "a-1", "-"], ["", "SAVE_10", "SAVE 10", "SAVÉ", "SAVE10\n", "\u0661"]),
    "timestamp": (["2024-99-99T99:99:99Z", "2026-01-02T03:04:05", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123Z"],
                  ["2026-01-02", "2026-01-02T03:04:05.12Z", "2026-01-02T03:04:05+09:00", "2026-01-02T03:04:05Z\n", "٢026-01-02T03:04:05"]),
    "email": (["a@b.c", "a.b@c.d.e", "é@b.c", "a@b..c", "a@..b"], ["", "a@b", "a@.b", "a@b.", "a@@b.c", "a b@c.d", "@b.c", "a@b.c\n", "a\x1cb@c.d", "a@b\x85c.d"]),
    "phone": (["02-123", "+82(2)1"], ["", "02 123", "1a", "1\n", "\u0661"]),
}  # fmt: skip


@pytest.mark.rule("gateway.3-2", "gateway.3-5", "gateway.3-6", "gateway.3-7", "gateway.procedure.2-e", "gateway.tags-5")
@pytest.mark.parametrize("field", FORMATS)
def test_formats_are_the_printed_ones_of_the_whole_text(field: str) -> None:
    good, bad = FORMATS[field]
    action = {"action_type": "GET_RECOMMENDATIONS"}
    assert [] == [each for each in good if reported({**action, field: each})[1]]
    assert [] == [each for each in bad if reported({**action, field: each})[1:] != ("INVALID_FORMAT", field)]


@pytest.mark.rule(
    "gateway.4-1",
    "gateway.4-2",
    "gateway.4-3",
    "gateway.4-4",
    "gateway.goals-4",
    "gateway.procedure.2-f",
    "gateway.tags-4",
)
@pytest.mark.parametrize(
    ("field", "low", "high"), [("quantity", 1, 100), ("price", 0, 100_000_000), ("discount_rate", 0, 100), ("rating", 1, 5)]
)  # fmt: skip
def test_the_printed_ranges_hold_at_both_ends(field: str, low: int, high: int) -> None:
    action = {"action_type": "GET_RECOMMENDATIONS"}
    at_ends: list[float] = [low, high]
    for value in at_ends:
        assert ("", "", None) == reported({**action, field: value})
    parts = [low - 0.01, high + 0.01] if field in {"price", "discount_rate"} else []
    for value in (low - 1, high + 1, *parts, -(10**20), 10**20):
        text = f"Field {field} must be between {low} and {high}, got {value}"
        assert (text, "VALUE_OUT_OF_RANGE", field) == reported({**action, field: value})


@pytest.mark.rule("gateway.4-5", "gateway.procedure.2-f")
@pytest.mark.parametrize(
    ("constraint", "value", "text"),
    [({"min": 2}, 1, "Field n must be at least 2, got 1"), ({"max": 2}, 3, "Field n must be at most 2, got 3"),
     ({"min": 0.5, "max": 2}, 0.25, "Field n must be between 0.5 and 2, got 0.25"), ({"max": 2}, 10**99, "Field n must be at most 2, got a number of 329 bits"),
     ({"min_length": 2, "max_length": 3}, "abcd", "Field n must have between 2 and 3 characters, got 4"), ({"min_length": 1}, "", "Field n must have at least 1 characters, got 0"),
     ({"min": 0}, -1, "Field n must be at least 0, got -1"), ({"max_length": 0}, "x", "Field n must have at most 0 characters, got 1"),
     ({"max_length": 2}, "\U0001f600\U0001f600", ""), ({"max_length": 1}, "e\u0301", "Field n must have at most 1 characters, got 2"),
     ({"min": 2, "max": 3}, True, ""), ({"min": 2, "max": 3}, "9", ""), ({"min_length": 2}, ["a"], ""),  # bounds hold for numbers, lengths for texts
     ({"enum": ["a", 1]}, True, "Field n must be one of a, 1"), ({"enum": ["a", 1]}, 1.0, ""), ({"enum": ["a"]}, [], "Field n must be one of a"),
     ({"enum": ["a"]}, None, "Field n must be one of a"), ({"enum": ["a"]}, "A", "Field n must be one of a"), ({"enum": [0]}, False, "Field n must be one of 0")],
)  # fmt: skip
def test_bounds_lengths_and_words_of_a_schema_hold(constraint: Any, value: Any, text: str) -> None:
    assert text == reported({**CART, "n": value}, {"ADD_TO_CART": {"constraints": {"n": constraint}}})[0]


@pytest.mark.rule("gateway.4-5", "gateway.2-1")
def test_a_schema_narrows_the_limits_of_the_text_and_never_widens_them() -> None:
    def schema(**bounds: int) -> Any:
        return {"ADD_TO_CART": {"field_types": {"quantity": "number"}, "constraints": {"quantity": bounds}}}

    assert (
        "Field quantity must be between 1 and 100, got 150" == reported({**CART, "quantity": 150}, schema(max=1000))[0]
    )
    assert "Field quantity must be at most 10, got 50" == reported({**CART, "quantity": 50}, schema(max=10))[0]
    assert "Field quantity must be integer, got number" == reported({**CART, "quantity": 1.5}, schema())[0]
    assert (
        "INVALID_FORMAT"
        == reported(
            {**CART, "product_id": "a@b.c"}, {"ADD_TO_CART": {"constraints": {"product_id": {"format": "email"}}}}
        )[1]
    )
    assert (
        "Missing required field: quantity"
        == reported({"action_type": "ADD_TO_CART", "product_id": "prod_1"}, schema())[0]
    )
    assert ("", "", None) == reported({"action_type": "SEARCH_PRODUCTS", "query": 5}, {"SEARCH_PRODUCTS": {}}), (
        "ours gives way"
    )
    order = {"action_type": "CREATE_ORDER", **REQUIRED["CREATE_ORDER"]}
    assert "UNAUTHORIZED_ACTION" == reported(order, {"CREATE_ORDER": {}}, user_context=None)[1]


ORDER = [
    ({"action_type": "NO"}, "UNKNOWN_ACTION_TYPE"),
    ({"action_type": "CANCEL_ORDER"}, "SCHEMA_NOT_FOUND"),
    ({"note": 3, "order_id": "x", "rating": 9, "product_id": "prod_9"}, "MISSING_REQUIRED_FIELD"),
    ({"quantity": 1, "order_id": "x", "rating": 9, "product_id": "prod_9", "note": 3}, "TYPE_MISMATCH"),
    ({"quantity": 1, "order_id": "x", "rating": 9, "product_id": "prod_9"}, "INVALID_FORMAT"),
    ({"quantity": 1, "rating": 9, "product_id": "prod_9"}, "VALUE_OUT_OF_RANGE"),
    ({"quantity": 1, "rating": 5, "product_id": "prod_9"}, "BUSINESS_LOGIC_VIOLATION"),
    ({"quantity": 1, "rating": 5, "product_id": "prod_1"}, "UNAUTHORIZED_ACTION"),
]


@pytest.mark.rule("gateway.6-1", "gateway.role-2", "gateway.procedure.2-a", "gateway.procedure.2-g")
@pytest.mark.parametrize(("fields", "tag"), ORDER, ids=[tag for _, tag in ORDER])
def test_of_several_failures_the_first_in_the_printed_order_is_told(fields: Any, tag: str) -> None:
    """Each row has the problems of all rows below it."""
    schema = {"ADD_TO_CART": {"required_fields": ["quantity"], "field_types": {"note": "string"}, "login": True}}
    action = {"action_type": "ADD_TO_CART", **fields}
    answer = explain([action], schema, available_products=["prod_1"])
    assert [tag] == [each["tag"] for each in answer["details"]]
    assert [1] == [len(each["errors"]) for each in answer["validation_results"]]


@pytest.mark.rule(
    "gateway.6-2",
    "gateway.6-3",
    "gateway.procedure.3-1",
    "gateway.procedure.3-2",
    "gateway.outputs-5",
    "gateway.outputs-1",
)
def test_actions_are_checked_one_by_one_and_counted() -> None:
    actions = [CART, {"action_type": "X"}, {**CART, "quantity": 12}, {**CART, "quantity": 0}]
    answer = validate(actions)
    assert [True, False, True, False] == [each["is_valid"] for each in answer["validation_results"]]
    assert [0, 1, 2, 3] == [each["action_index"] for each in answer["validation_results"]]
    assert [actions[0], actions[2]] == answer["valid_actions"]
    assert [actions[1], actions[3]] == [each["action"] for each in answer["rejected_actions"]]
    assert {"total_count": 4, "valid_count": 2, "rejected_count": 2, "warning_count": 1} == answer["validation_summary"]


@pytest.mark.rule("gateway.procedure.1-1")
@pytest.mark.parametrize(
    "requests", [[], (), None, {}, "", "ADD_TO_CART", b"[{}]", CART, 0, 3, True, {1, 2}, iter([CART])]
)
def test_no_array_and_an_empty_one_are_an_error_and_nothing_is_valid(requests: Any) -> None:
    summary = {"total_count": 0, "valid_count": 0, "rejected_count": 0, "warning_count": 0}
    nothing = {"validation_results": [], "valid_actions": [], "rejected_actions": [], "validation_summary": summary}
    assert {**nothing, "error": "action_requests must be a non-empty array"} == validate(requests)
