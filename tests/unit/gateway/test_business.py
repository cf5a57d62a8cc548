"""The rules of the gateway's specification on business rules, rights and warnings (tools/quality/action_rules.py)."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.gateway import gate, rulebook
from tests.unit.gateway.kit import CART, REQUIRED, USER, UUID, explain, reported, warned


@pytest.mark.rule(
    "gateway.5-1", "gateway.5-2", "gateway.inputs-4", "gateway.inputs-5", "gateway.procedure.2-g", "gateway.tags-6"
)
@pytest.mark.parametrize(
    ("entries", "known"),
    [(["prod_1"], True), ([{"product_id": "prod_1"}], True), ([{"id": "prod_1"}], True), (("prod_1",), True), ([], False), (["prod_2", None, 3, []], False),
     ([{"product_id": "prod_2", "id": "prod_1"}], False), ("prod_1", False), ({"prod_1": 1}, False)],
)  # fmt: skip
def test_a_product_or_coupon_is_among_those_given(entries: Any, known: bool) -> None:
    assert (not known) is bool(reported(CART, available_products=entries)[0])
    coupons = [{"coupon_code": "prod-1"} if each == {"product_id": "prod_1"} else {"code": "prod-1"} if each == {"id": "prod_1"} else each for each in entries] if isinstance(entries, list) else entries  # fmt: skip
    coupon = {"action_type": "APPLY_COUPON", "coupon_code": "prod-1"}
    if "prod_1" not in coupons:
        assert (not known) is bool(reported(coupon, available_coupons=coupons)[0])
    assert ("", "", None) == reported(coupon)
    review = {"action_type": "WRITE_REVIEW", "product_id": "prod_1", "rating": 5, "coupon_code": "prod-1"}
    assert known is ("available_products" not in reported(review, available_products=entries)[0]), "in every action"
    if "prod_1" not in coupons:
        assert known is ("available_coupons" not in reported(review, available_coupons=coupons)[0])


@pytest.mark.rule("gateway.5-1", "gateway.5-2", "gateway.inputs-4", "gateway.inputs-5")
@pytest.mark.parametrize(
    ("product", "coupon"), [(UUID.upper(), "save10"), (f"{UUID.lower()} ", "SAVE10 "), (["prod_1"], ["SAVE10"]), ({"product_id": {"id": UUID}}, {"code": None})]
)  # fmt: skip
def test_ids_and_codes_are_compared_letter_by_letter(product: Any, coupon: Any) -> None:
    assert "BUSINESS_LOGIC_VIOLATION" == reported({**CART, "product_id": UUID.lower()}, available_products=[product])[1]
    apply = {"action_type": "APPLY_COUPON", "coupon_code": "SAVE10"}
    assert "BUSINESS_LOGIC_VIOLATION" == reported(apply, available_coupons=[coupon])[1]


@pytest.mark.rule("gateway.5-1", "gateway.5-2", "gateway.tags-6")
def test_an_unavailable_value_is_reported_without_quoting_it() -> None:
    assert ("Field product_id is not in available_products", "BUSINESS_LOGIC_VIOLATION", "product_id") == reported(
        CART, available_products=[]
    )
    coupon = {"action_type": "APPLY_COUPON", "coupon_code": "SAVE"}
    assert ("Field coupon_code is not in available_coupons", "BUSINESS_LOGIC_VIOLATION", "coupon_code") == reported(
        coupon, available_coupons=[]
    )


@pytest.mark.rule("gateway.5-3", "gateway.inputs-3", "gateway.inputs-6", "gateway.procedure.2-g", "gateway.tags-7")
def test_rights_are_those_of_the_users_context() -> None:
    contexts: list[Any] = [None, {}, {"is_logged_in": False}, {"is_logged_in": "true"}, {"is_logged_in": 1}, [], "x"]
    for kind, fields in REQUIRED.items():
        needs = kind in {"CREATE_ORDER", "CANCEL_ORDER", "WRITE_REVIEW", "UPDATE_PROFILE"}
        for context in contexts:
            expected = ("Action requires a login", "UNAUTHORIZED_ACTION", None) if needs else ("", "", None)
            assert expected == reported({"action_type": kind, **fields}, user_context=context)
    book = rulebook({"actions": {"PUBLISH": {"userTypes": ["seller", "editor"]}}})
    assert ("", "", None) == reported({"action_type": "PUBLISH"}, book, user_context={"user_type": "seller"})
    others: list[Any] = ["consumer", None, ["seller"], {}]
    for user_type in others:
        refused = reported({"action_type": "PUBLISH"}, book, user_context={"user_type": user_type})
        assert ("Action requires user_type seller or editor", "UNAUTHORIZED_ACTION", None) == refused


@pytest.mark.rule("gateway.5-3", "gateway.inputs-3", "gateway.inputs-7", "gateway.inputs-8")
def test_a_login_has_a_user_id_and_a_user_is_of_a_known_type() -> None:
    cancel = {"action_type": "CANCEL_ORDER", "order_id": "order_1"}
    nobody: list[Any] = [None, "", 5, [], {}]
    for user_id in nobody:
        context = {"is_logged_in": True, "user_id": user_id}
        assert "Action requires the user_id of the login" == reported(cancel, user_context=context)[0]
        assert ("", "", None) == reported(CART, user_context=context), "no login is needed"
    for user_type in ("consumer", "seller", None):
        assert ("", "", None) == reported(cancel, user_context={**USER, "user_type": user_type})
    strange: list[Any] = ["admin", "", "Consumer", 5, ["seller"], {}]
    for user_type in strange:
        assert "UNAUTHORIZED_ACTION" == reported(CART, user_context={"user_type": user_type})[1]
    assert "Unknown user_type: admin" == reported(CART, user_context={"user_type": "admin"})[0]
    with pytest.raises(ValueError, match=r"actions\.A\.userTypes\.0: Not a type of spec\.userTypes"):
        rulebook({"userTypes": ["guest"], "actions": {"A": {"userTypes": ["gest"]}}})


ENTRY = {"product_id": "prod_1", "quantity": 2}
CARTS: list[tuple[Any, str, str, str]] = [
    (None, "Field cart_items.1 must be object, got null", "TYPE_MISMATCH", "cart_items.1"),
    ([ENTRY], "Field cart_items.1 must be object, got array", "TYPE_MISMATCH", "cart_items.1"),
    ({}, "cart_items.1: Missing required field: product_id", "MISSING_REQUIRED_FIELD", "cart_items.1.product_id"),
    ({**ENTRY, "coupon_code": "A B"}, "cart_items.1: Field coupon_code must match format couponCode", "INVALID_FORMAT", "cart_items.1.coupon_code"),
    ({**ENTRY, "coupon_code": "OTHER"}, "cart_items.1: Field coupon_code is not in available_coupons", "BUSINESS_LOGIC_VIOLATION", "cart_items.1.coupon_code"),
    ("prod_1", "Field cart_items.1 must be object, got string", "TYPE_MISMATCH", "cart_items.1"),
    ({"product_id": "prod_1"}, "cart_items.1: Missing required field: quantity", "MISSING_REQUIRED_FIELD", "cart_items.1.quantity"),
    ({**ENTRY, "quantity": 0}, "cart_items.1: Field quantity must be between 1 and 100, got 0", "VALUE_OUT_OF_RANGE", "cart_items.1.quantity"),
    ({**ENTRY, "quantity": "2"}, "cart_items.1: Field quantity must be integer, got string", "TYPE_MISMATCH", "cart_items.1.quantity"),
    ({**ENTRY, "product_id": "x"}, "cart_items.1: Field product_id must match format productId", "INVALID_FORMAT", "cart_items.1.product_id"),
    ({**ENTRY, "product_id": "prod_2"}, "cart_items.1: Field product_id is not in available_products", "BUSINESS_LOGIC_VIOLATION", "cart_items.1.product_id"),
]  # fmt: skip


@pytest.mark.rule("gateway.5-1", "gateway.5-2", "gateway.4-1", "gateway.3-2", "gateway.procedure.2-d")
@pytest.mark.parametrize(("entry", "text", "tag", "field"), CARTS)
def test_each_entry_of_a_cart_is_checked_as_an_action_is(entry: Any, text: str, tag: str, field: str) -> None:
    order = {"action_type": "CREATE_ORDER", "shipping_address": "a street", "cart_items": [ENTRY, entry]}
    lists: dict[str, Any] = {"available_products": ["prod_1"], "available_coupons": ["SAVE10"]}
    assert (text, tag, field) == reported(order, **lists)
    assert (text, tag, field) == reported(order, {"CREATE_ORDER": {}}, **lists), "a schema narrows"
    assert ("", "", None) == reported({**order, "cart_items": [ENTRY, {**ENTRY, "coupon_code": "SAVE10"}]}, **lists)


@pytest.mark.rule("gateway.5-1", "gateway.4-1", "gateway.4-5")
@pytest.mark.parametrize("cart", [{**ENTRY, "quantity": 1000}, {"0": ENTRY}, "prod_1", 3, True])
def test_no_cart_of_another_type_is_left_unjudged(cart: Any) -> None:
    order = {"action_type": "CREATE_ORDER", "shipping_address": "a street", "cart_items": cart}
    schemas: list[Any] = [None, {"CREATE_ORDER": {}}, {"CREATE_ORDER": {"field_types": {"cart_items": "object"}}}]
    for schema in schemas:
        assert ("TYPE_MISMATCH", "cart_items") == reported(order, schema)[1:]
    with pytest.raises(ValueError, match=r"actions\.A\.fieldTypes\.x: Types that exclude each other"):
        rulebook({"actions": {"A": {"items": {"x": ["y"]}, "fieldTypes": {"x": "object"}}}})
    with pytest.raises(ValueError, match=r"actions\.A\.items\.x: Types that exclude each other"):
        rulebook({"fields": {"x": {"type": "string"}}, "actions": {"A": {"items": {"x": ["y"]}}}})


@pytest.mark.rule("gateway.procedure.4-1", "gateway.procedure.4-4")
def test_a_large_quantity_is_warned_about_from_ten_and_only_if_valid() -> None:
    assert [[], ["Large quantity detected"], []] == warned(
        {**CART, "quantity": 9}, {**CART, "quantity": 10}, {**CART, "quantity": 101}
    )
    order = {"action_type": "CREATE_ORDER", "shipping_address": "a street"}
    carts = [[ENTRY], [ENTRY, {**ENTRY, "quantity": 10}], [{**ENTRY, "quantity": 10}] * 2, [{**ENTRY, "quantity": 101}]]
    assert [[], ["Large quantity detected"], ["Large quantity detected"], []] == warned(
        *({**order, "cart_items": cart} for cart in carts)
    )


@pytest.mark.rule("gateway.procedure.4-2", "gateway.procedure.4-4")
@pytest.mark.parametrize(
    ("prices", "products", "high"),
    [([30], [10], [30]), ([29.9], [10], []), ([30], [10, True, "9", None, -5, float("nan")], [30]), ([5], [0, 0], []), ([1], None, []),
     ([1, 1, 1, 6], None, []), ([1, 1, 1, 9], None, [9]), ([0, 0], None, []), ([1, 1, 1, 9, 10**9], None, [9])],
)  # fmt: skip
def test_a_price_of_three_averages_is_warned_about(prices: list[Any], products: Any, high: list[Any]) -> None:
    """The average is that of the available products, else of the valid actions."""
    actions = [
        {"action_type": "SEARCH_PRODUCTS", "query": f"q{index}", "price": each} for index, each in enumerate(prices)
    ]
    known = (
        None if products is None else [{"id": f"prod_{index}", "price": each} for index, each in enumerate(products)]
    )
    found = warned(*actions, available_products=known)
    assert high == [price for price, texts in zip(prices, found, strict=True) if texts == ["Unusually high price"]]
    order = {"action_type": "CREATE_ORDER", "shipping_address": "a street"}
    carts = [
        {**order, "cart_items": [{**ENTRY, "product_id": "prod_0", "price": each}], "note": index}
        for index, each in enumerate(prices)
    ]
    assert found == warned(*carts, available_products=known), "a price in a cart counts as that of an action"


@pytest.mark.rule("gateway.procedure.4-3", "gateway.procedure.4-4", "gateway.outputs-5")
def test_five_equal_actions_are_warned_about_each() -> None:
    same = ["Multiple similar actions"]
    reordered = dict(reversed(CART.items()))
    other = {**CART, "quantity": 3}
    assert [[]] * 6 == warned(*[CART] * 4, other, {**CART, "quantity": True})
    assert [same, same, same, same, [], same] == warned(*[CART] * 4, other, reordered)
    assert 5 == explain([CART] * 5)["validation_summary"]["warning_count"]
    twice = explain([{**CART, "quantity": 10}] * 5)
    assert [["Large quantity detected", *same]] * 5 == [each["warnings"] for each in twice["validation_results"]]
    assert 10 == twice["validation_summary"]["warning_count"], "warnings are counted, not actions"
    nested = [{**CART, "note": {"a": [1, {"b": 2, "c": 3}]}}, {**CART, "note": {"a": [1, {"c": 3, "b": 2}]}}]
    assert [same] * 6 == warned(*nested * 3)
    alike = [{**CART, "note": each} for each in (1, True, 1.0, "1", [1], None)]
    assert [[]] * 12 == warned(*alike * 2), "equal as they are written"
    assert [[]] * 5 == warned(*[{**CART, "quantity": 0}] * 5)


@pytest.mark.rule("gateway.goals-5")
def test_a_tool_runtime_asks_before_a_call() -> None:
    assert gate("ADD_TO_CART", {"product_id": "prod_1", "quantity": 10}).warnings == ("Large quantity detected",)
    refused = gate("ADD_TO_CART", {"product_id": "prod_1"})
    assert (False, "Missing required field: quantity", "MISSING_REQUIRED_FIELD") == (
        refused.allowed,
        refused.reason,
        refused.tag,
    )
    hidden = gate("CANCEL_ORDER", {"order_id": "order_1", "action_type": "GET_RECOMMENDATIONS"})
    assert (False, "UNAUTHORIZED_ACTION") == (hidden.allowed, hidden.tag)
    assert gate("CANCEL_ORDER", {"order_id": "order_1"}, user_context=USER).allowed
    names: list[Any] = ["", "cancel_order", None, ["CANCEL_ORDER"], {}]
    for name in names:
        assert "UNKNOWN_ACTION_TYPE" == gate(name, {"action_type": "GET_RECOMMENDATIONS"}).tag
    assert (False, "Arguments must be object, got string") == (
        (it := gate("CANCEL_ORDER", "order_1")).allowed,
        it.reason,
    )
