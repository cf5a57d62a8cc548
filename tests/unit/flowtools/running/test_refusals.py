"""What a caller sends and no flow takes: refused with its place, before anything is stored; what a caller asks for and
may not have or does not exist: told, and never an error of the server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from oauthbroker.flowtools.entities.database import table_of
from oauthbroker.flowtools.running.effects import sent
from oauthbroker.flowtools.running.ports import AnswerLost, Effect, NotSent, Ports
from oauthbroker.flowtools.running.requests import BrokerRequests, _answer
from oauthbroker.flowtools.serving.http_calls import answer
from oauthbroker.flowtools.specification.failures import Actor, FlowFailed
from oauthbroker.flowtools.specification.spec import Node
from tests.unit.flowtools.kit import chain, written
from tests.unit.flowtools.run_kit import BEGIN, OTHER, STAFF, UUID, Remembering, World, log, world_in

SECRET = "s3cret-value"
PAYS = Node(id="a", type="payment", operation="charge", config={"provider": "acme"}, path=())
LISTED: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "minLength": 3, "not": {"const": "admin"}},
        "n": {"type": "number", "maximum": 5},
        "tags": {"type": "array", "items": {"type": "object", "required": ["a/b"]}},
    },
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return world_in(tmp_path)


@pytest.mark.rule("000-contract-1", "000-dsl-5")
@pytest.mark.parametrize(
    ("data", "errors"),
    [
        ({}, [("/id", "required")]),
        ({"id": "abc", "n": 7}, [("/n", "maximum")]),
        ({"id": SECRET, "n": "7", "tags": [{}]}, [("/n", "type"), ("/tags/0/a~1b", "required")]),
        ({"id": "abc", "other": SECRET}, [("/other", "additionalProperties")]),
        ({"id": "admin\0"}, [("/id", "nul")]),
        ({"id": "a\0\0"}, [("/id", "nul")]),
        ({"id": "abc", "tags": [{"x\0y": 1}]}, [("/tags/0", "nul")]),
        ({"id": "abc", "n": 10**400}, [("/n", "number")]),
        ({"id": "abc", "n": -(10**400)}, [("/n", "number")]),
        ({"id": "abc", "n": float("nan")}, [("/n", "number")]),
        ({"id": "abc", "n": float("inf")}, [("/n", "number")]),
        ({"id": "\ud800"}, [("/id", "text")]),
        ([], [("", "type")]),
        ({"id": "abc", "n": b"x"}, [("/n", "type")]),
    ],
)
def test_a_refused_input_tells_each_place_and_rule_and_no_value(
    world: World, data: Any, errors: list[tuple[str, str]]
) -> None:
    flow = world.flow({"a": BEGIN, "b": log("x")}, chain("a", "b"), input=LISTED)
    result = world.runs.call(flow, data, STAFF)
    assert ("failed", "inputInvalid", None) == (result.state, result.code, result.run)
    assert errors == sorted(result.errors)
    response = answer(result)
    reported = json.loads(bytes(response.body))
    assert (400, "requestInvalid") == (response.status_code, reported["code"])
    assert errors == sorted((each["pointer"], each["keyword"]) for each in reported["errors"])
    assert all(pointer in reported["detail"] for pointer, _ in errors)
    assert SECRET not in str(reported)


def test_a_refused_input_tells_a_bounded_number_of_places(world: World) -> None:
    flow = world.flow({"a": BEGIN, "b": log("x")}, chain("a", "b"), input=LISTED)
    result = world.runs.call(flow, {"id": "abc", "tags": [{}] * 5000}, STAFF)
    assert len(result.errors) == 20
    assert len(result.message or "") < 1000


@pytest.mark.rule("000-top-idempotency")
@pytest.mark.parametrize(
    ("key", "data"),
    [
        ("input.note", {"id": "a"}),
        ("input.note", {"id": "a", "note": None}),
        ("input.open", {"id": "a", "open": 7}),
        ("input.open", {"id": "a", "open": ["x"]}),
        ("input.open", {"id": "a", "open": True}),
        ("concat('k', input.note)", {"id": "a"}),
        ("concat('k', input.open.member)", {"id": "a", "open": 3}),
    ],
)
def test_a_key_that_is_no_text_is_refused_at_its_place_and_takes_no_key(
    world: World, key: str, data: dict[str, Any]
) -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "note": {"type": ["string", "null"]}, "open": {}},
    }
    flow = world.flow({"a": BEGIN, "b": log("x")}, chain("a", "b"), input=schema, idempotencyKey=key)
    first, second = (world.runs.call(flow, data, Actor(id=each, roles=frozenset())) for each in ("u1", "u2"))
    for each in (first, second):
        assert ("failed", "inputInvalid", None) == (each.state, each.code, each.run)
        ((pointer, keyword),) = each.errors
        assert "idempotencyKey" == keyword
        assert pointer == "/" + key.rpartition("input.")[2].rstrip(")").replace(".", "/")
        assert 400 == answer(each).status_code
    assert [] == world.texts()


READ = ("read", {"entity": "Order", "filter": {"id": "input.id"}})


@pytest.mark.rule("000-types-read")
@pytest.mark.parametrize(
    "after",
    [
        {"b": ("assert", {"expression": "order.total > 0"})},
        {"b": ("transform", {"expression": "a.total * 2"})},
        {"b": ("if", {"expression": "order.total > 1"})},
        {
            "b": BEGIN,
            "c": ("write", {"entity": "Log", "operation": "create", "fields": {"text": "concat(order.total)"}}),
        },
    ],
)
def test_a_member_of_a_row_that_does_not_exist_is_not_found(world: World, after: dict[str, Any]) -> None:
    edges: list[Any] = chain("a", *after)
    if after["b"][0] == "if":
        after, edges = {**after, "y": BEGIN, "n": BEGIN}, [*edges, ("b", "y", "true"), ("b", "n", "false")]
    result = world.runs.call(world.flow({"a": READ, **after}, edges), {"id": OTHER}, STAFF)
    assert ("failed", "notFound", 404) == (result.state, result.code, answer(result).status_code)
    assert "order" in (result.message or "") or "a" in (result.message or "")
    assert OTHER not in json.loads(bytes(answer(result).body))["detail"]


@pytest.mark.rule("000-dsl-1")
def test_an_expression_without_a_value_is_no_error_of_the_server(world: World) -> None:
    flow = world.flow({"a": ("transform", {"expression": "diffDays(input.id, input.id)"})}, [])
    result = world.runs.call(flow, {"id": "never"}, STAFF)
    assert ("expressionFailed", 422) == (result.code, answer(result).status_code)


@pytest.mark.rule("000-contract-2", "001-auth-3")
def test_a_refused_role_is_reported_with_those_that_the_tool_asks_for(world: World) -> None:
    flow = world.flow({"a": BEGIN, "b": log("x")}, chain("a", "b"), auth={"allowedRoles": ["admin", "boss"]})
    response = answer(world.runs.call(flow, {"id": "a"}, Actor(id="u", roles=frozenset({"other"}))))
    reported = json.loads(bytes(response.body))
    assert (403, "notAllowed", "the tool asks for one of the roles admin, boss") == (
        response.status_code,
        reported["code"],
        reported["detail"],
    )


@pytest.mark.rule("000-contract-2")
def test_a_row_for_another_owner_is_reported_by_its_field(tmp_path: Path) -> None:
    owned = {
        "name": "Owned",
        "fields": {"owner": {"type": "string", "required": True}},
        "rowPolicy": {"field": "owner"},
    }
    world = world_in(tmp_path, owned)
    write = ("write", {"entity": "Owned", "operation": "create", "fields": {"owner": "input.id"}})
    response = answer(world.runs.call(world.flow({"a": BEGIN, "b": write}, chain("a", "b")), {"id": "eve"}, STAFF))
    reported = json.loads(bytes(response.body))
    assert (403, "notAllowed") == (response.status_code, reported["code"])
    assert "Owned.owner" in reported["detail"]
    assert "eve" not in reported["detail"]


@pytest.mark.rule("000-edge-3")
def test_a_written_filter_wins_over_a_mapped_field(world: World) -> None:
    world.add("Order", UUID, customerId="c", total=1)
    world.add("Order", OTHER, customerId="c", total=2)
    nodes = {"a": READ, "b": ("read", {"entity": "Order", "filter": {"id": f"'{OTHER}'"}})}
    document = written(nodes, chain("a", "b"), idempotencyKey=None)
    document["flow"]["edges"][0]["dataMapping"] = {"id": "id"}
    assert OTHER == world.runs.call(world.ready(document), {"id": UUID}, STAFF).output["id"]


@pytest.mark.rule("000-dsl-5", "000-types-effects")
@pytest.mark.parametrize(
    "wrong", [{"n": float("nan")}, {"n": 10**400}, {"t": "a\0b"}, {"n\0": 1}, b"bytes", {1: {2}}, object(), "\ud800"]
)
def test_an_answer_of_a_provider_that_is_no_json_counts_as_lost(wrong: Any) -> None:
    adapter = Remembering(wrong)
    with pytest.raises(AnswerLost, match="the adapter acme: "):
        sent(adapter, None, PAYS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fault", [RuntimeError("canary"), SystemExit(3), BaseException("canary")], ids=lambda each: type(each).__name__
)
def test_an_adapter_that_breaks_after_it_has_sent_leaves_an_unknown_effect_and_a_line(
    fault: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        takes_keys = False

        def send(self, _effect: Any) -> Any:
            raise fault

    with pytest.raises(AnswerLost, match=f"the adapter acme: {type(fault).__name__} at "):
        sent(Broken(), None, PAYS)  # type: ignore[arg-type]
    assert f"the adapter acme: {type(fault).__name__} at {__file__}:" in caplog.text
    assert "canary" not in caplog.text


def test_an_answer_behind_a_charge_that_is_no_json_ends_the_run(tmp_path: Path) -> None:
    shop = Remembering({"n": float("inf")})
    world = world_in(tmp_path, ports=Ports(payments={"stripe": shop}))
    result = world.runs.call(world.flow({"a": ("payment", {"provider": "stripe"})}, []), {"id": "a"}, STAFF)
    assert ("unknown", 1) == (result.state, len(shop.sent))


@pytest.mark.rule("000-contract-1", "000-trigger-webhook", "000-trigger-queue")
@pytest.mark.parametrize("data", [{"id": "admin\0"}, {"id": "a", "x\0": 1}, {"id": "a", "n": 10**400}])
def test_an_event_with_such_a_value_is_refused_before_its_run_is_stored(world: World, data: Any) -> None:
    flow = world.flow({"a": BEGIN, "b": log("x")}, chain("a", "b"))
    with pytest.raises(FlowFailed) as refused:
        world.runs.accept(flow, data, STAFF, event="webhook:1")
    assert ("inputInvalid", 1) == (refused.value.code, len(refused.value.errors))
    assert [("tool", "s1", "refused", "inputInvalid")] == world.audit()


@pytest.mark.rule("000-dsl-5")
@pytest.mark.parametrize("total", [float("inf"), float("-inf")])
def test_a_number_of_a_row_that_is_not_finite_reaches_no_answer(world: World, total: float) -> None:
    world.add("Order", UUID, customerId="c", total=1)
    with world.database.transaction() as connection:
        connection.execute(sa.update(table_of(world.entities["Order"])).values(total=total))
    result = world.runs.call(world.flow({"a": READ}, []), {"id": UUID}, STAFF)
    assert ("valueInvalid", 422) == (result.code, answer(result).status_code)
    assert "total has a value that no flow takes" in (result.message or "")


@pytest.mark.rule("000-dsl-5", "000-types-http")
@pytest.mark.parametrize("body", ['{"a": ' + "9" * 401 + "}", '{"a": "x\\u0000"}', '{"a\\u0000": 1}'])
@pytest.mark.parametrize("lost", [AnswerLost, NotSent])
def test_an_answer_of_an_api_with_such_a_value_is_none(body: str, lost: type[Exception]) -> None:
    with pytest.raises(lost):
        _answer(200, "application/json", body.encode(), lost)
    with pytest.raises(lost):
        _answer(200, "text/plain", b"a\0b", lost)


@pytest.mark.parametrize("act", ["ask", "send"])
def test_a_request_behind_the_end_of_the_broker_was_certainly_not_sent(act):
    async def made() -> BrokerRequests:
        return BrokerRequests(SimpleNamespace())  # type: ignore[arg-type]

    requests = asyncio.run(made())
    effect = Effect(kind="httpRequest", operation="POST", fields={"app": "a"}, key="k", seconds=1.0, at="")
    with pytest.raises(NotSent, match="the broker has ended"):
        getattr(requests, act)(effect)
