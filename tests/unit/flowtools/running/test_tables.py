"""The tables of an older release are changed once, and its runs have a time at which a process looks at them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.running.journal import AUDIT, ENDED, RUN, STEP
from oauthbroker.flowtools.running.tables import prepare
from tests.unit.flowtools.entity_kit import sqlite_url

OLD = """
CREATE TABLE flow_run (id TEXT PRIMARY KEY, tool TEXT NOT NULL, digest TEXT NOT NULL, input TEXT NOT NULL,
  state TEXT NOT NULL, notes TEXT NOT NULL, key TEXT, actor TEXT, output TEXT, code TEXT, message TEXT,
  version INTEGER NOT NULL, taken INTEGER NOT NULL, lease_until DOUBLE PRECISION NOT NULL,
  started DOUBLE PRECISION NOT NULL, UNIQUE (tool, key));
CREATE INDEX ix_flow_run_lease_until ON flow_run (lease_until);
CREATE INDEX ix_flow_run_started ON flow_run (started);
CREATE TABLE flow_step (run TEXT, node TEXT, state TEXT NOT NULL, value TEXT NOT NULL, attempts INTEGER NOT NULL,
  rows INTEGER NOT NULL, PRIMARY KEY (run, node))
"""
LEASES = {"running": 50.0, "succeeded": 0.0, "failed": 0.0, "unknown": 0.0, "escalated": 0.0, "parked": 1.0}
ACTOR = {"id": "ann", "roles": [], "turn": {"auth": {"subjects": {"user": "shop:user:ann", "global": "shop:team:t"}}}}


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    url = sqlite_url(tmp_path)
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        server.run(f'create database "{tmp_path.name.lower()}"')
        url = server.url(tmp_path.name.lower()).reveal()
    made = Database(url)
    yield made
    made.engine.dispose()


def test_the_runs_of_an_older_release_are_kept_and_each_that_has_not_ended_is_due(database: Database) -> None:
    with database.transaction() as connection:
        for statement in OLD.split(";"):
            connection.exec_driver_sql(statement)
        AUDIT.create(connection)
        connection.execute(sa.insert(AUDIT).values(tool="t", outcome="failed", run="failed", version=1, at=70.0))
        columns = [
            "id",
            "tool",
            "digest",
            "input",
            "state",
            "notes",
            "version",
            "taken",
            "lease_until",
            "started",
            "key",
            "actor",
        ]
        old = sa.table("flow_run", *map(sa.column, columns))
        for state, lease in LEASES.items():
            values: dict[str, Any] = {
                "id": state,
                "tool": "t",
                "digest": "d",
                "input": '{"a": 1}',
                "state": state,
                "notes": "[]",
            }
            values |= {"version": 1, "taken": 2, "lease_until": lease, "started": 40.0, "key": state}
            connection.execute(sa.insert(old).values(**values, actor=json.dumps(ACTOR)))
        step = sa.table("flow_step", *map(sa.column, ("run", "node", "state", "value", "attempts", "rows")))
        connection.execute(sa.insert(step).values(run="running", node="a", state="done", value="1", attempts=1, rows=0))
    for _ in range(2):  # the second time changes nothing
        with database.transaction() as connection:
            prepare(connection, 1000.0)
            found = {each.id: each for each in connection.execute(sa.select(RUN))}
            steps = connection.execute(sa.select(STEP)).all()
    assert LEASES.keys() == found.keys()
    for state, run in found.items():
        assert (state in ENDED) == (run.due is None) == (run.ended is not None), state
        assert ("ann", "shop:user:ann", state, '{"a": 1}', 2) == (
            run.caller,
            run.subject,
            run.key,
            run.input,
            run.taken,
        )
    assert (50.0, True, True) == (found["running"].due, found["parked"].due > 1000, found["escalated"].due > 1000)
    assert (70.0, 40.0) == (found["failed"].ended, found["succeeded"].ended)
    assert [("running", "a", "done", "1", 1, 0, 0)] == [tuple(each) for each in steps]
    with pytest.raises(sa.exc.IntegrityError), database.transaction() as connection:
        connection.execute(sa.update(RUN).where(RUN.c.id == "running").values(state="failed"))
