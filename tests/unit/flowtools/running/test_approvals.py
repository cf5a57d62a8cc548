"""A person lets a run go on that a policy has stopped, or ends it: once, on the record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oauthbroker import Turn, TurnAuth
from oauthbroker.flowtools.running.approvals import approve, decisions, decline
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.specification.failures import Actor
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, STAFF, World, log, policy, world_in

pytestmark = pytest.mark.rule("policy-approval")
LARGE = policy(action="escalate", message="too large")
MANY = policy(name="q", type="rowLimit", condition="rows > 1", action="escalate", parameters={"maxRows": 1})
NODES = {"a": BEGIN, "b": log("one"), "c": log("two"), "d": COMMIT, "e": BEGIN, "f": log("three")}
CALL = {"id": "a", "amount": 6}


@pytest.fixture
def world(tmp_path):
    return world_in(tmp_path, policies=[LARGE, MANY], lease_seconds=-60.0)


def stopped(world: World, *policies: str) -> tuple[ReadyFlow, str]:
    flow = world.flow(NODES, chain(*NODES), policies=list(policies), idempotencyKey="input.id")
    result = world.runs.call(flow, CALL, STAFF)
    assert "escalated" == result.state
    return flow, str(result.run)


def reported(world: World, run: str) -> list[tuple[str, str, str | None]]:
    with world.database.transaction() as connection:
        return [(each.policy, each.decision, each.by) for each in decisions(connection, run)]


@pytest.mark.parametrize("name", ["p", "q"], ids=["before the run", "before a commit"])
def test_an_approved_run_goes_on_behind_the_policy_that_asked(world, name):
    flow, run = stopped(world, name)
    assert [] == world.texts()
    assert [(name, "asked", None)] == reported(world, run)
    approve(world.database, run, audit=world.entries, by="ada", account="root")
    assert [run] == [each for each, _ in world.runs.due(5)], "a process that looks for runs finds it"
    ended = world.runs.resume(flow, run)
    assert ("succeeded", ["one", "three", "two"]) == (ended.state, world.texts())
    assert [(name, "approved", "ada (account root)")] == reported(world, run)
    assert ["escalated", "approved", "succeeded"] == [outcome for _, _, outcome, _ in world.audit()]


def test_the_repeated_call_goes_on_with_an_approved_run(world):
    flow, run = stopped(world, "p")
    assert "escalated" == world.runs.call(flow, CALL, STAFF).state
    approve(world.database, run, audit=world.entries, by="ada", account="root")
    assert ("succeeded", run) == ((again := world.runs.call(flow, CALL, STAFF)).state, again.run)


def test_an_approval_is_for_one_policy_and_another_one_asks_again(world):
    flow, run = stopped(world, "p", "q")
    approve(world.database, run, audit=world.entries, by="ada", account="root")
    again = world.runs.resume(flow, run)
    assert ("escalated", True) == (again.state, (again.message or "").startswith("q:"))
    approve(world.database, run, audit=world.entries, by="bob", account="root")
    assert "succeeded" == world.runs.resume(flow, run).state
    assert [("p", "approved", "ada (account root)"), ("q", "approved", "bob (account root)")] == reported(world, run)


def test_an_approval_is_for_one_run(world):
    flow, run = stopped(world, "p")
    approve(world.database, run, audit=world.entries, by="ada", account="root")
    assert "escalated" == world.runs.call(flow, {**CALL, "id": "b"}, STAFF).state


def test_a_declined_run_has_ended_and_writes_nothing(world):
    flow, run = stopped(world, "p")
    decline(world.database, run, audit=world.entries, by="ada", account="root", why="not today")
    ended = world.runs.resume(flow, run)
    assert ("failed", "declined", "a person has declined it: not today") == (ended.state, ended.code, ended.message)
    assert [] == world.texts()
    assert [("p", "declined", "ada (account root)")] == reported(world, run)
    assert [
        ("tool", "ada (account root)", "declined", None),
        ("tool", "s1", "failed", "declined"),
    ] == world.audit()[1:]


@pytest.mark.rule("001-deduplicate")
@pytest.mark.parametrize("commits", [False, True])
def test_a_declined_run_that_committed_nothing_gives_its_key_free(world, commits):
    check = ("policyCheck", {"policy": "p"})
    nodes = {"a": BEGIN, "b": log("one"), "c": COMMIT, "d": check} if commits else NODES
    flow = world.flow(nodes, chain(*nodes), policies=[] if commits else ["p"], idempotencyKey="input.id")
    run = str(world.runs.call(flow, CALL, STAFF).run)
    decline(world.database, run, audit=world.entries, by="ada", account="root")
    other = world.runs.call(flow, CALL, Actor(id="ann", roles=STAFF.roles))
    assert ("idempotencyConflict" if commits else None) == other.code


WITH_SUBJECTS = replace(STAFF, turn=Turn("flowtools", "s1", auth=TurnAuth(subjects={"user": "shop:user:T1:Zoé"})))


@pytest.mark.parametrize("by", ["s1", " S1 ", "\uff531", "shop:user:t1:zoé", "Zoe\u0301"])
@pytest.mark.parametrize("member", ["by", "account"])
def test_the_caller_of_a_run_cannot_approve_it_and_may_withdraw_it(world, by, member):
    flow = world.flow(NODES, chain(*NODES), policies=["p"], idempotencyKey="input.id")
    run = str(world.runs.call(flow, CALL, WITH_SUBJECTS).run)
    given = {"by": "ada", "account": "root", member: by}
    with pytest.raises(ValueError, match="its own caller cannot approve a run"):
        approve(world.database, run, audit=world.entries, **given)
    assert ([("p", "asked", None)], ["escalated"]) == (reported(world, run), [each[2] for each in world.audit()])
    decline(world.database, run, audit=world.entries, **given)
    assert "declined" == world.runs.find(run).code


@pytest.mark.parametrize("second", [approve, decline])
@pytest.mark.parametrize("first", [approve, decline])
def test_a_decision_is_made_once(world, first, second):
    _, run = stopped(world, "p")
    first(world.database, run, audit=world.entries, by="ada", account="root")
    with pytest.raises(ValueError, match="the run does not wait for a decision"):
        second(world.database, run, audit=world.entries, by="bob", account="root")
    assert {"ada (account root)"} == {by for _, _, by in reported(world, run)}


@pytest.mark.parametrize("act", [approve, decline])
def test_a_run_that_waits_for_no_decision_is_refused(world, act):
    flow = world.flow(NODES, chain(*NODES), idempotencyKey="input.id")
    done = world.runs.call(flow, CALL, STAFF)
    for run, why in ((str(done.run), "the run does not wait for a decision"), ("unknown", "no run with this id")):
        with pytest.raises(ValueError, match=why):
            act(world.database, run, audit=world.entries, by="ada", account="root")
