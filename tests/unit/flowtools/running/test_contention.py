"""Many calls change one row: each answer is one change, and a call that is refused has changed nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import TimeoutError as PoolTimeout

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.running.lifecycle import Tries
from tests.kit.forms import is_long
from tests.unit.flowtools.entity_kit import sqlite_url
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, STAFF, World

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
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    server = request.getfixturevalue("postgres_server")
    server.run(f'create database "{tmp_path.name.lower()}"')
    found: str = server.url(tmp_path.name.lower()).reveal()
    return found


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


def test_tries_wait_longer_and_longer_and_end_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oauthbroker.flowtools.running.lifecycle._SECONDS", 0.2)
    waits = list[float]()

    def lost() -> None:
        raise PoolTimeout("no connection")

    with pytest.raises(PoolTimeout):
        Tries(waits.append)(lost)
    assert 3 < len(waits)
    assert all(0 <= wait <= min(0.5, 0.004 * 2**at) for at, wait in enumerate(waits[:20]))
