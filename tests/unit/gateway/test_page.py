"""docs/gateway.md: its first answer and its domain are what the gateway does."""

from __future__ import annotations

import json

import yaml

from oauthbroker.gateway import rulebook, validate
from oauthbroker.gateway.rules import _ORDERS
from oauthbroker.gateway.spec import ConditionSpec, FieldSpec
from oauthbroker.gateway.values import AMONG
from tests.kit.docs import code_blocks, page_text

PAGE = "docs/gateway.md"


def test_the_answer_of_the_page_is_the_answer() -> None:
    first, *_ = code_blocks(PAGE)
    names: dict[str, object] = {}
    exec(first, names)  # noqa: S102  (our own page)
    (printed,) = code_blocks(PAGE, "json")
    assert json.loads(printed) == names["answer"]


def test_the_domain_of_the_page_checks() -> None:
    (text,) = code_blocks(PAGE, "yaml")
    book = rulebook(yaml.safe_load(text)["spec"])
    booking = {"action_type": "BOOK_ROOM", "room": "single", "nights": 2, "total": 90}
    answer = validate(
        [booking, {**booking, "total": 101}], book, {"is_logged_in": True, "user_id": "u1", "credit": 100}
    )
    assert ["The credit is too small"] == [each["reason"] for each in answer["rejected_actions"]]
    assert [booking] == answer["valid_actions"]


def test_the_page_names_every_part_of_a_form_and_of_a_condition() -> None:
    names = {field.alias for spec in (FieldSpec, ConditionSpec) for field in spec.model_fields.values()}
    names |= {*_ORDERS, *AMONG, "equals", "notEquals"}
    assert set() == {name for name in names if f"`{name}`" not in page_text(PAGE)}
