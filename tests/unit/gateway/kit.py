"""What tests of the gateway share: a user, a valid action, and what each action requires."""

from __future__ import annotations

from functools import partial
from typing import Any

from oauthbroker.gateway import validate

explain = partial(validate, details=True)
USER: dict[str, Any] = {"is_logged_in": True, "user_id": "u1", "user_type": "consumer"}
CART: dict[str, Any] = {"action_type": "ADD_TO_CART", "product_id": "prod_1", "quantity": 2}
UUID = "123e4567-E89B-12d3-a456-426614174000"
REQUIRED: dict[str, dict[str, Any]] = {
    "ADD_TO_CART": {"product_id": "prod_1", "quantity": 1},
    "REMOVE_FROM_CART": {"product_id": "prod_1"},
    "CREATE_ORDER": {"cart_items": [], "shipping_address": "a street"},
    "CANCEL_ORDER": {"order_id": "order_1"},
    "APPLY_COUPON": {"coupon_code": "SAVE-10"},
    "SEARCH_PRODUCTS": {"query": "tea"},
    "GET_RECOMMENDATIONS": {},
    "WRITE_REVIEW": {"product_id": "prod_1", "rating": 5},
    "UPDATE_PROFILE": {},
}


def reported(action: Any, schema: Any = None, **inputs: Any) -> tuple[str, str, str | None]:
    """Return the text, tag and field of the failure of one action; empty texts for a valid one."""
    answer = explain([action], schema, **{"user_context": USER, **inputs})
    details = [(each["tag"], each["field"]) for each in answer["details"]]
    reasons = [each["reason"] for each in answer["rejected_actions"]]
    return (reasons[0], *details[0]) if details else ("", "", None)


def warned(*actions: Any, **inputs: Any) -> list[list[str]]:
    return [
        each["warnings"] for each in explain(list(actions), **{"user_context": USER, **inputs})["validation_results"]
    ]
