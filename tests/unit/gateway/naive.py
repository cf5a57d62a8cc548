"""A second gateway, written from the specification's text alone and its decisions (tests/CASES.md): slow, long, plain.

It knows the default schemas, and schemas by type in the specification's own form.
"""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from typing import Any

ALLOWED = ["ADD_TO_CART", "REMOVE_FROM_CART", "CREATE_ORDER", "CANCEL_ORDER", "APPLY_COUPON", "SEARCH_PRODUCTS",
           "GET_RECOMMENDATIONS", "WRITE_REVIEW", "UPDATE_PROFILE"]  # fmt: skip
REQUIRED = {
    "ADD_TO_CART": ["action_type", "product_id", "quantity"],
    "REMOVE_FROM_CART": ["action_type", "product_id"],
    "CREATE_ORDER": ["action_type", "cart_items", "shipping_address"],
    "CANCEL_ORDER": ["action_type", "order_id"],
    "APPLY_COUPON": ["action_type", "coupon_code"],
    "SEARCH_PRODUCTS": ["action_type", "query"],
    "GET_RECOMMENDATIONS": ["action_type"],
    "WRITE_REVIEW": ["action_type", "product_id", "rating"],
    "UPDATE_PROFILE": ["action_type"],
}
OWN_TYPES = {"SEARCH_PRODUCTS": {"query": "string"}, "WRITE_REVIEW": {"content": "string"}}  # fmt: skip
OWN_LENGTHS = {"SEARCH_PRODUCTS": ("query", 1, 200), "WRITE_REVIEW": ("content", None, 5000)}
TYPES = {"product_id": "string", "quantity": "integer", "price": "number", "order_id": "string", "coupon_code": "string",
         "timestamp": "string", "discount_rate": "number", "rating": "integer", "email": "string", "phone": "string"}  # fmt: skip
RANGES = {"quantity": (1, 100), "price": (0, 100000000), "discount_rate": (0, 100), "rating": (1, 5)}
LOGIN = {"CREATE_ORDER", "CANCEL_ORDER", "WRITE_REVIEW", "UPDATE_PROFILE"}
UUID = re.compile(r"\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z", re.IGNORECASE | re.ASCII)
XXX = re.compile(r"\A[A-Za-z0-9_-]+\Z")
EMAIL = re.compile(r"\A[^\s@\ufeff]+@[^\s@\ufeff]+\.[^\s@\ufeff]+\Z")
PHONE = re.compile(r"\A[0-9-+()]+\Z")
ISO8601 = re.compile(r"\A\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{3})?Z?\Z", re.ASCII)
COUPON = re.compile(r"\A[A-Za-z0-9-]+\Z")


def json_type(value: Any) -> str:
    if value is None:
        return "null"
    if value is True or value is False:
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number" if math.isfinite(value) else "no finite number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    if isinstance(value, dict):
        return "object"
    return "no JSON value"


def wrong_format(name: str, value: str) -> str | None:
    if name == "product_id" and not (UUID.match(value) or (value.startswith("prod_") and XXX.match(value[5:]))):
        return "productId"
    if name == "order_id" and not (UUID.match(value) or (value.startswith("order_") and XXX.match(value[6:]))):
        return "orderId"
    for known, pattern, shown in (("coupon_code", COUPON, "couponCode"), ("timestamp", ISO8601, "iso8601"), ("email", EMAIL, "email"), ("phone", PHONE, "phone")):  # fmt: skip
        if name == known and not pattern.match(value):
            return shown
    return None


def listed(value: Any, entries: Any, names: list[str]) -> bool:
    if not isinstance(entries, list):
        return False
    for entry in entries:
        candidate = entry
        if isinstance(entry, dict):
            candidate = entry.get(names[0], entry.get(names[1]))
        if isinstance(candidate, str) and candidate == value:
            return True
    return False


