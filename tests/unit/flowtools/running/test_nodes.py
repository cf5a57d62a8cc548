"""The nodes of a flow, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.flowtools.running.ports import AnswerLost, Effect, EffectRefused, NotSent, Ports, SandboxAdapter
from oauthbroker.flowtools.specification.source import FlowRefused
from tests.unit.flowtools.kit import chain, written
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, STAFF, log, policy, world_in

pytestmark = pytest.mark.rule("000-types-effects")
CALL = {"id": "a"}
MAIL = ("email", {"to": "input.id", "subject": "'s'", "body": "'b'"})
ANN = {"customerId": "ann"}


def order(operation: str, **config: Any) -> tuple[str, dict[str, Any]]:
    return ("write", {"entity": "Order", "operation": operation, **config})


@pytest.fixture
def world(tmp_path):
    made = world_in(tmp_path)
    yield made
    made.database.engine.dispose()


@pytest.mark.rule("000-contract-5")
@pytest.mark.parametrize(
    ("config", "expression", "answer"),
    [
        ({"filter": {"id": "input.id"}}, "r.total + order.total", 2.0),
        ({"filter": {"id": "'none'"}}, "order == null", True),
        ({"filter": {"gift": "true"}, "limit": 2}, "length(order)", 2.0),
        ({"filter": {"gift": "true"}, "limit": 1}, "order.id", "a"),
        ({"limit": 9}, "length(r)", 3.0),
        ({"filter": {"note": "null"}, "limit": 9}, "length(r)", 3.0),
        ({"filter": {"gift": "false"}}, "length(r)", 0.0),
    ],
)
def test_a_read_binds_its_id_and_the_name_of_its_entity_and_is_limited(world, config, expression, answer):
    for at, name in enumerate("abc"):
        world.add("Order", name, **ANN, total=at + 1, gift=True)
    nodes = {"r": ("read", {"entity": "Order", **config}), "t": ("transform", {"expression": expression})}
    assert {"result": answer} == world.runs.call(world.flow(nodes, chain(*nodes)), CALL, STAFF).output


@pytest.mark.parametrize("operation", ["update", "transition", "softDelete"])
@pytest.mark.parametrize("data", [{}, {"note": None}])
def test_a_write_whose_filter_is_absent_fails_and_changes_no_row_without_a_value(world, operation, data):
    world.add("Order", "a", **ANN, total=1)
    config = {"filter": {"note": "input.note"}, "limit": 9, **({"to": "paid"} if operation == "transition" else {})}
    more = {} if operation == "softDelete" else {"fields": {"total": "9.0"}}
    nodes = {"tx": BEGIN, "w": order(operation, **config, **more)}
    note = {"type": ["string", "null"]}
    schema = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "note": note}}
    flow, before = world.flow(nodes, chain(*nodes), input=schema), world.rows("Order")
    result = world.runs.call(flow, {**CALL, **data}, STAFF)
    assert ("valueMissing", before) == (result.code, world.rows("Order"))
    assert "w: its filter note is null, which fits no row of a write" == result.message
    assert any(
        each.startswith("w: input.note may be absent, and then no row fits its filter note")
        for each in flow.assessment.notes
    )


def test_a_write_with_null_as_its_filter_means_the_rows_without_a_value(world):
    world.add("Order", "a", **ANN, total=1)
    world.add("Order", "b", **ANN, total=1, note="kept")
    nodes = {"tx": BEGIN, "w": order("update", filter={"note": " null "}, limit=9, fields={"total": "9.0"})}
    assert "succeeded" == world.runs.call(world.flow(nodes, chain(*nodes)), CALL, STAFF).state
    assert {"a": 9.0, "b": 1.0} == {row["id"]: row["total"] for row in world.rows("Order")}


@pytest.mark.parametrize(("limit", "found"), [(1, "none"), (9, "empty")])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_read_whose_filter_is_absent_finds_no_row(world, limit, found, mapped):
    world.add("Order", "a", **ANN, total=1)
    config = {"entity": "Order", "limit": limit, **({} if mapped else {"filter": {"note": "input.note"}})}
    shown = ("transform", {"expression": "order == null ? 'none' : order == [] ? 'empty' : 'some'"})
    nodes = {"m": ("transform", {"expression": "{'x': 1}"}), "r": ("read", config), "t": shown}
    schema = {"type": "object", "properties": {"id": {"type": "string"}, "note": {"type": "string"}}}
    tool = written(nodes, chain(*nodes), "m", input=schema, idempotencyKey=None)
    if mapped:
        tool["flow"]["edges"][0]["dataMapping"] = {"absent": "note"}
    flow = world.ready(tool)
    assert {"result": found} == world.runs.call(flow, CALL, STAFF).output
    said = [
        each for each in flow.assessment.notes if each.startswith("r: input.note may be absent, and then no row fits")
    ]
    assert mapped != bool(said)


def test_a_write_creates_updates_moves_and_deletes(world):
    one = {"filter": {"id": "made.result.id"}}
    fields = {"customerId": "input.id", "total": "2.5"}
    nodes = {
        "tx": BEGIN,
        "made": order("create", fields=fields),
        "up": order("update", fields={"total": "made.result.total * 2"}, **one),
        "move": order("transition", to="paid", fields={"note": "'n'"}, **one),
    }
    output = world.runs.call(world.flow(nodes, chain(*nodes)), CALL, STAFF).output
    assert (5.0, "paid", "n", 3, "a") == tuple(
        output[key] for key in ("total", "status", "note", "version", "customerId")
    )
    gone = world.flow({"tx": BEGIN, "d": order("softDelete", filter={"id": "input.id"})}, chain("tx", "d"))
    assert world.runs.call(gone, {"id": output["id"]}, STAFF).output["deletedAt"].endswith("Z")
    assert [] == world.rows("Order")
    assert "notFound" == world.runs.call(gone, {"id": output["id"]}, STAFF).code


def test_a_create_without_fields_takes_the_members_of_the_input_that_the_entity_has(world):
    schema = {"type": "object", "properties": {"total": {"type": "number"}, "customerId": {}, "id": {}}}
    flow = world.flow({"tx": BEGIN, "c": order("create")}, chain("tx", "c"), input=schema)
    output = world.runs.call(flow, {"total": 3, "customerId": "ann", "id": "x"}, STAFF).output
    assert (3.0, "ann", True) == (output["total"], output["customerId"], output["id"] != "x")


@pytest.mark.parametrize(("n", "texts"), [(1, ["yes"]), (0, ["no"])])
def test_an_if_takes_one_of_two_ways(world, n, texts):
    nodes = {"i": ("if", {"expression": "input.n > 0"}), "tx": BEGIN, "y": log("yes"), "tx2": BEGIN, "n": log("no")}
    edges = [("i", "tx", "true"), ("tx", "y"), ("i", "tx2", "false"), ("tx2", "n")]
    world.runs.call(world.flow(nodes, edges), {**CALL, "n": n}, STAFF)
    assert texts == world.texts()


@pytest.mark.parametrize(
    ("expression", "text"), [("input.id", "a"), ("1 + 1", "two"), ("input.id == 'a'", "yes"), ("'other'", "rest")]
)
def test_a_switch_takes_the_case_of_its_value_or_the_default(world, expression, text):
    nodes: dict[str, Any] = {"tx": BEGIN, "s": ("switch", {"expression": expression})}
    edges: list[tuple[str, ...]] = [("tx", "s")]
    for label, name in (("a", "a"), ("2", "two"), ("true", "yes"), ("default", "rest")):
        nodes[f"{name}-node"] = log(name)
        edges.append(("s", f"{name}-node", label))
    world.runs.call(world.flow(nodes, edges), CALL, STAFF)
    assert [text] == world.texts()


@pytest.mark.rule("000-edge-data")
def test_an_edge_maps_members_of_a_result_to_fields_of_the_next_node(world):
    world.add("Order", "a", **ANN, total=1, note="hello")
    nodes = {
        "tx": BEGIN,
        "r": ("read", {"entity": "Order", "filter": {"id": "input.id"}}),
        "w": order("create", fields={"total": "7"}),
    }
    document = written(nodes, chain(*nodes), "tx", idempotencyKey=None)
    document["flow"]["edges"][1]["dataMapping"] = {each: each for each in ("note", "customerId", "total")}
    output = world.runs.call(world.ready(document), CALL, STAFF).output
    assert ("hello", "ann", 7.0) == (output["note"], output["customerId"], output["total"]), "a written field wins"


MAPPED: dict[str, tuple[Any, str]] = {
    "the status, around its machine": (order("update", filter={"id": "input.id"}), "status"),
    "the mark of a deleted row": (order("update", filter={"id": "input.id"}), "deletedAt"),
    "the id": (order("create"), "id"),
    "the version": (order("create"), "version"),
    "an unknown field": (order("create"), "nonsense"),
    "a field of a soft delete": (order("softDelete", filter={"id": "input.id"}), "note"),
    "a filter by an unknown field": (("read", {"entity": "Order", "limit": 1}), "nonsense"),
    "into a mail": (MAIL, "to"),
    "into a transform": (("transform", {"expression": "1"}), "expression"),
}


@pytest.mark.rule("000-edge-data")
@pytest.mark.parametrize("name", MAPPED)
def test_an_edge_maps_nothing_that_its_node_does_not_take(world, name):
    node, target = MAPPED[name]
    nodes = {"tx": BEGIN, "t": ("transform", {"expression": "{'x': 'paid'}"}), "n": node}
    document = written(nodes, chain(*nodes), "tx", idempotencyKey=None)
    document["flow"]["edges"][1]["dataMapping"] = {"x": target}
    if node == MAIL:
        document["flow"]["edges"] = document["flow"]["edges"][1:]
        document["flow"]["startNode"] = "t"
    with pytest.raises(FlowRefused, match=f"Node n takes no field {target}"):
        world.ready(document)


RETRIES: dict[str, tuple[list[Any], dict[str, Any], str | None, int, list[float]]] = {
    "without a retry node there is one attempt": ([NotSent("x")], {}, "externalFailed", 1, []),
    "not sent": ([NotSent("x"), NotSent("x")], {"attempts": 3, "backoffSeconds": 2}, None, 3, [2, 4]),
    "not sent each time": ([NotSent("x")] * 9, {"attempts": 2, "backoffSeconds": 2}, "externalFailed", 2, [2]),
    "refused": ([EffectRefused("x")], {"attempts": 3}, "externalFailed", 1, []),
    "refused for now": ([EffectRefused("x", again=True)], {"attempts": 3, "backoffSeconds": 0}, None, 2, [0]),
}


@pytest.mark.rule("000-types-retry")
@pytest.mark.parametrize("name", RETRIES)
def test_a_retry_node_repeats_the_external_node_behind_it(world, name):
    answers, retry, code, sent, waits = RETRIES[name]
    world.mail.answers = list(answers)
    nodes = {**({"r": ("retry", retry)} if retry else {}), "t": ("timeout", {"seconds": 7}), "m": MAIL}
    assert code == world.runs.call(world.flow(nodes, chain(*nodes)), CALL, STAFF).code
    assert (sent, waits) == (len(world.mail.sent), world.waits)
    assert ({7.0}, 1) == ({each.seconds for each in world.mail.sent}, len({each.key for each in world.mail.sent}))


@pytest.mark.rule("000-types-retry", "000-types-timeout")
def test_wrappers_hold_for_the_next_external_node_only(world):
    nodes = {"r": ("retry", {"attempts": 3}), "t": ("timeout", {"seconds": 7}), "m": MAIL, "n": MAIL}
    world.mail.answers = [{}, NotSent("x")]
    assert "externalFailed" == world.runs.call(world.flow(nodes, chain(*nodes)), CALL, STAFF).code
    assert [7.0, 30.0] == [each.seconds for each in world.mail.sent]


@pytest.mark.parametrize(("takes_keys", "state", "sent"), [(False, "unknown", 1), (True, "succeeded", 2)])
def test_a_lost_answer_is_unknown_and_asked_for_again_only_by_key(world, takes_keys, state, sent):
    world.mail.answers, world.mail.takes_keys = [AnswerLost()], takes_keys
    nodes = {"r": ("retry", {"attempts": 3}), "m": MAIL}
    flow = world.flow(nodes, chain(*nodes), idempotencyKey="input.id")
    results = [world.runs.call(flow, CALL, STAFF) for _ in range(2)]
    assert ([state] * 2, sent) == ([each.state for each in results], len(world.mail.sent))


DOUBTFUL: dict[str, tuple[list[Any], str]] = {
    "lost, then not sent": ([AnswerLost(), NotSent("x")], "unknown"),
    "lost, then refused for now": ([AnswerLost(), EffectRefused("x", again=True)], "unknown"),
    "lost, then refused": ([AnswerLost(), EffectRefused("x")], "failed"),
    "lost, then done": ([AnswerLost(), {}], "succeeded"),
    "not sent, then lost": ([NotSent("x"), AnswerLost()], "unknown"),
}


@pytest.mark.rule("run-kills")
@pytest.mark.parametrize("name", DOUBTFUL)
def test_an_effect_whose_answer_was_lost_is_doubtful_until_the_other_side_answers(world, name):
    answers, state = DOUBTFUL[name]
    world.mail.answers, world.mail.takes_keys = list(answers), True
    nodes = {"r": ("retry", {"attempts": 2}), "m": MAIL}
    assert state == world.runs.call(world.flow(nodes, chain(*nodes)), CALL, STAFF).state


def test_a_policy_sees_the_amount_of_a_payment_before_it_is_sent(tmp_path):
    world = world_in(tmp_path, policies=[policy(condition="amount > 5")])
    nodes = {"p": ("payment", {"provider": "stripe", "fields": {"amount": "input.n * 2"}})}
    flow = world.flow(nodes, [], policies=["p", "paymentRollback"])
    assert "policyBlocked" == world.runs.call(flow, {**CALL, "n": 3}, STAFF).code
    assert [] == world.shop.sent
    assert None is world.runs.call(flow, {**CALL, "n": 2}, STAFF).code


def test_payment_sms_and_mail_get_their_fields_and_bind_their_answers(world):
    nodes = {
        "p": ("payment", {"provider": "stripe", "action": "refund", "fields": {"amount": "input.n"}}),
        "s": ("sms", {"to": "input.id", "body": "concat('paid ', p.result.n)"}),
        "m": ("email", {"to": "input.id", "subject": "s.result.n", "body": "'b'"}),
    }
    world.shop.answers, world.sms.answers = [{"n": "x1"}], [{"n": "x2"}]
    assert None is world.runs.call(world.flow(nodes, chain(*nodes)), {**CALL, "n": 4}, STAFF).code
    assert ("refund", {"amount": 4.0}) == (world.shop.sent[0].operation, world.shop.sent[0].fields)
    assert {"to": "a", "body": "paid x1"} == world.sms.sent[0].fields
    assert {"to": "a", "subject": "x2", "body": "b"} == world.mail.sent[0].fields


REFUSED: dict[str, tuple[Any, str]] = {
    "an unknown entity": (("read", {"entity": "Nothing", "limit": 1}), "No declared entity"),
    "a filter by an unknown field": (
        ("read", {"entity": "Order", "filter": {"totals": "1"}, "limit": 1}),
        "No field of Order",
    ),
    "a write of the status": (order("create", fields={"status": "'paid'"}), "No field of Order"),
    "a write of the id": (order("create", fields={"id": "'a'"}), "No field of Order"),
    "a write of the version": (order("update", fields={"version": "1"}, filter={"id": "'a'"}), "No field of Order"),
    "an unknown status": (order("transition", to="lost", filter={"id": "'a'"}), "no transition to it"),
    "another provider": (("payment", {"provider": "toss"}), "No configured provider"),
    "a request": (
        ("httpRequest", {"oauthAppRef": "OAuthApp/mail", "url": "https://api.example.com"}),
        "Requests are not configured",
    ),
    "raw SQL": (("write", {"sql": "DROP TABLE x"}), "raw SQL"),
    "a hard delete": (order("delete", filter={"id": "'a'"}), "hard-delete:n is red: a hard delete"),
}


@pytest.mark.rule("001-risk-4")
@pytest.mark.parametrize("name", REFUSED)
def test_a_flow_that_cannot_run_is_refused_before_it_runs(world, name):
    node, what = REFUSED[name]
    nodes = {"tx": BEGIN, "n": node} if node[0] == "write" else {"n": node}
    with pytest.raises(FlowRefused) as refused:
        world.flow(nodes, chain(*nodes))
    assert what in str(refused.value)


def test_a_port_without_an_adapter_is_refused_and_a_sandbox_only_by_name(tmp_path):
    world = world_in(tmp_path, ports=Ports())
    for node in (MAIL, ("sms", {"to": "'a'", "body": "'b'"}), ("payment", {"provider": "stripe"})):
        with pytest.raises(FlowRefused, match="configured"):
            world.flow({"n": node}, [])
    with pytest.raises(ValueError, match="sandbox is not set"):
        Ports(payments={"stripe": SandboxAdapter()})
    ports = Ports(payments={"stripe": SandboxAdapter()}, sms=SandboxAdapter(), sandbox=True)
    one, again, other = (ports.payments["stripe"].send(effect(key)) for key in ("k", "k", "l"))
    assert (True, "succeeded") == (one == again != other, one["status"])


def effect(key: str) -> Effect:
    return Effect(kind="payment", operation="charge", fields={}, key=key, seconds=1, at="2026-11-24T00:00:00Z")


def test_a_transaction_without_an_end_reaches_to_the_end_of_the_flow(world):
    nodes = {"tx": BEGIN, "l": log("x"), "c": ("assert", {"expression": "l.result.text == 'x'"})}
    assert "succeeded" == world.runs.call(world.flow(nodes, chain(*nodes)), CALL, STAFF).state
    nodes = {"tx": BEGIN, "l": log("y"), "e": COMMIT, "c": ("assert", {"expression": "false"})}
    assert "failed" == world.runs.call(world.flow(nodes, chain(*nodes)), CALL, STAFF).state
    assert ["x", "y"] == world.texts(), "a commit stays"
