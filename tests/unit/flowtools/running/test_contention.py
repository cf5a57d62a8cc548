"""Many calls change one row: each answer is one change, and a call that is refused has changed nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest
from psycopg import errors
from sqlalchemy import Connection, event
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from oauthbroker.flowtools.entities.database import Database, apply, is_lost_race, plan
from oauthbroker.flowtools.risk.audit_types import RunDecided
from oauthbroker.flowtools.running import approvals
from oauthbroker.flowtools.running.contract import FlowRuns
from oauthbroker.flowtools.running.lifecycle import Tries, again
from tests.kit.forms import is_long
from tests.unit.flowtools.entity_kit import entity_of, url_of
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, STAFF, Entries, World, log, policy

THREADS, CALLS = (40, 400) if is_long() else (20, 40)
COUNT: dict[str, Any] = {"name": "Count", "fields": {"value": {"type": "number", "required": True}}}
ADD = {"entity": "Count", "operation": "update", "filter": {"id": "input.id"}, "fields": {"value": "count.value + 1"}}
NODES = {
    "r": ("read", {"entity": "Count", "filter": {"id": "input.id"}}),
    "b": BEGIN,
    "w": ("write", ADD),
}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, request, tmp_path)


@pytest.fixture
def world(url: str) -> Iterator[World]:
    made = World(url, COUNT, sleep=None)
    yield made
    made.database.engine.dispose()


@pytest.mark.slow
@pytest.mark.rule("001-concurrency")
@pytest.mark.parametrize("strategy", ["optimistic", "pessimistic"])
def test_as_many_calls_are_answered_as_changes_are_made(world: World, strategy: str) -> None:
    world.add("Count", "a", value=0)
    flow = world.flow(NODES, chain(*NODES), concurrencyStrategy=strategy)
    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(lambda _: world.runs.call(flow, {"id": "a"}, STAFF), range(CALLS)))
    assert [] == world.unended()
    states = Counter((each.state, each.code) for each in results)
    (row,) = world.rows("Count")
    assert states["succeeded", None] == row["value"]
    assert states.keys() <= {("succeeded", None), ("failed", "contention")}
    assert states["succeeded", None] >= CALLS * 0.9


@pytest.mark.rule("001-concurrency")
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(
    "url", ["postgresql"], indirect=True
)  # the one writer of SQLite loses no race behind its begin
def test_a_call_that_loses_each_race_has_ended_and_changes_nothing_later(
    url: str, world: World, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    """Its key is free, so that the caller can come again."""
    world.add("Count", "a", value=0)
    flow = world.flow(NODES, chain(*NODES), idempotencyKey="input.id" if keyed else None)
    with monkeypatch.context() as patch:
        patch.setattr("oauthbroker.flowtools.running.lifecycle._SECONDS", 0.2)
        event.listen(world.database.engine, "begin", lambda each: each.exec_driver_sql("SET lock_timeout = '20ms'"))
        database = Database(url)
        with database.engine.begin() as other:
            other.exec_driver_sql("LOCK TABLE entity_count IN SHARE MODE")  # each write waits for it, and loses
            result = world.runs.call(flow, {"id": "a"}, STAFF)
    database.engine.dispose()
    assert ("failed", "contention") == (result.state, result.code)
    assert ([], 0) == (world.unended(), world.rows("Count")[0]["value"])
    again = world.runs.call(flow, {"id": "a"}, STAFF)
    assert ("succeeded", True) == (again.state, again.run != result.run)
    assert 1 == world.rows("Count")[0]["value"]


@pytest.mark.slow
@pytest.mark.parametrize("decision", ["cancel", "decline", "approve"])
def test_of_several_persons_who_decide_at_once_one_decides_and_the_others_are_told(url: str, decision: str) -> None:
    """On a server one transaction fails as a lost race, and is made again: it then finds the decision."""
    stops = policy(action="escalate", message="too large")
    made, start = World(url, policies=[stops], sleep=None), Barrier(8)
    flow = made.flow({"b": BEGIN, "w": log("one")}, chain("b", "w"), policies=["p"])
    for _ in range(5):
        run = str(made.runs.call(flow, {"id": "a", "amount": 6}, STAFF).run)

        def decide(number: int, run: str = run) -> str:
            database = Database(url)  # of a process of its own
            start.wait()
            try:
                getattr(approvals, decision)(database, run, by=f"p{number}", account="root", audit=made.entries)
            except ValueError as error:
                return str(error)
            finally:
                database.engine.dispose()
            return ""

        with ThreadPoolExecutor(8) as pool:
            told = list(pool.map(decide, range(8)))
        assert 1 == told.count(""), told
        assert all("cancelled" in each or "does not wait" in each for each in told if each), told
        assert 1 == len([each for each in made.entries.of(RunDecided) if each.run == run])
    made.database.engine.dispose()


@pytest.mark.slow
def test_processes_that_make_the_tables_at_once_have_them(url: str) -> None:
    """Of entities, and of runs. Each command and each worker may be the first one."""
    databases, start = [Database(url) for _ in range(8)], Barrier(8)

    def make(database: Database) -> None:
        start.wait()
        again(apply)(database, [entity_of(COUNT)])
        FlowRuns(database, [entity_of(COUNT)], audit=Entries())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, databases))
    assert [] == plan(databases[0], [entity_of(COUNT)])
    for database in databases:
        database.engine.dispose()


@pytest.mark.parametrize("error", [errors.DuplicateTable, errors.DuplicateObject])
def test_a_table_or_its_type_that_another_process_just_makes_is_a_lost_race(error: type[Exception]) -> None:
    """PostgreSQL tells the same race in two ways."""
    assert is_lost_race(ProgrammingError("create table", {}, error("there")))


@pytest.mark.parametrize("what", ["a statement", "the commit"])
def test_tries_wait_longer_and_longer_and_end_at_a_time(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A commit that loses its race has committed nothing: it is one more that was lost."""
    monkeypatch.setattr("oauthbroker.flowtools.running.lifecycle._SECONDS", 0.2)
    waits, until = list[float](), monotonic() + 5

    def lost() -> None:
        assert monotonic() < until, "it ends"
        raise PoolTimeout("no connection")

    tries = Tries(waits.append)
    with pytest.raises(PoolTimeout):
        tries(lost if what == "a statement" else lambda: tries.commit(cast("Connection", SimpleNamespace(commit=lost))))
    assert 3 < len(waits)
    assert all(0 <= wait <= min(0.5, 0.004 * 2**at) for at, wait in enumerate(waits[:20]))