def range_text(low: Any, high: Any, got: Any, verb: str, unit: str = "") -> str | None:
    if (low is None or got >= low) and (high is None or got <= high):
        return None
    if low is None:
        return f"{verb} at most {high}{unit}, got {got}"
    if high is None:
        return f"{verb} at least {low}{unit}, got {got}"
    return f"{verb} between {low} and {high}{unit}, got {got}"


def failure(action: Any, schema: Any, context: dict[str, Any], products: Any, coupons: Any) -> tuple[str, str] | None:  # noqa: C901, PLR0911, PLR0912
    """Return (short text, tag) of the first failure."""
    kind = action.get("action_type") if isinstance(action, dict) else None
    if kind not in ALLOWED:  # a
        spelt = kind if isinstance(kind, str) else "null" if kind is None else json.dumps(kind)
        return f"Unknown action_type: {spelt}", "UNKNOWN_ACTION_TYPE"
    if schema is not None and kind not in schema:  # b
        return f"No schema defined for action_type: {kind}", "SCHEMA_NOT_FOUND"
    given = schema[kind] if schema is not None else {}
    for name in [*given.get("required_fields", []), *REQUIRED[kind]]:  # c
        if name not in action or action[name] is None:
            return f"Missing required field: {name}", "MISSING_REQUIRED_FIELD"
    items = action.get("cart_items") if kind == "CREATE_ORDER" else None
    cart = [(f"cart_items.{at}", each) for at, each in enumerate(items if isinstance(items, list) else [])]
    for place, entry in cart:
        for name in ["product_id", "quantity"] if isinstance(entry, dict) else []:
            if entry.get(name) is None:
                return f"{place}: Missing required field: {name}", "MISSING_REQUIRED_FIELD"
    for name, value in action.items():  # d
        own = given.get("field_types", {}) if schema is not None else OWN_TYPES.get(kind, {})
        cart_type = "array" if kind == "CREATE_ORDER" and name == "cart_items" else None
        for wanted in [cart_type, own.get(name), TYPES.get(name)]:
            actual = json_type(value)
            if wanted and wanted != actual and not (wanted == "number" and actual == "integer"):
                return f"Field {name} must be {wanted}, got {actual}", "TYPE_MISMATCH"
    for place, entry in cart:
        if not isinstance(entry, dict):
            return f"Field {place} must be object, got {json_type(entry)}", "TYPE_MISMATCH"
        for name, value in entry.items():
            wanted, actual = TYPES.get(name), json_type(value)
            if wanted and wanted != actual and not (wanted == "number" and actual == "integer"):
                return f"{place}: Field {name} must be {wanted}, got {actual}", "TYPE_MISMATCH"
    for before, fields in [("", action), *((f"{place}: ", entry) for place, entry in cart)]:  # e
        for name, value in fields.items():
            if isinstance(value, str) and (shown := wrong_format(name, value)):
                return f"{before}Field {name} must match format {shown}", "INVALID_FORMAT"
    for name, value in action.items():  # f
        own = given.get("constraints", {}).get(name, {})
        if schema is None and OWN_LENGTHS.get(kind, ("",))[0] == name:
            own = dict(zip(("min_length", "max_length"), OWN_LENGTHS[kind][1:], strict=True))
        text = None
        if json_type(value) in {"integer", "number"}:
            text = range_text(own.get("min"), own.get("max"), value, "be")
            text = text or range_text(RANGES.get(name, (None, None))[0], RANGES.get(name, (None, None))[1], value, "be")
        elif isinstance(value, str):
            text = range_text(own.get("min_length"), own.get("max_length"), len(value), "have", " characters")
        if text:
            return f"Field {name} must {text}", "VALUE_OUT_OF_RANGE"
    for place, entry in cart:
        for name, value in entry.items():
            if name in RANGES and (text := range_text(*RANGES[name], value, "be")):
                return f"{place}: Field {name} must {text}", "VALUE_OUT_OF_RANGE"
    if products is not None and "product_id" in action and not listed(action["product_id"], products, ["product_id", "id"]):  # fmt: skip
        return "Field product_id is not in available_products", "BUSINESS_LOGIC_VIOLATION"
    if coupons is not None and "coupon_code" in action and not listed(action["coupon_code"], coupons, ["coupon_code", "code"]):  # fmt: skip
        return "Field coupon_code is not in available_coupons", "BUSINESS_LOGIC_VIOLATION"
    for place, entry in cart:
        if products is not None and not listed(entry["product_id"], products, ["product_id", "id"]):
            return f"{place}: Field product_id is not in available_products", "BUSINESS_LOGIC_VIOLATION"
        if coupons is not None and "coupon_code" in entry and not listed(entry["coupon_code"], coupons, ["coupon_code", "code"]):  # fmt: skip
            return f"{place}: Field coupon_code is not in available_coupons", "BUSINESS_LOGIC_VIOLATION"
    if context.get("user_type") not in (None, "consumer", "seller"):
        return f"Unknown user_type: {context['user_type']}", "UNAUTHORIZED_ACTION"
    if kind in LOGIN and context.get("is_logged_in") is not True:
        return "Action requires a login", "UNAUTHORIZED_ACTION"
    if kind in LOGIN and not (isinstance(context.get("user_id"), str) and context["user_id"] != ""):
        return "Action requires the user_id of the login", "UNAUTHORIZED_ACTION"
    return None


