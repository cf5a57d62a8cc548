"""Each act of a run is an entry of the audit log before it, and without the entry there is no act."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import BrokerError, Code, Turn, TurnAuth
from oauthbroker.flowtools.risk.audit_types import (
    TYPES,
    EffectSent,
    FlowCalled,
    FlowCallRefused,
    RunDecided,
    RunStopped,
)
from oauthbroker.flowtools.running import approvals, erasing
from oauthbroker.flowtools.running.auditing import PROGRAMS, audit_from_threads, of_caller
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.lifecycle import MOST_TAKES
from oauthbroker.flowtools.running.ports import AnswerLost, NotSent
from oauthbroker.flowtools.specification.failures import Actor
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, STAFF, Entries, World, log, policy, world_in

PAY = ("payment", {"provider": "stripe", "fields": {"amount": "input.amount"}})
MAIL = ("email", {"to": "'bob@example.com'", "subject": "'s'", "body": "input.id"})
FAILS = ("assert", {"expression": "input.amount < 8.0", "message": "too much"})
NODES = {"a": BEGIN, "b": log("one"), "c": COMMIT, "p": PAY, "m": MAIL, "d": BEGIN, "e": log("two"), "f": FAILS}
CALL, DEAR, LARGE = {"id": "canary", "amount": 3}, {"id": "canary", "amount": 9}, {"id": "canary", "amount": 50}
ADA = {"by": "Ada", "account": "root"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return world_in(tmp_path, policies=[policy(name="ask", action="escalate", condition="amount > 20")])


def flow_of(world: World, nodes: dict[str, Any] = NODES) -> ReadyFlow:
    return world.flow(nodes, chain(*nodes), idempotencyKey="input.id", policies=["ask", "paymentRollback"])


def told(entry: Any) -> str:
    """Return the words of an entry that say what happens."""
    words = [type(entry).__name__]
    words += [
        str(getattr(entry, name)) for name in ("node", "operation", "state", "decision", "code") if name in vars(entry)
    ]
    return " ".join(word for word in words if word != "None")


STORIES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a run that succeeds": (CALL, ["FlowCalled", "EffectSent p charge", "EffectSent m", "RunStopped succeeded"]),
    "a run that fails behind a charge": (
        DEAR,
        ["FlowCalled", "EffectSent p charge", "EffectSent m", "EffectSent p refund", "RunStopped failed assertFailed"],
    ),
    "a run that a policy stops": (LARGE, ["FlowCalled", "RunStopped escalated"]),
    "a call that is refused": ({"id": 1}, ["FlowCallRefused inputInvalid"]),
}


@pytest.mark.rule("000-contract-8")
@pytest.mark.parametrize("story", STORIES)
def test_each_step_of_a_run_is_an_entry(world: World, story: str) -> None:
    data, expected = STORIES[story]
    result = world.runs.call(flow_of(world), data, STAFF)
    assert expected == [told(each) for each in world.entries]
    assert {("tool", 1)} == {(each.tool, each.version) for each in world.entries}
    assert {result.run} == {getattr(each, "run", None) for each in world.entries}
    assert not any("canary" in repr(each) for each in world.entries), "an input"


def test_a_repeated_call_is_an_entry_of_the_same_run(world: World) -> None:
    run = world.runs.call(flow_of(world), CALL, STAFF).run
    assert run == world.runs.call(flow_of(world), CALL, STAFF).run
    assert [run, run] == [each.run for each in world.entries.of(FlowCalled)]


@pytest.mark.parametrize(
    ("act", "decision", "more"),
    [
        (approvals.approve, "approved", []),
        (approvals.decline, "declined", ["RunStopped failed declined"]),
        (approvals.cancel, "cancelled", ["RunStopped failed cancelled"]),
    ],
)
def test_a_decision_is_an_entry_before_what_follows_from_it(
    world: World, act: Callable[..., Any], decision: str, more: list[str]
) -> None:
    run = str(world.runs.call(flow_of(world), LARGE, STAFF).run)
    before = len([*world.entries])
    act(world.database, run, **ADA, audit=world.entries)
    assert [f"RunDecided {decision}", *more] == [told(each) for each in world.entries][before:]
    (decided,) = world.entries.of(RunDecided)
    assert (run, "root", "Ada") == (decided.run, decided.actor, decided.by)


def test_a_retry_and_the_cancel_of_an_erasure_are_entries(world: World) -> None:
    world.mail.answers = [AnswerLost("no answer")]
    run = str(world.runs.call(flow_of(world), CALL, Actor(id="ann", roles=STAFF.roles)).run)
    approvals.retry(world.database, run, **ADA, audit=world.entries, happened=True)
    erasing.erase(world.database, "ann", audit=world.entries)
    assert [("retried", "root"), ("cancelled", None)] == [
        (each.decision, each.actor) for each in world.entries.of(RunDecided)
    ]


def test_each_attempt_of_an_effect_is_an_entry_and_names_its_provider(world: World) -> None:
    world.shop.answers = [NotSent("not now")]
    nodes = {"r": ("retry", {"attempts": 2, "backoffSeconds": 0}), "p": PAY}
    world.runs.call(flow_of(world, nodes), CALL, STAFF)
    sent = world.entries.of(EffectSent)
    assert [("payment", "charge", "stripe", None, 1), ("payment", "charge", "stripe", None, 2)] == [
        (each.kind, each.operation, each.provider, each.app, each.attempt) for each in sent
    ]


def test_an_effect_comes_behind_its_entry(world: World) -> None:
    seen: list[list[str]] = []

    class Watching:
        takes_keys = True

        def send(self, effect: Any) -> Any:
            seen.append([each.operation for each in world.entries.of(EffectSent) if each.node == "p"])
            return {}

    object.__setattr__(world.runs._ports, "payments", {"stripe": Watching()})
    assert "failed" == world.runs.call(flow_of(world), DEAR, STAFF).state
    assert [["charge"], ["charge", "refund"]] == seen


def test_an_api_key_and_a_service_are_named_and_a_person_is_a_member_that_becomes_a_pseudonym() -> None:
    subjects = Turn("flowtools", "x", auth=TurnAuth(subjects={"user": "shop:user:ann"}))
    for program in PROGRAMS:
        of_program = of_caller(Actor(id=f"{program}shop", turn=subjects))
        assert {"caller": f"{program}shop", "actor": None, "subject": "shop:user:ann"} == of_program
    assert {"caller": None, "actor": "ann", "subject": None} == of_caller(Actor(id="ann"))
    assert {None} == {*of_caller(None).values()}


def test_no_entry_has_a_member_for_a_value() -> None:
    names = {each.name for kind in TYPES for each in fields(kind)}
    persons, named = {"actor", "by", "subject"}, {"tool", "version", "run", "caller", "node", "app", "provider"}
    assert names <= persons | named | {"kind", "operation", "attempt", "state", "code", "decision", "digest", "finding"}


# The log takes no entry.


def refused(act: Callable[[], object]) -> None:
    with pytest.raises(BrokerError) as error:
        act()
    assert Code.STORE_UNAVAILABLE is error.value.code


class Full(Entries):
    """A log that is full before an entry of one type, until it is emptied."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    def __call__(self, entry: Any) -> None:
        self.refuses = bool(self.at) and told(entry).startswith(self.at)
        super().__call__(entry)


