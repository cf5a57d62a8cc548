"""Any domain: the resource kind `ActionSchema`, its check at load, its rules, and JSON Schema as the second form."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from oauthbroker.config import load
from oauthbroker.gateway import rulebook, validate
from tests.unit.config.bundles import BROKER, HEAD, edited, loaded_with_values, problems_in, unmarked, write
from tests.unit.gateway.kit import CART, explain

WITH_PLUGIN = BROKER + "  plugins: [gateway]\n"
SPEC = """\
  fields:
    nights: {type: integer, min: 1, max: 30}
    email: {format: email}
  actions:
    BOOK_ROOM:
      requiredFields: [action_type, room, nights, total]
      fieldTypes: {room: string}
      constraints: {room: {enum: [single, double], maxLength: 9}}
      login: true
      rules:
        - {field: total, op: atMost, context: credit, text: The credit is too small}
        - {field: until, op: above, otherField: from, text: The stay ends before it begins}
        - {field: room, op: in, context: rooms, text: This room is not open to you}
    QUOTE:
      jsonSchema:
        type: object
        required: [city]
        additionalProperties: false
        properties:
          action_type: {}
          city: {type: string, pattern: "^[a-z]+$"}
          guests: {type: array, maxItems: 2, items: {type: object, required: [age], properties: {age: {type: integer, minimum: 0}}}}
    CLOSE: {userTypes: [seller]}
  rules:
    - {field: room, op: notEquals, value: attic, text: The attic is closed}
  warnings:
    - {field: nights, op: atLeast, value: 14, text: A long stay}
  sameActions: {count: 2, text: Twice the same}
