"""After the erasure of its caller, and after its retention, a run keeps its end, and no personal data."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from oauthbroker import Turn, TurnAuth
from oauthbroker.audit.formatting import rest_of
from oauthbroker.flowtools.running import approvals, erasing, journal
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.ports import Effect, EffectRefused, Ports
from oauthbroker.flowtools.running.working import RunResult
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.plugins import SubjectRecords
from tests.kit.audit import KEYS
from tests.kit.forms import is_long
from tests.unit.flowtools.entity_kit import sqlite_url
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, INPUT, World, log, policy

pytestmark = pytest.mark.rule("run-erasure")
ANN, BOB = "shop:user:ann", "shop:user:bob"
CANARY, SAID = "canary-of-the-input", "canary-of-the-provider"
DAY = 86_400.0


def actor(name: str, *, subject: bool = True) -> Actor:
    turn = Turn("flowtools", "test", auth=TurnAuth(subjects={"user": f"shop:user:{name}"})) if subject else None
    return Actor(id=name, roles=frozenset({"staff"}), turn=turn)


@pytest.fixture(params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = sqlite_url(tmp_path)
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        server.run(f'CREATE DATABASE "{tmp_path.name.lower()}"')
        url = server.url(tmp_path.name.lower()).reveal()
    made = World(url)
    yield made
    made.database.engine.dispose()


def paying(world: World, **more: Any) -> ReadyFlow:
    """A flow whose result and steps have what the provider said."""
    pay = ("payment", {"provider": "stripe", "fields": {"amount": "input.n", "note": "input.note"}})
    schema: dict[str, Any] = {
        **INPUT,
        "properties": {"id": {"type": "string"}, "n": {"type": "number"}, "note": {"type": "string"}},
    }
    given = {"input": schema, "idempotencyKey": "input.id", "policies": ["paymentRollback"], **more}
    return world.flow({"p": pay}, chain("p"), **given)


def paid(world: World, key: str, by: Actor | None, flow: ReadyFlow | None = None) -> RunResult:
    world.shop.answers.append({"receipt": SAID})
    return world.runs.call(flow or paying(world), {"id": key, "n": 3, "note": CANARY}, by)


def tables(world: World) -> dict[str, list[Any]]:
    with world.database.transaction() as connection:
        return {
            name: [tuple(row) for row in connection.execute(sa.select(table))]
            for name, table in journal.META.tables.items()
        }


def texts_of(world: World, *needles: str) -> dict[str, list[str]]:
    """Return the tables with one of these texts, and the texts."""
    found = {name: [each for each in needles if each in repr(rows)] for name, rows in tables(world).items()}
    return {name: texts for name, texts in found.items() if texts}


def audits(world: World) -> list[tuple[str | None, str]]:
    return [(who, outcome) for _, who, outcome, _ in world.audit()]


def test_nothing_of_a_caller_is_left_but_how_their_runs_ended_and_other_callers_keep_theirs(world: World) -> None:
    mine = [paid(world, "a", actor("ann")), paid(world, "b", actor("ann", subject=False))]
    world.shop.answers.append(EffectRefused(f"{SAID} says no"))
    failed = world.runs.call(paying(world), {"id": "c", "n": 3, "note": CANARY}, actor("ann"))
    world.runs.call(paying(world), {"id": "c", "n": "no number"}, actor("ann"))
    theirs = paid(world, "d", actor("bob"))
    before = {name: [row for row in rows if str(theirs.run) in row] for name, rows in tables(world).items()}
    assert ["succeeded", "succeeded", "failed"] == [each.state for each in (*mine, failed)]

    assert SubjectRecords(records=3) == erasing.erase(world.database, ANN, audit=world.entries, dry_run=True)
    assert texts_of(world, ANN), "a dry run changes nothing"
    assert SubjectRecords(records=3) == erasing.erase(world.database, ANN, audit=world.entries)
    assert SubjectRecords() == erasing.erase(world.database, ANN, audit=world.entries)

    assert {} == texts_of(world, ANN, '"ann"', "'ann'")
    after = {name: [row for row in rows if str(theirs.run) in row] for name, rows in tables(world).items()}
    assert before == after
    assert {CANARY, SAID} == {text for texts in texts_of(world, CANARY, SAID).values() for text in texts}, "of bob"
    assert SubjectRecords(records=1) == erasing.erase(world.database, BOB, audit=world.entries)
    assert {} == texts_of(world, CANARY, SAID, BOB, '"bob"', "'bob'")


def test_the_audit_log_names_a_person_by_one_pseudonym_from_the_first(world: World) -> None:
    """Its lines are chained, so that an erasure cannot change them."""
    for key, who in (("a", "ann"), ("b", "ann"), ("c", "bob")):
        paid(world, key, actor(who))
    world.runs.call(paying(world), {"id": 1}, actor("ann"))
    world.runs.call(paying(world), {"id": 1}, None)
    erasing.erase(world.database, ANN, audit=world.entries)
    lines = [json.loads("{" + rest_of(each, KEYS.name) + "}") for each in world.entries]
    callers = [(each["actor"], each["subject"]) for each in lines if "subject" in each]
    ann, bob = ((KEYS.name("person", name), KEYS.name("person", f"shop:user:{name}")) for name in ("ann", "bob"))
    assert [ann, ann, bob, ann, (None, None)] == callers
    assert [] == [text for text in (ANN, '"ann"', '"bob"', CANARY, SAID) if text in json.dumps(lines)]


def test_the_key_of_an_erased_run_stays_taken_and_cannot_be_guessed_without_the_databases_secret(world: World) -> None:
    first = paid(world, "a", actor("ann"))
    assert 1 == len(world.shop.sent)
    with world.database.transaction() as connection:
        plain = connection.execute(sa.select(journal.RUN.c.key)).scalar_one()
    erasing.erase(world.database, ANN, audit=world.entries)
    with world.database.transaction() as connection:
        assert plain != connection.execute(sa.select(journal.RUN.c.key)).scalar_one()
    for who in (actor("ann"), actor("bob")):
        again = paid(world, "a", who)
        assert ("failed", "answerGone") == (again.state, again.code)
    assert 1 == len(world.shop.sent), "nothing is charged twice"
    assert first.run == world.runs.find(str(first.run)).id


def test_an_event_of_an_erased_run_starts_no_other_one(world: World) -> None:
    flow = paying(world, idempotencyKey=None)
    data = {"id": "a", "n": 3, "note": CANARY}
    run = world.runs.accept(flow, data, actor("ann"), event="webhook:1")
    world.runs.go_on(flow, run)
    erasing.erase(world.database, ANN, audit=world.entries)
    again = world.runs.accept(flow, data, actor("ann"), event="webhook:1")
    assert (run.id, "succeeded", 1) == (again.id, world.runs.go_on(flow, again).state, len(world.shop.sent))


def test_calls_of_an_api_key_or_a_service_are_erased_by_their_user_and_their_name_stays(world: World) -> None:
    """The id is that of a program, and many persons may stand behind it."""
    of_ann = Actor(id="key:shop", roles=frozenset({"staff"}), turn=actor("ann").turn)
    paid(world, "a", of_ann)
    paid(world, "b", Actor(id="key:shop", roles=frozenset({"staff"})))
    assert SubjectRecords(records=1) == erasing.erase(world.database, ANN, audit=world.entries)
    assert {"key:shop"} == {who for who, _ in audits(world)}
    assert {} == texts_of(world, ANN)
    assert 1 == repr(tables(world)["flow_run"]).count(CANARY)


class Erases:
    """A provider at which the user asks for the erasure, while the run waits for its answer."""

    takes_keys = True

    def __init__(self) -> None:
        self.world: World | None = None
        self.sent, self.reported = list[Effect](), list[SubjectRecords]()

    def send(self, effect: Effect) -> Any:
        self.sent.append(effect)
        if self.world is not None and effect.operation == "charge":
            self.reported.append(erasing.erase(self.world.database, ANN, audit=self.world.entries))
        return {"receipt": SAID}


def test_a_run_on_which_a_process_works_ends_first_and_its_charge_is_refunded(tmp_path: Path) -> None:
    shop = Erases()
    world = shop.world = World(sqlite_url(tmp_path), ports=Ports(payments={"stripe": shop}))
    pay = ("payment", {"provider": "stripe", "fields": {"amount": "input.n"}})
    nodes = {"p": pay, "t": BEGIN, "l": log("never"), "c": COMMIT}
    flow = world.flow(nodes, chain(*nodes), idempotencyKey="input.id", policies=["paymentRollback"])
    result = world.runs.call(flow, {"id": "a", "n": 3}, actor("ann"))
    assert ([SubjectRecords(records=1, ending=1)], "failed", "cancelled") == (shop.reported, result.state, result.code)
    assert (["charge", "refund"], []) == ([each.operation for each in shop.sent], world.texts())
    assert texts_of(world, ANN), "it had not ended then"
    assert SubjectRecords(records=1) == erasing.erase(world.database, ANN, audit=world.entries)
    assert {} == texts_of(world, ANN, SAID, "'ann'", '"ann"')
    assert ("p: the charge was refunded",) == world.runs.find(str(result.run)).notes
    with pytest.raises(ValueError, match="no longer kept"):
        approvals.retry(world.database, str(result.run), audit=world.entries, by="Bo", account="bo")
    world.database.engine.dispose()


@pytest.mark.parametrize("by", ["a person", "an erasure"])
def test_an_erasure_of_a_run_that_is_cancelled_already_counts_it_as_ending(world: World, by: str) -> None:
    run = world.runs.accept(paying(world), {"id": "a", "n": 3}, actor("ann"))
    if by == "a person":
        approvals.cancel(world.database, run.id, audit=world.entries, by="Bo", account="bo")
    else:
        erasing.erase(world.database, ANN, audit=world.entries)
    before = len(list(world.entries))
    assert SubjectRecords(records=1, ending=1) == erasing.erase(world.database, ANN, audit=world.entries)
    assert before == len(list(world.entries)), "it is not cancelled twice"


def test_a_run_that_waits_for_a_decision_ends_at_once(tmp_path: Path) -> None:
    ask = policy(name="ask", action="escalate", condition="amount > 2")
    world = World(sqlite_url(tmp_path), policies=[ask])
    flow = world.flow({"t": BEGIN, "l": log("never")}, chain("t", "l"), policies=["ask"])
    asked = world.runs.call(flow, {"id": CANARY, "amount": 3}, actor("ann"))
    assert "escalated" == asked.state
    assert SubjectRecords(records=1) == erasing.erase(world.database, ANN, audit=world.entries)
    ended = world.runs.find(str(asked.run))
    assert ("failed", "cancelled", None) == (ended.state, ended.code, ended.input)
    assert {} == texts_of(world, ANN, CANARY, "'ann'", '"ann"')
    world.database.engine.dispose()


def test_a_run_that_ended_before_its_retention_loses_input_result_and_steps(world: World) -> None:
    old, new = paid(world, "a", actor("ann")), paid(world, "b", actor("bob"))
    with world.database.transaction() as connection:
        ended = sa.update(journal.RUN).where(journal.RUN.c.id == old.run)
        connection.execute(ended.values(ended=journal.RUN.c.ended - 91 * DAY))
    assert (1, 0) == (erasing.expire(world.database, 90), erasing.expire(world.database, 90))
    left = tables(world)
    assert [new.run] == [row[0] for row in left["flow_step"]]
    assert 1 == repr(left).count(CANARY)
    assert [("ann", "succeeded"), ("bob", "succeeded")] == audits(world)
    again = paid(world, "a", actor("ann"))
    assert ("answerGone", 2) == (again.code, len(world.shop.sent))
    assert SubjectRecords(records=1) == erasing.erase(world.database, ANN, audit=world.entries), (
        "the person of an old run is still found"
    )
    assert {} == texts_of(world, ANN, "'ann'", '"ann"')


def test_retention_takes_many_runs_in_turns(world: World) -> None:
    with world.database.transaction() as connection:
        run: dict[str, Any] = {
            "tool": "t",
            "digest": "d",
            "state": "succeeded",
            "origin": "call",
            "input": json.dumps({"a": CANARY}),
        }
        run |= {"notes": "[]", "version": 1, "taken": 1, "takes": 0, "generation": 0, "freed": 0, "started": 1.0}
        rows = [{**run, "id": str(number), "ended": 2.0 + number} for number in range(1_200)]
        connection.execute(sa.insert(journal.RUN), rows)
    assert [500, 500, 200, 0] == [erasing.expire(world.database, 1) for _ in range(4)]
    assert {} == texts_of(world, CANARY)


@pytest.mark.slow
def test_erasures_beside_calls_leave_nothing_and_charge_nothing_twice(world: World) -> None:
    """Three threads call with the same keys, two erase meanwhile."""
    flow, keys, over = paying(world), [f"k{number}" for number in range(12 if is_long() else 6)], threading.Event()

    def calls(_: int) -> list[RunResult]:
        return [world.runs.call(flow, {"id": key, "n": 3, "note": CANARY}, actor("ann")) for key in keys]

    def erases(_: int) -> int:
        found = 0
        while not over.is_set():
            found += erasing.erase(world.database, ANN, audit=world.entries).records
        return found

    with ThreadPoolExecutor(5) as pool:
        erasers = [pool.submit(erases, number) for number in range(2)]
        try:
            results = [result for answers in pool.map(calls, range(3)) for result in answers]
        finally:
            over.set()
        assert sum(each.result() for each in erasers) > 0
    erasing.erase(world.database, ANN, audit=world.entries)
    assert {} == texts_of(world, CANARY, ANN, "'ann'", '"ann"')
    payments = [each.key for each in world.shop.sent if each.operation == "charge"]
    assert len(set(payments)) == len(payments), "no key is charged twice"
    under_way = {("running", None), ("failing", None)}
    ended = {("succeeded", None), ("failed", "cancelled"), ("failed", "answerGone")}
    assert set() == {(each.state, each.code) for each in results} - under_way - ended


def test_the_files_of_sqlite_hold_no_erased_value(tmp_path: Path) -> None:
    world = World(sqlite_url(tmp_path))
    for number in range(30):
        paid(world, f"key-{number}", actor("ann"))
    erasing.erase(world.database, ANN, audit=world.entries)
    files = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert [] == [(name, text) for name, raw in files.items() for text in (CANARY, SAID, ANN) if text.encode() in raw]
    world.database.engine.dispose()