@pytest.mark.parametrize("at", ["FlowCalled", "FlowCallRefused"])
def test_a_call_without_an_entry_is_no_run(tmp_path: Path, at: str) -> None:
    world = world_in(tmp_path, audit=Full(at))
    flow = world.flow({"a": BEGIN, "l": log("x")}, chain("a", "l"))
    refused(lambda: world.runs.call(flow, {"id": "a"} if at == "FlowCalled" else {}, STAFF))
    assert ([], [], []) == (world.unended(), world.texts(), [*world.entries])


@pytest.mark.parametrize("way", ["p charge", "m", "p refund"])
def test_an_effect_without_an_entry_does_not_happen_and_its_run_goes_on_when_the_log_takes_entries(
    tmp_path: Path, way: str
) -> None:
    full = Full(f"EffectSent {way}")
    world = world_in(
        tmp_path,
        audit=full,
        lease_seconds=-60.0,
        policies=[policy(name="ask", action="escalate", condition="amount > 20")],
    )
    flow, data = flow_of(world), DEAR if way == "p refund" else CALL
    first = world.runs.call(flow, data, STAFF)
    sent = [each.operation for each in world.shop.sent] + ["m" for _ in world.mail.sent]
    assert {"p charge": [], "m": ["charge"], "p refund": ["charge", "m"]}[way] == sent
    run = str(first.run)
    for _ in range(MOST_TAKES * 2):
        looked_at(world, run, flow)
    assert ([run], sent) == (
        world.unended(),
        [each.operation for each in world.shop.sent] + ["m" for _ in world.mail.sent],
    )
    full.at = ""
    end = ["failed", "assertFailed"] if way == "p refund" else ["succeeded", None]
    ended = world.runs.work(run, lambda _: flow)
    assert (end, []) == ([ended.state, ended.code], world.unended())
    charges = ["charge", "refund"] if way == "p refund" else ["charge"]
    assert (charges, 1) == ([each.operation for each in world.shop.sent], len(world.mail.sent))