"""
SCHEMA = HEAD + "kind: ActionSchema\nmetadata: {name: hotel}\nspec:\n" + SPEC
HOTEL = rulebook(yaml.safe_load(SPEC))
GUEST = {"is_logged_in": True, "user_id": "u1", "credit": 100, "rooms": ["single", {"id": "x"}]}
BOOKING = {"action_type": "BOOK_ROOM", "room": "single", "nights": 2, "total": 100}


def reason(action: Any, context: Any = GUEST) -> tuple[str, str]:
    answer = explain([action], HOTEL, context)
    if not answer["details"]:
        return "", ""
    return answer["rejected_actions"][0]["reason"], answer["details"][0]["tag"]


@pytest.mark.parametrize(
    ("changes", "context", "expected"),
    [
        ({}, {}, ("", "")),
        ({"action_type": "ADD_TO_CART"}, {}, ("Unknown action_type: ADD_TO_CART", "UNKNOWN_ACTION_TYPE")),
        ({"room": "suite"}, {}, ("Field room must be one of single, double", "VALUE_OUT_OF_RANGE")),
        ({"nights": 31}, {}, ("Field nights must be between 1 and 30, got 31", "VALUE_OUT_OF_RANGE")),
        ({"total": 100.5}, {}, ("The credit is too small", "BUSINESS_LOGIC_VIOLATION")),
        ({}, {"credit": "100"}, ("The credit is too small", "BUSINESS_LOGIC_VIOLATION")),
        ({}, {"credit": None}, ("The credit is too small", "BUSINESS_LOGIC_VIOLATION")),
        ({"total": True}, {}, ("The credit is too small", "BUSINESS_LOGIC_VIOLATION")),
        ({"total": []}, {}, ("The credit is too small", "BUSINESS_LOGIC_VIOLATION")),
        ({"from": "2026-01-02", "until": "2026-01-03"}, {}, ("", "")),
        ({"from": "2026-01-02", "until": "2026-01-02"}, {}, ("The stay ends before it begins", "BUSINESS_LOGIC_VIOLATION")),
        ({"from": 3, "until": "4"}, {}, ("The stay ends before it begins", "BUSINESS_LOGIC_VIOLATION")),
        ({"until": "2026-01-02"}, {}, ("", "")),
        ({"room": "double"}, {}, ("This room is not open to you", "BUSINESS_LOGIC_VIOLATION")),
        ({}, {"rooms": None}, ("This room is not open to you", "BUSINESS_LOGIC_VIOLATION")),
        ({}, {"rooms": "single"}, ("This room is not open to you", "BUSINESS_LOGIC_VIOLATION")),
        ({}, {"is_logged_in": False, "credit": 0}, ("Action requires a login", "UNAUTHORIZED_ACTION")),
    ],
)  # fmt: skip
@pytest.mark.rule("gateway.1-1")
def test_a_domain_has_its_own_actions_fields_and_rules(changes: Any, context: Any, expected: Any) -> None:
    assert expected == reason(BOOKING | changes, GUEST | context)


@pytest.mark.parametrize(
    ("op", "value", "holding", "failing"),
    [
        ("equals", 1, [1, 1.0], [True, "1", 2, None]),
        ("equals", True, [True], [1, "true", False]),
        ("notEquals", 1, [True, "1", 2], [1, 1.0, [], None]),
        ("below", 2, [1, 1.5], [2, 3, True, "1"]),
        ("atMost", 2, [2], [2.5, False]),
        ("above", "b", ["c"], ["b", "a", 9]),
        ("atLeast", 2, [2, 10**400], [1, float("nan"), float("inf")]),
        ("in", [1, "a", True], [1.0, "a", True], [2, False, "b", [], None]),
        ("notIn", [1, "a"], [True, 2, "b"], [1, "a", [], None]),
    ],
)
def test_a_comparison_holds_for_like_types_only_and_fails_closed(
    op: str, value: Any, holding: Any, failing: Any
) -> None:
    book = rulebook({"actions": {"A": {"rules": [{"field": "x", "op": op, "value": value, "text": "no"}]}}})
    actions = [{"action_type": "A", "x": each} for each in (*holding, *failing)]
    assert [True] * len(holding) + [False] * len(failing) == [
        each["is_valid"] for each in validate(actions, book)["validation_results"]
    ]


@pytest.mark.parametrize("closed", [None, "attic", {"attic": 1}, 3])
def test_a_list_that_is_no_list_fails_closed_also_where_a_value_must_not_be_in_it(closed: Any) -> None:
    rule = {"field": "x", "op": "notIn", "context": "closed", "text": "no"}
    book = rulebook({"actions": {"A": {"rules": [rule]}}})
    action = {"action_type": "A", "x": "attic"}
    assert [["no"], []] == [
        validate([action], book, {"closed": each})["validation_results"][0]["errors"] for each in (closed, ["cellar"])
    ]


def test_a_domain_has_its_own_warnings() -> None:
    long = BOOKING | {"nights": 14}
    results = validate([long, BOOKING, BOOKING], HOTEL, GUEST)["validation_results"]
    assert [["A long stay"], ["Twice the same"], ["Twice the same"]] == [each["warnings"] for each in results]


@pytest.mark.rule("gateway.goals-1")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"city": "rome"}, ("", "")),
        ({"city": "rome", "guests": [{"age": 1.0}]}, ("", "")),
        ({}, ("Missing required field: city", "MISSING_REQUIRED_FIELD")),
        ({"city": 3, "more": 1}, ("Field city must be string, got integer", "TYPE_MISMATCH")),
        ({"city": "Rome", "more": 1}, ("Field city must satisfy pattern", "INVALID_FORMAT")),
        ({"city": "rome", "more": 1}, ("Action must satisfy additionalProperties", "VALUE_OUT_OF_RANGE")),
        ({"city": "Rome", "guests": [{}]}, ("Missing required field: guests.0.age", "MISSING_REQUIRED_FIELD")),
        ({"city": "Rome", "guests": [{"age": True}]}, ("Field guests.0.age must be integer, got boolean", "TYPE_MISMATCH")),
        ({"city": "rome", "guests": [{"age": -1}]}, ("Field guests.0.age must satisfy minimum 0", "VALUE_OUT_OF_RANGE")),
        ({"city": "rome", "guests": [{"age": 1}] * 3}, ("Field guests must satisfy maxItems 2", "VALUE_OUT_OF_RANGE")),
    ],
)  # fmt: skip
def test_json_schema_is_the_second_form_and_its_failures_have_the_same_order(fields: Any, expected: Any) -> None:
    assert expected == reason({"action_type": "QUOTE", **fields})


def test_a_call_may_give_json_schema_by_type_and_the_limits_of_the_text_stay() -> None:
    schema = {"ADD_TO_CART": {"json_schema": {"required": ["note"], "properties": {"quantity": {"maximum": 5}}}}}
    assert validate([{**CART, "note": 1}], schema)["valid_actions"]
    for changes, text in (({}, "Missing required field: note"), ({"note": 1, "quantity": 6}, "Field quantity must satisfy maximum 5"),
                          ({"note": 1, "quantity": 0}, "Field quantity must be between 1 and 100, got 0"),
                          ({"quantity": "6"}, "Missing required field: note")):  # fmt: skip
        assert [text] == [each["reason"] for each in validate([{**CART, **changes}], schema)["rejected_actions"]]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"$ref": "file:///etc/passwd"}, "jsonSchema: Not a usable JSON Schema"),
        ({"$ref": "other.json"}, "jsonSchema: Not a usable JSON Schema"),
        ({"pattern": "(?=a)b"}, "jsonSchema: Not a usable JSON Schema"),
        ({"pattern": "((a{1,100}){1,100}){1,100}"}, "jsonSchema: Not a usable JSON Schema"),
        ({"format": "unknown-format"}, "jsonSchema: Not a usable JSON Schema"),
    ],
)
def test_a_json_schema_refers_to_no_other_document_and_has_linear_regexes(schema: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        rulebook({"actions": {"A": {"jsonSchema": schema}}})


def test_a_json_schema_reads_no_file_even_a_usable_schema(tmp_path: Path) -> None:
    """Without the refusal of other documents, the engine reads this one."""
    other = tmp_path / "other.json"
    other.write_text('{"type": "object"}', "utf-8")
    with pytest.raises(ValueError, match="jsonSchema: Not a usable JSON Schema"):
        rulebook({"actions": {"A": {"jsonSchema": {"$ref": other.as_uri()}}}})


def test_json_schema_without_its_extra_is_reported_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(ValueError, match=r"needs the extra `gateway`\. Run `pip install"):
        rulebook({"actions": {"A": {"jsonSchema": {}}}})
    assert validate([CART])["valid_actions"]


def test_a_bundle_has_action_schemas(tmp_path: Path) -> None:
    _, bundle = loaded_with_values(write(tmp_path, broker=WITH_PLUGIN, hotel=SCHEMA))
    book = rulebook(bundle.plugins["gateway"].of("ActionSchema")["hotel"].spec)
    assert validate([BOOKING], book, GUEST)["valid_actions"]
    assert {} == load(write(tmp_path / "b", broker=BROKER, hotel=SCHEMA)).plugins


PROBLEMS = {
    "a typo": ("nights: {type:", "nights: {@@tpye:", "unknown field", "the nearest known name is type"),
    "a type": ("room: string}", "room: @@text}", "unknown value", "use 'string', 'number', 'integer', 'boolean', 'array' or 'object'"),
    "a format": ("{format: email}", "{format: @@mail}", "unknown value", "use 'uuid', 'email', 'phone', 'iso8601', 'productId', 'orderId' or 'couponCode'"),
    "no other side": ("{field: nights, op: atLeast, value: 14,", "@@{field: nights, op: atLeast,", "not one other side", "write exactly one of value, otherField, context, list, timesAverage"),
    "two other sides": ("op: atLeast, value: 14,", "op: atLeast, value: 14, context: credit,", "not one other side", "write exactly one of value, otherField, context, list, timesAverage"),
    "a list without in": ("{field: room, op: notEquals, value: attic", "{field: room, op: @@notEquals, value: [attic]", "does not fit the other side", "write in or notIn for a list, and only for one"),
    "in without a list": ("{field: room, op: notEquals, value: attic", "{field: room, op: @@in, value: attic", "does not fit the other side", "write in or notIn for a list, and only for one"),
    "a wrong JSON Schema": ("      jsonSchema:\n        type: object", "      jsonSchema:\n        @@type: thing", "not a usable JSON Schema 2020-12", "correct it: no other documents, linear regexes"),
    "min above max": ("nights: {type: integer, min: 1, max: 30}", "nights: {type: integer, min: @@31, max: 30}", "greater than max", "write 30 or less"),
    "a bound of another type": ("maxLength: 9}", "maxLength: 9, min: @@1}", "not for this type", "remove it, or write type: number"),
    "a format of a number": ("nights: {type: integer,", "nights: {type: integer, format: @@uuid,", "not for this type", "remove it, or write type: string"),
    "two types": ("room: string}", "room: string, nights: @@string}", "types that exclude each other", "write one type for the field"),
    "a name twice": ("requiredFields: [action_type, room,", "requiredFields: [action_type, room, @@room,", "the same name again", "name it once"),
    "two forms": ("    QUOTE:\n      jsonSchema:\n        type", "    QUOTE:\n      requiredFields: [city]\n      jsonSchema:\n        @@type", "beside another schema", "write one of the two forms"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new"),
    [("enum: [single, double]", "enum: @@[]"), ("userTypes: [seller]", "userTypes: @@[]"), ("op: notEquals, value: attic", "op: notIn, value: @@[]")],
)  # fmt: skip
def test_an_empty_list_of_choices_is_refused_at_load_with_its_place(tmp_path: Path, old: str, new: str) -> None:
    text, place = unmarked(edited(SCHEMA, (old, new)))
    assert place in {(each.line, each.column) for each in problems_in(write(tmp_path, broker=WITH_PLUGIN, hotel=text))}


@pytest.mark.parametrize("change", PROBLEMS.values(), ids=PROBLEMS)
def test_each_problem_is_reported_at_load_with_its_place(tmp_path: Path, change: tuple[str, str, str, str]) -> None:
    old, new, what, hint = change
    text = edited(SCHEMA, (old, new))
    place = None
    if "@@" in text:
        text, place = unmarked(text)
    (problem,) = problems_in(write(tmp_path, broker=WITH_PLUGIN, hotel=text))
    assert (what, hint) == (problem.what, problem.hint)
    assert place in {None, (problem.line, problem.column)}
    assert str(tmp_path / "hotel.yaml") == problem.file


def test_a_schema_of_a_call_may_contradict_itself_and_rejects_then() -> None:
    schema = {"ADD_TO_CART": {"constraints": {"quantity": {"min": 3, "max": 2}}}}
    assert ["Field quantity must be between 3 and 2, got 2"] == validate([CART], schema)["validation_results"][0][
        "errors"
    ]
    with pytest.raises(ValueError, match=r"fields\.x\.min: Greater than max"):
        rulebook({"actions": {"A": {}}, "fields": {"x": {"min": 3, "max": 2}}})


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    text = edited(SCHEMA, ("op: above,", "op: over,"), ("value: 14", "value: [14]"), ("count: 2", "count: 1"))
    assert {"spec.actions.?.rules[1].op", "spec.sameActions.count"} <= {
        each.path for each in problems_in(write(tmp_path, broker=WITH_PLUGIN, hotel=text))
    }
