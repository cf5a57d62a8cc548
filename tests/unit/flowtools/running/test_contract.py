"""The nine steps of the execution contract, in their order."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import oauthbroker.flowtools
from oauthbroker import Turn, TurnAuth
from oauthbroker.flowtools.entities.rows import Rows
from oauthbroker.flowtools.running.ports import EffectRefused
from oauthbroker.flowtools.specification.failures import Actor
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, STAFF, World, log, policy, world_in

CALL = {"id": "a"}
MAIL = ("email", {"to": "input.id", "subject": "'s'", "body": "'b'"})


@pytest.fixture(params=["sqlite", "postgresql"])
def world(request, tmp_path):
    if request.param == "sqlite":
        made = world_in(tmp_path)
    else:
        server = request.getfixturevalue("postgres_server")
        server.empty_database(tmp_path.name.lower())
        made = World(server.url(tmp_path.name.lower()).reveal())
    yield made
    made.database.engine.dispose()


@pytest.mark.rule("000-contract-1")
@pytest.mark.parametrize("data", [{}, {"id": 1}, [], None, {"id": "\ud800"}])
def test_1_an_input_that_breaks_the_schema_is_refused_before_anything_else(world, data):
    flow = world.flow({"a": BEGIN, "b": log("x")}, chain("a", "b"))
    result = world.runs.call(flow, data, None)
    assert ("failed", "inputInvalid", None) == (result.state, result.code, result.run)
    assert [("tool", None, "refused", "inputInvalid")] == world.audit()
    assert [] == world.texts()


@pytest.mark.rule("000-contract-2", "000-auth-roles", "001-auth-2", "001-auth-3")
@pytest.mark.parametrize(
    ("auth", "actor", "code"),
    [
        ({}, None, "unauthenticated"),
        ({}, Actor(id="u"), None),
        ({"required": False}, None, None),
        ({"required": False, "allowedRoles": ["staff"]}, None, "unauthenticated"),
        ({"allowedRoles": []}, Actor(id="u"), None),
        ({"allowedRoles": ["admin", "staff"]}, STAFF, None),
        ({"allowedRoles": ["admin"]}, STAFF, "forbidden"),
        ({"allowedRoles": ["admin"]}, Actor(id="admin"), "forbidden"),
    ],
)
def test_2_a_caller_is_authenticated_and_has_an_allowed_role(world, auth, actor, code):
    flow = world.flow({"a": BEGIN, "b": log("x")}, chain("a", "b"), auth=auth)
    assert code == world.runs.call(flow, CALL, actor).code
    assert ([] if code else ["x"]) == world.texts()


@pytest.mark.rule("000-contract-2")
def test_2_the_row_policy_holds_in_a_flow(world):
    world.add("Order", "a", customerId="ann", total=1)
    read = ("read", {"entity": "Order", "filter": {"id": "input.id"}})
    flow = world.flow({"r": read}, [])
    assert "a" == world.runs.call(flow, CALL, Actor(id="ann")).output["id"]
    assert {} == world.runs.call(flow, CALL, Actor(id="bob")).output


@pytest.mark.rule("000-contract-2")
def test_2_a_write_takes_the_id_of_its_caller_for_the_field_of_the_row_policy(world):
    fields = {"customerId": "caller.id", "total": "1.0"}
    write = ("write", {"entity": "Order", "operation": "create", "fields": fields})
    flow = world.flow({"a": BEGIN, "w": write, "e": COMMIT}, chain("a", "w", "e"), auth={"required": False})
    assert "ann" == world.runs.call(flow, CALL, Actor(id="ann")).output["customerId"]
    stored = world.runs.accept(flow, {**CALL, "id": "b"}, Actor(id="bob"))
    assert "bob" == world.runs.resume(flow, stored.id).output["customerId"], "also in another process"
    assert "rowForbidden" == world.runs.call(flow, {**CALL, "id": "c"}, None).code
    own = ("read", {"entity": "Order", "filter": {"customerId": "caller.id"}})
    for name in ("ann", "bob"):
        (row,) = world.runs.call(world.flow({"r": own}, []), {**CALL, "id": f"own {name}"}, Actor(id=name)).output[
            "result"
        ]
        assert name == row["customerId"]


def test_a_node_named_caller_keeps_its_name(world):
    nodes = {
        "caller": ("transform", {"expression": "{'id': 'mine'}"}),
        "t": ("transform", {"expression": "caller.result"}),
    }
    flow = world.flow(nodes, chain("caller", "t"))
    assert {"id": "mine"} == world.runs.call(flow, CALL, Actor(id="ann")).output


@pytest.mark.rule("000-contract-3", "policy-run")
@pytest.mark.parametrize(("action", "state"), [("block", "failed"), ("warn", "succeeded"), ("escalate", "escalated")])
def test_3_policies_block_warn_or_escalate_before_the_run(tmp_path, action, state):
    world = world_in(tmp_path, policies=[policy(action=action, message="too much")])
    flow = world.flow({"a": BEGIN, "b": log("x")}, chain("a", "b"), policies=["p"])
    assert "succeeded" == world.runs.call(flow, {**CALL, "amount": 5}, STAFF).state
    result = world.runs.call(flow, {**CALL, "amount": 6}, STAFF)
    assert state == result.state
    assert (["x", "x"] if action == "warn" else ["x"]) == world.texts()
    assert ("p: too much" in (result.message or "")) or result.notes == ("warn p: too much",)


@pytest.mark.rule("policy-run")
def test_an_escalated_run_stays_where_it_stopped(tmp_path):
    world = world_in(tmp_path, policies=[policy(action="escalate")])
    flow = world.flow({"a": BEGIN, "b": log("x")}, chain("a", "b"), policies=["p"])
    run = world.runs.call(flow, {**CALL, "amount": 6}, STAFF).run or ""
    assert ("escalated", []) == (world.runs.resume(flow, run).state, world.texts())
    assert [("tool", "s1", "escalated", None)] == world.audit()


@pytest.mark.rule("policy-run")
def test_the_rate_of_calls_is_a_fact(tmp_path):
    limit = policy(type="rateLimit", condition="requestsPerMinute > 2", parameters={"maxRequestsPerMinute": 2})
    world = world_in(tmp_path, policies=[limit])
    flow = world.flow({"a": ("transform", {"expression": "1"})}, [], policies=["p"])
    assert [None, None, "policyBlocked"] == [world.runs.call(flow, CALL, STAFF).code for _ in range(3)]


@pytest.mark.rule("policy-run", "000-contract-6")
def test_the_rows_that_a_run_touches_are_a_fact_and_a_block_rolls_them_back(tmp_path):
    world = world_in(tmp_path, policies=[policy(condition="rows > 1")])
    flow = world.flow({"a": BEGIN, "b": log("x"), "c": log("y")}, chain("a", "b", "c"), policies=["p"])
    assert ("policyBlocked", []) == (world.runs.call(flow, CALL, STAFF).code, world.texts())


@pytest.mark.rule("policy-run", "000-types-effects")
def test_a_policy_check_node_checks_the_rows_touched_so_far(tmp_path):
    world = world_in(tmp_path, policies=[policy(condition="rows > 1")])
    nodes = {"a": BEGIN, "b": log("x"), "c": ("policyCheck", {"policy": "p"}), "d": log("y")}
    assert "succeeded" == world.runs.call(world.flow(nodes, chain("a", "b", "c", "d")), CALL, STAFF).state
    assert "policyBlocked" == world.runs.call(world.flow(nodes, chain("a", "b", "d", "c")), CALL, STAFF).code


FAILING = {
    "an assertion": ("assert", {"expression": "input.n > 0", "message": "n is not positive"}),
    "an expression": ("transform", {"expression": "double(input.id)"}),
    "a missing row": ("write", {"entity": "Order", "operation": "update", "filter": {"id": "'none'"}}),
    "a value of another type": ("write", {"entity": "Log", "operation": "create", "fields": {"text": "1"}}),
}


@pytest.mark.rule("000-contract-7", "000-contract-5")
@pytest.mark.parametrize("name", FAILING)
def test_7_a_failure_rolls_back_all_that_the_transaction_wrote(world, name):
    flow = world.flow({"a": BEGIN, "b": log("x"), "c": FAILING[name]}, chain("a", "b", "c"))
    result = world.runs.call(flow, {**CALL, "n": 0}, STAFF)
    assert ("failed", []) == (result.state, world.texts())
    assert [("tool", "s1", "failed", result.code)] == world.audit()


@pytest.mark.rule("000-contract-6")
@pytest.mark.parametrize("end", [{}, {"z": COMMIT}])
def test_6_the_invariants_of_changed_rows_hold_at_the_end_of_the_transaction(world, end):
    def change(total: str) -> Any:
        return (
            "write",
            {"entity": "Order", "operation": "update", "filter": {"id": "input.id"}, "fields": {"total": total}},
        )

    world.add("Order", "a", customerId="ann", total=1)
    broken = world.flow({"a": BEGIN, "b": change("-1"), **end}, chain("a", "b", *end))
    assert "invariantBroken" == world.runs.call(broken, CALL, STAFF).code
    fixed = world.flow({"a": BEGIN, "b": change("-1"), "c": change("2"), **end}, chain("a", "b", "c", *end))
    assert None is world.runs.call(fixed, CALL, STAFF).code
    assert [2] == [row["total"] for row in world.rows("Order")]


@pytest.mark.rule("000-contract-4", "001-example-3")
def test_4_an_external_node_runs_behind_the_commit_only(world):
    seen: list[Any] = []

    class Watching:
        takes_keys = False

        def send(self, effect: Any) -> Any:
            seen.append((world.texts(), effect.fields["to"]))
            return {}

    object.__setattr__(world.runs._ports, "email", Watching())
    nodes = {"a": BEGIN, "b": log("x"), "c": COMMIT, "d": MAIL, "e": BEGIN, "f": log("y")}
    assert "succeeded" == world.runs.call(world.flow(nodes, chain(*nodes)), CALL, STAFF).state
    assert ([(["x"], "a")], ["x", "y"]) == (seen, world.texts())
    seen.clear()
    nodes["b"] = log("x")[0], {"entity": "Log", "operation": "create", "fields": {"text": "1"}}
    assert "valueInvalid" == world.runs.call(world.flow(nodes, chain(*nodes)), CALL, STAFF).code
    assert [] == seen


@pytest.mark.rule("000-contract-8")
def test_8_each_end_of_a_call_is_an_audit_entry(world):
    good, bad = (
        world.flow({"a": ("transform", {"expression": "1"})}, []),
        world.flow({"a": FAILING["an assertion"]}, []),
    )
    world.runs.call(good, CALL, STAFF)
    world.runs.call(bad, {**CALL, "n": 0}, STAFF)
    world.runs.call(good, CALL, None)
    expected = [("s1", "succeeded", None), ("s1", "failed", "assertFailed"), (None, "refused", "unauthenticated")]
    assert [("tool", *each) for each in expected] == world.audit()


@pytest.mark.rule("000-contract-0")
def test_a_call_with_several_faults_ends_at_the_first_step_that_has_one(tmp_path):
    world = world_in(tmp_path, policies=[policy()])
    world.add("Order", "a", customerId="ann", total=1)
    change = {"operation": "update", "filter": {"id": "input.id"}, "fields": {"total": "input.n"}}
    nodes = {
        "a": BEGIN,
        "b": ("write", {"entity": "Order", **change}),
        "c": ("assert", {"expression": "input.n != -1"}),
    }
    flow = world.flow(nodes, chain(*nodes), policies=["p"], output={"type": "object", "required": ["none"]})
    faults: list[tuple[Any, Actor | None, str]] = [
        ({"amount": 9, "n": -1}, None, "inputInvalid"),
        ({**CALL, "amount": 9, "n": -1}, None, "unauthenticated"),
        ({**CALL, "amount": 9, "n": -1}, STAFF, "policyBlocked"),
        ({**CALL, "amount": 3, "n": -1}, STAFF, "assertFailed"),
        ({**CALL, "amount": 3, "n": -2}, STAFF, "invariantBroken"),
        ({**CALL, "amount": 3, "n": 2}, STAFF, "outputInvalid"),
    ]
    assert [code for _, _, code in faults] == [world.runs.call(flow, data, actor).code for data, actor, _ in faults]
    assert [1] == [row["total"] for row in world.rows("Order")]


@pytest.mark.rule("000-contract-10")
def test_the_same_call_does_the_same_on_another_database(tmp_path):
    ends = []
    for name in "ab":
        (tmp_path / name).mkdir()
        world = world_in(tmp_path / name)
        nodes = {"a": BEGIN, "b": log("x"), "c": COMMIT, "d": MAIL, "e": ("transform", {"expression": "input.id"})}
        result = world.runs.call(world.flow(nodes, chain(*nodes), idempotencyKey="input.id"), CALL, STAFF)
        ends.append((result.output, result.notes, [(each.key, each.fields) for each in world.mail.sent], world.texts()))
        world.database.engine.dispose()
    assert ends[0] == ends[1]


@pytest.mark.rule("000-contract-10")
def test_no_file_of_the_plugin_uses_a_model_or_chance():
    folder = Path(oauthbroker.flowtools.__file__).parent
    for file in folder.rglob("*.py"):
        used = re.findall(r"^\s*(?:from|import) ([\w.]+)", file.read_text("utf-8"), re.MULTILINE)
        known = {"random", "secrets", "openai", "anthropic", "pydantic_ai", "langchain", "litellm", "google"}
        assert not known & {name.partition(".")[0] for name in used}, file


@pytest.mark.rule("001-concurrency")
@pytest.mark.parametrize(("strategy", "locks"), [("none", False), ("optimistic", False), ("pessimistic", True)])
def test_pessimistic_locks_the_rows_that_are_read(world, monkeypatch, strategy, locks):
    seen, read = list[bool](), Rows.read

    def watched(*given: Any, lock: bool = False) -> Any:
        seen.append(lock)
        return read(*given, lock=lock)

    monkeypatch.setattr(Rows, "read", watched)
    flow = world.flow(
        {"r": ("read", {"entity": "Order", "filter": {"id": "input.id"}})}, [], concurrencyStrategy=strategy
    )
    assert None is world.runs.call(flow, CALL, STAFF).code
    assert [locks] == seen


OUTPUTS: list[tuple[Any, Any, Any]] = [
    ({"type": "object"}, "2", {"result": 2.0}),
    ({"type": "object"}, "{'id': input.id, 'n': input.n}", {"id": "a", "n": 1.0}),
    ({"type": "object", "properties": {"id": {"type": "string"}}}, "{'id': input.id, 'n': input.n}", {"id": "a"}),
    ({"type": "object", "properties": {"n": {"type": "integer"}}}, "{'id': input.id, 'n': input.n}", {"n": 1}),
    ({"type": "object", "properties": {"none": {"type": "string"}}}, "{'id': input.id, 'n': input.n}", {}),
    ({"type": "object", "required": ["none"]}, "{'id': input.id, 'n': input.n}", None),
    ({"type": "object", "properties": {"n": {"type": "string"}}}, "{'id': input.id, 'n': input.n}", None),
]


@pytest.mark.rule("000-contract-9")
@pytest.mark.parametrize(("schema", "expression", "output"), OUTPUTS)
def test_9_the_output_has_the_members_of_its_schema_and_fits_it(world, schema, expression, output):
    nodes = {"a": BEGIN, "b": log("x"), "c": ("transform", {"expression": expression})}
    result = world.runs.call(world.flow(nodes, chain(*nodes), output=schema), {**CALL, "n": 1}, STAFF)
    assert (None if output is not None else "outputInvalid", output) == (result.code, result.output)
    assert (["x"] if output is not None else []) == world.texts(), "no commit without a valid answer"


def test_the_tables_have_to_fit_the_entities(world):
    from oauthbroker.flowtools.running.contract import FlowRuns
    from tests.unit.flowtools.entity_kit import entity_of

    other = entity_of({"name": "Other", "fields": {"a": {"type": "string"}}})
    with pytest.raises(ValueError, match="do not fit"):
        FlowRuns(world.database, [other], audit=world.entries)


@pytest.mark.rule("001-deduplicate")
def test_a_repeated_call_gets_the_first_answer(world):
    nodes = {"a": BEGIN, "b": log("x"), "c": COMMIT, "d": MAIL}
    flow = world.flow(nodes, chain(*nodes), idempotencyKey="input.id")
    first, again = (world.runs.call(flow, CALL, STAFF) for _ in range(2))
    assert first == again
    assert (1, ["x"]) == (len(world.mail.sent), world.texts())
    assert "idempotencyConflict" == world.runs.call(flow, {**CALL, "n": 1}, STAFF).code
    assert "idempotencyConflict" == world.runs.call(flow, CALL, Actor(id="other")).code
    assert first.run != world.runs.call(flow, {"id": "b"}, STAFF).run


@pytest.mark.rule("001-deduplicate")
def test_a_failed_call_without_effect_can_be_made_again_and_one_with_an_effect_answers_as_before(world):
    nodes = {
        "r": ("read", {"entity": "Order", "filter": {"id": "input.id"}}),
        "c": ("assert", {"expression": "order != null"}),
    }
    flow = world.flow(nodes, chain(*nodes), idempotencyKey="input.id")
    assert "assertFailed" == world.runs.call(flow, CALL, STAFF).code
    world.add("Order", "a", customerId="ann", total=1)
    assert None is world.runs.call(flow, CALL, STAFF).code
    world.mail.answers = [EffectRefused("no")]
    nodes = {"a": BEGIN, "b": log("x"), "c": COMMIT, "d": MAIL}
    flow = world.flow(nodes, chain(*nodes), idempotencyKey="input.id", name="other")
    first, again = (world.runs.call(flow, CALL, STAFF) for _ in range(2))
    assert ("externalFailed", first) == (first.code, again)
    assert (1, ["x"]) == (len(world.mail.sent), world.texts())


@pytest.mark.rule("001-deduplicate", "000-top-idempotency")
def test_a_key_with_the_callers_id_cannot_be_taken_by_another_caller_first(world):
    nodes = {"a": BEGIN, "b": log("x")}
    flow = world.flow(nodes, chain(*nodes), idempotencyKey="concat(caller.id, ' ', input.id)", auth={"required": False})
    runs = [world.runs.call(flow, CALL, actor).run for actor in (Actor(id="squatter"), STAFF, None)]
    assert (3, runs) == (
        len(set(runs)),
        [world.runs.call(flow, CALL, a).run for a in (Actor(id="squatter"), STAFF, None)],
    )


@pytest.mark.rule("001-deduplicate")
def test_the_id_of_a_call_is_that_of_its_caller_and_subjects(world):
    nodes = {"a": BEGIN, "b": log("x")}
    flow = world.flow(nodes, chain(*nodes))
    turns = [Turn("agent", "i", auth=TurnAuth(subjects={"user": f"shop:user:{name}"})) for name in ("ann", "bob")]
    actors = [STAFF, Actor(id="other", roles=STAFF.roles), *(replace(STAFF, turn=turn) for turn in turns)]
    first, again = ([world.runs.call(flow, CALL, actor, call="c1").run for actor in actors] for _ in range(2))
    assert (first, 4) == (again, len(set(first)))


@pytest.mark.rule("001-deduplicate", "000-trigger-webhook")
@pytest.mark.parametrize("own", [None, "input.id"], ids=["without a key", "with a key"])
def test_an_event_is_one_run_also_after_it_failed_without_effect_and_another_call_can_be_made(world, own):
    """A captured delivery of GitHub has no time: nothing but its event keeps it from running again."""
    nodes = {
        "r": ("read", {"entity": "Order", "filter": {"id": "input.id"}}),
        "c": ("assert", {"expression": "order != null"}),
    }
    flow = world.flow(nodes, chain(*nodes), idempotencyKey=own)
    first = world.runs.accept(flow, CALL, STAFF, event="delivery")
    second = world.runs.accept(flow, CALL, STAFF, event="again") if own else first
    assert "assertFailed" == world.runs.go_on(flow, first).code
    world.add("Order", "a", customerId="ann", total=1)
    for event in ("delivery", *(["again"] if own else [])):
        captured = world.runs.accept(flow, CALL, STAFF, event=event)
        assert (first.id, second.id) == (captured.id, captured.id)
        assert "failed" == world.runs.go_on(flow, captured).state
    assert None is world.runs.call(flow, CALL, Actor(id="operator", roles=STAFF.roles)).code
    assert (
        first.id != world.runs.accept(world.flow(nodes, chain(*nodes), name="other"), CALL, STAFF, event="delivery").id
    )


def test_the_key_of_a_tool_reaches_the_provider(world):
    nodes = {"p": ("payment", {"provider": "stripe", "action": "charge"})}
    flow = world.flow(nodes, [], idempotencyKey="input.id")
    world.shop.answers = [EffectRefused("no")]
    for data in (CALL, {"id": "b"}):
        world.runs.call(flow, {**data, "amount": 3}, STAFF)
    one, other = world.shop.sent
    assert ({"id": "a", "amount": 3}, "charge") == (one.fields, one.operation)
    assert one.key != other.key