def looked_at(world: World, run: str, flow: ReadyFlow) -> None:
    """Look at the run as another process does."""
    with suppress(BrokerError):
        world.runs.work(run, lambda _: flow)


@pytest.mark.parametrize("data", [CALL, DEAR], ids=["succeeds", "fails"])
def test_a_run_without_an_entry_of_its_end_has_not_ended_and_repeats_no_effect(
    tmp_path: Path, data: dict[str, Any]
) -> None:
    full = Full("RunStopped")
    world = world_in(
        tmp_path,
        audit=full,
        lease_seconds=-60.0,
        policies=[policy(name="ask", action="escalate", condition="amount > 20")],
    )
    flow = flow_of(world)
    run = str(world.runs.call(flow, data, STAFF).run)
    for _ in range(MOST_TAKES * 2):
        looked_at(world, run, flow)
    assert ([run], ["one"]) == (world.unended(), world.texts())
    full.at = ""
    ended = world.runs.work(run, lambda _: flow)
    assert ([ended.state], []) == (world.entries.ends(run), world.unended())
    assert (1, 1) == (len({each.key for each in world.shop.sent if each.operation == "charge"}), len(world.mail.sent))


def test_a_run_that_fails_without_an_entry_keeps_its_code_until_the_log_takes_one(tmp_path: Path) -> None:
    full = Full("RunStopped")
    world = world_in(tmp_path, audit=full, lease_seconds=-60.0)
    flow = world.flow({"f": FAILS}, [], idempotencyKey="input.id")
    run = str(world.runs.call(flow, DEAR, STAFF).run)
    for _ in range(MOST_TAKES * 2):
        looked_at(world, run, flow)
    full.at = ""
    assert ("failed", "assertFailed") == ((ended := world.runs.work(run, lambda _: flow)).state, ended.code)


@pytest.mark.parametrize("act", [approvals.approve, approvals.decline, approvals.cancel])
def test_a_decision_without_an_entry_is_none(world: World, act: Callable[..., Any]) -> None:
    flow = flow_of(world)
    run = str(world.runs.call(flow, LARGE, STAFF).run)
    refused(lambda: act(world.database, run, **ADA, audit=Full("RunDecided")))
    assert ("escalated", []) == (world.runs.find(run).state, world.entries.of(RunDecided))
    approvals.approve(world.database, run, **ADA, audit=world.entries)
    assert "approved" == world.entries.of(RunDecided)[0].decision


def test_an_erasure_whose_cancel_has_no_entry_erases_nothing(world: World) -> None:
    run = str(world.runs.call(flow_of(world), LARGE, Actor(id="ann", roles=STAFF.roles)).run)
    refused(lambda: erasing.erase(world.database, "ann", audit=Full("RunDecided")))
    assert ("escalated", "ann") == ((found := world.runs.find(run)).state, found.caller)


# The threads of runs and the event loop of the broker.


async def test_entries_of_threads_are_written_on_the_brokers_event_loop() -> None:
    here, seen = threading.get_ident(), list[tuple[int, Any]]()
    write = audit_from_threads(lambda entry: seen.append((threading.get_ident(), entry)))
    entry = FlowCallRefused(tool="t", version=1, code="forbidden", caller=None, actor="ann", subject=None)
    await asyncio.gather(*(asyncio.to_thread(write, entry) for _ in range(20)))
    assert [(here, entry)] * 20 == seen


async def test_a_refused_entry_raises_in_the_thread(world: World) -> None:
    def refuse(_: object) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    write = audit_from_threads(refuse)
    stopped = RunStopped(tool="t", version=1, run="r", state="failed", code=None)
    await asyncio.to_thread(refused, lambda: write(stopped))


async def test_an_entry_that_no_log_takes_is_not_said_to_be_an_outage() -> None:
    def refuse(_: object) -> None:
        raise BrokerError(Code.REQUEST_INVALID)

    stopped = RunStopped(tool="t", version=1, run="r", state="failed", code=None)
    with pytest.raises(BrokerError) as caught:
        await asyncio.to_thread(audit_from_threads(refuse), stopped)
    assert caught.value.code is Code.REQUEST_INVALID


def test_without_the_brokers_event_loop_no_entry_is_written() -> None:
    async def made() -> Any:
        return audit_from_threads(lambda _: None)

    write = asyncio.run(made())
    refused(lambda: write(RunStopped(tool="t", version=1, run="r", state="failed", code=None)))
