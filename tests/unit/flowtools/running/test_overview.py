"""Runs and steps as operators see them, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.running.approvals import run_lines
from oauthbroker.flowtools.running.journal import RUN, WAITING, step_lines
from tests.kit import postgres
from tests.unit.flowtools.entity_kit import sqlite_url
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, LOG, STAFF, World, log

pytestmark = pytest.mark.rule("flow-pages")
NODES = {
    "zebra": BEGIN,
    "line": log("one"),
    "close": COMMIT,
    "check": ("assert", {"expression": "input.n == 1.0"}),
    "a": BEGIN,
    "b": log("two"),
    "c": COMMIT,
}


@pytest.fixture(params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = sqlite_url(tmp_path)
    if request.param == "postgresql":
        server: postgres.Server = request.getfixturevalue("postgres_server")
        server.empty_database(tmp_path.name.lower())
        url = server.url(tmp_path.name.lower()).reveal()
    made = World(url, LOG)
    yield made
    made.database.engine.dispose()


def run(world: World, name: str, n: int = 1) -> str:
    flow = world.flow(NODES, chain(*NODES), name=name)
    return str(world.runs.call(flow, {"id": f"s3cret {name}", "n": n}, STAFF).run)


def test_runs_come_newest_first_a_page_at_a_time_of_one_tool_or_state(world: World) -> None:
    first, second, third = run(world, "one"), run(world, "two"), run(world, "one", 2)
    with world.database.reading() as connection:
        assert [third, second, first] == [each.id for each in run_lines(connection, limit=5)]
        assert [second] == [each.id for each in run_lines(connection, limit=1, offset=1)]
        assert [third, first] == [each.id for each in run_lines(connection, limit=5, tool="one")]
        assert [third] == [each.id for each in run_lines(connection, limit=5, tool="one", state="failed")]
        assert [] == run_lines(connection, limit=5, state="waiting")


def test_a_run_has_its_end_its_caller_and_its_steps_and_no_value(world: World) -> None:
    failed = run(world, "one", 2)
    statements: list[str] = []
    event.listen(world.database.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    with world.database.reading() as connection:
        (line,), steps = run_lines(connection, limit=1, id=failed), step_lines(connection, failed)
        assert [] == run_lines(connection, limit=1, id="0" * 32) == step_lines(connection, "0" * 32)
    assert ("one", 1, "failed", "assertFailed", STAFF.id) == (
        line.tool,
        line.version,
        line.state,
        line.code,
        line.caller,
    )
    assert line.seconds is not None
    assert 0 <= line.seconds < 60
    assert {("zebra", "done", 0), ("line", "done", 1), ("close", "done", 0)} == {
        (step.node, step.state, step.rows) for step in steps
    }
    read = " ".join(statements)
    assert "flow_step.node" in read
    assert not [
        name for name in ("flow_run.input", "flow_run.output", "flow_run.key", "flow_step.value") if name in read
    ]


def test_a_run_that_is_not_over_has_no_duration(world: World) -> None:
    waiting = run(world, "one")
    with world.database.transaction() as connection:
        connection.execute(RUN.update().values(state=WAITING, due=1.0, ended=None))
    with world.database.reading() as connection:
        (line,) = run_lines(connection, limit=5, id=waiting)
    assert (WAITING, None) == (line.state, line.seconds)


def test_no_transaction_that_writes_keeps_a_reader_waiting(world: World) -> None:
    run(world, "one")
    other = Database(world.database.engine.url.render_as_string(hide_password=False).replace("+psycopg", ""))
    with world.database.transaction() as connection:
        connection.execute(RUN.update().values(tool="two"))
        with other.reading() as reading:
            assert ["one"] == [each.tool for each in run_lines(reading, limit=5)]
    other.engine.dispose()


@pytest.mark.parametrize("world", ["postgresql"], indirect=True)
def test_a_reader_on_postgresql_cannot_write(world: World) -> None:
    with pytest.raises(DBAPIError, match="read-only"), world.database.reading() as connection:
        connection.execute(text("DELETE FROM flow_run"))