def prices(entries: Any) -> list[Fraction]:
    """Return prices as they are written: 0.3 is three times 0.1."""
    return [
        Fraction(str(each["price"]))
        for each in entries or []
        if isinstance(each, dict) and json_type(each.get("price")) in {"integer", "number"} and each["price"] >= 0
    ]


def parts_of(action: Any) -> list[Any]:
    """Return a valid action, and the entries of its cart."""
    return [action, *(action["cart_items"] if action["action_type"] == "CREATE_ORDER" else [])]


def answer(requests: list[Any], schema: Any = None, context: Any = None, products: Any = None, coupons: Any = None) -> dict[str, Any]:  # fmt: skip
    """Return the four members of the answer, and the tags by index as `tags`."""
    failures = [failure(each, schema, context or {}, products, coupons) for each in requests]
    valid = [each for each, failed in zip(requests, failures, strict=True) if failed is None]
    known = prices(products) or prices([part for each in valid for part in parts_of(each)])
    results: list[dict[str, Any]] = []
    for index, (action, failed) in enumerate(zip(requests, failures, strict=True)):
        errors, warnings = [], []
        if failed is not None:
            errors = [
                failed[0] + (f". Allowed types: {', '.join(ALLOWED)}" if failed[1] == "UNKNOWN_ACTION_TYPE" else "")
            ]
        else:
            if any(part.get("quantity", 0) >= 10 for part in parts_of(action)):
                warnings.append("Large quantity detected")
            if sum(known) > 0 and any(each >= 3 * sum(known) / len(known) for each in prices(parts_of(action))):
                warnings.append("Unusually high price")
            if sum(json.dumps(each, sort_keys=True) == json.dumps(action, sort_keys=True) for each in valid) >= 5:
                warnings.append("Multiple similar actions")
        results.append({"action_index": index, "is_valid": failed is None, "errors": errors, "warnings": warnings})
    rejected = [
        {"action": action, "reason": failed[0]} for action, failed in zip(requests, failures, strict=True) if failed
    ]
    return {
        "validation_results": results,
        "valid_actions": valid,
        "rejected_actions": rejected,
        "validation_summary": {
            "total_count": len(requests),
            "valid_count": len(valid),
            "rejected_count": len(rejected),
            "warning_count": sum(len(each["warnings"]) for each in results),
        },
        "tags": {index: failed[1] for index, failed in enumerate(failures) if failed},
    }
