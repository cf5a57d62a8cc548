"""Schedules: one run for each firing, however many processes look; missed firings; the database's clock."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from oauthbroker.flowtools.entities.database import Database, apply
from oauthbroker.flowtools.entities.definition import load_entity
from oauthbroker.flowtools.entities.rows import Rows
from oauthbroker.flowtools.running.contract import FlowRuns
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.serving.schedules import fire, latest_firing
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.flowtools.specification.spec import load_tool
from oauthbroker.flowtools.specification.triggers import Trigger
from tests.kit import postgres
from tests.kit.flow_bundle import LOG, note_tool
from tests.unit.flowtools.run_kit import Entries

pytestmark = pytest.mark.rule("000-trigger-cron")
NIGHTLY = Actor(id="service:nightly", roles=frozenset({"staff"}))
HOUR = 3600.0


class At(Database):
    """A database whose clock the test sets, for all processes on it."""

    time = 0.0

    def now(self, _connection: Any) -> float:
        return At.time


class Process:
    """A process on the database: it looks, and runs the firings that it got."""

    opened: ClassVar[list[Database]] = []

    def __init__(self, url: str, **trigger: Any) -> None:
        self.database = At(url)
        self.opened.append(self.database)
        entity = load_entity(json.dumps(LOG).encode(), "log.json")
        apply(self.database, [entity])
        self.runs, self.entities = FlowRuns(self.database, [entity], audit=Entries()), {"Log": entity}
        self.flow = self.ready(**trigger)

    def ready(self, **trigger: Any) -> ReadyFlow:
        written = {"type": "cron", "schedule": "0 * * * *", **trigger}
        schema = {"type": "object", "properties": {"scheduledAt": {"type": "string"}}}
        document = note_tool("report", written, "input.scheduledAt == null ? '' : input.scheduledAt", input=schema)
        return self.runs.ready(load_tool(json.dumps(document).encode(), "tool.json"))

    def look(self, actor: Actor = NIGHTLY) -> bool:
        run = fire(self.database, self.runs, self.flow, actor)
        if run is not None:
            assert "succeeded" == self.runs.go_on(self.flow, run).state
        return run is not None

    def texts(self) -> list[str]:
        with self.database.transaction() as connection:
            return sorted(row["text"] for row in Rows(connection, self.entities, NIGHTLY).read("Log", {}))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    At.time = datetime(2026, 1, 1, 12, 30, tzinfo=UTC).timestamp()
    found = f"sqlite:///{tmp_path / 'flows.db'}"
    if request.param == "postgres":
        server: postgres.Server = request.getfixturevalue("postgres_server")
        server.run("DROP DATABASE IF EXISTS flow_schedules")
        server.run("CREATE DATABASE flow_schedules")
        found = server.url("flow_schedules").reveal()
    yield found
    while Process.opened:
        Process.opened.pop().engine.dispose()


def test_each_firing_is_one_run_and_a_new_tool_begins_with_the_next_one(url: str) -> None:
    here = Process(url)
    assert [False, False] == [here.look(), here.look()]
    At.time += HOUR / 2
    assert [True, False] == [here.look(), here.look()]
    At.time += HOUR
    assert [True, False] == [here.look(), here.look()]
    assert ["2026-01-01T13:00:00.000Z", "2026-01-01T14:00:00.000Z"] == here.texts()


def test_many_processes_make_one_run_of_a_firing(url: str) -> None:
    processes = [Process(url) for _ in range(4)]
    processes[0].look()
    for firing in range(3):
        At.time += HOUR
        begin, found = threading.Barrier(4), list[bool]()

        def look(process: Process, begin: threading.Barrier = begin, found: list[bool] = found) -> None:
            begin.wait(30)
            found.append(process.look())

        threads = [threading.Thread(target=look, args=(each,)) for each in processes]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        assert [False, False, False, True] == sorted(found), firing
    assert 3 == len(processes[0].texts())


@pytest.mark.parametrize(("policy", "runs"), [("once", 1), ("skip", 0)])
def test_firings_that_no_process_saw_are_one_run_or_none(url: str, policy: str, runs: int) -> None:
    here = Process(url, missed=policy)
    here.look()
    At.time += 5 * HOUR
    assert runs == sum(here.look() for _ in range(3))
    At.time += HOUR / 2
    assert [True, False] == [here.look(), here.look()]
    assert (["2026-01-01T17:00:00.000Z"] * runs) + ["2026-01-01T18:00:00.000Z"] == here.texts()


def test_a_clock_that_goes_back_repeats_nothing(url: str) -> None:
    here = Process(url)
    here.look()
    At.time += HOUR
    assert here.look()
    At.time -= 3 * HOUR
    assert not here.look()
    At.time += 3 * HOUR
    assert not here.look()


def test_another_schedule_begins_anew(url: str) -> None:
    here = Process(url)
    here.look()
    here.flow = here.ready(schedule="*/5 * * * *")
    At.time += HOUR
    assert [False, False] == [here.look(), here.look()]
    At.time += 300
    assert here.look()


def test_a_firing_that_is_refused_is_refused_once(url: str) -> None:
    here = Process(url)
    here.look()
    At.time += HOUR
    assert [False, False] == [here.look(Actor(id="service:other")), here.look()], "it had no allowed role"
    At.time += HOUR
    assert here.look()


def test_a_process_that_is_killed_behind_the_claim_leaves_the_run_to_others(url: str) -> None:
    here = Process(url)
    here.look()
    At.time += HOUR
    assert fire(here.database, here.runs, here.flow, NIGHTLY) is not None  # and it is killed here
    other = Process(url)
    assert not other.look()
    At.time += 61
    ((run, state),) = other.runs.due(5)
    assert ("running", "succeeded") == (state, other.runs.resume(other.flow, run).state)
    assert 1 == len(other.texts())


def test_a_process_that_is_killed_before_the_commit_leaves_the_firing_to_others(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Process(url)
    here.look()
    At.time += HOUR

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("oauthbroker.flowtools.running.journal.insert_run", killed)
        with pytest.raises(KeyboardInterrupt):
            here.look()
    assert Process(url).look()


@pytest.mark.parametrize(
    ("zone", "at", "wanted"),
    [
        ("UTC", "2026-01-01T12:30:00Z", "2026-01-01T02:30:00+00:00"),
        ("Europe/Berlin", "2026-01-01T12:30:00Z", "2026-01-01T01:30:00+00:00"),
        ("Europe/Berlin", "2026-07-01T12:30:00Z", "2026-07-01T00:30:00+00:00"),
        ("Asia/Seoul", "2026-01-01T12:30:00Z", "2025-12-31T17:30:00+00:00"),
        ("UTC", "2026-01-01T02:30:00Z", "2026-01-01T02:30:00+00:00"),
        ("UTC", "2026-01-01T02:29:59Z", "2025-12-31T02:30:00+00:00"),
    ],
)
def test_firings_are_those_of_the_time_zone(zone: str, at: str, wanted: str) -> None:
    trigger = Trigger(type="cron", schedule="30 2 * * *", time_zone=zone)
    found = latest_firing(trigger, datetime.fromisoformat(at).timestamp())
    assert found is not None
    assert wanted == datetime.fromtimestamp(found, UTC).isoformat()
