"""`oauthbroker grants erase` reaches the runs of flow tools, beside a broker that serves them and without one."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.running import journal
from tests.kit import postgres
from tests.kit.cli import BROKER, Desk, serving
from tests.kit.flow_bundle import SERVICE, bundle, deploy_in_store, jwt, note_tool
from tests.kit.served_api import Service, make_key, until

pytestmark = [pytest.mark.rule("run-erasure"), pytest.mark.slow]
ANN, CANARY = "shop:user:ann", "canary-of-the-input"
ENVIRONMENT = "FLOWS_DATABASE"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, desk: Desk, idp: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a bundle whose callers have subjects, and return the URL of its database."""
    desk.ready_to_serve(idp)
    desk.write("broker", BROKER.format(base=desk.base, port=desk.port) + "  plugins: [flowtools]\n")
    issuer = {**SERVICE["issuers"][0], "subjects": {"user": "shop:user:{sub}"}}
    more: dict[str, Any] = {}
    url = f"sqlite:///{desk.folder / 'store-flows.db'}"
    if request.param == "postgres":
        server: postgres.Server = request.getfixturevalue("postgres_server")
        server.run("DROP DATABASE IF EXISTS erased_flows")
        server.run("CREATE DATABASE erased_flows")
        url = server.url("erased_flows").reveal()
        monkeypatch.setenv(ENVIRONMENT, url)
        more = {"database": {"valueFrom": {"env": ENVIRONMENT}}}
    bundle(desk.folder / "config", issuers=[issuer], **more)
    deploy_in_store(desk.folder / "config", note_tool("note", {"type": "http"}))
    return url


def rows_of(url: str) -> dict[str, str]:
    database = Database(url)
    try:
        with database.transaction() as connection:
            tables = journal.META.tables.items()
            return {name: repr(connection.execute(sa.select(table)).all()) for name, table in tables}
    finally:
        database.engine.dispose()


def names(url: str) -> list[str]:
    """Return the tables of runs that name the user."""
    return [name for name, rows in rows_of(url).items() if ANN in rows or "'ann'" in rows or CANARY in rows]


def erased(desk: Desk, *words: str) -> tuple[int, dict[str, Any]]:
    done = desk.type("grants", "erase", "--subject", ANN, "--json", *words)
    return done.code, json.loads(done.out)


def test_runs_are_counted_and_erased_beside_a_broker_and_without_one(desk: Desk, url: str) -> None:
    key = make_key(desk)
    env = {ENVIRONMENT: url} if url.startswith("postgresql") else {}
    with serving(desk, **env):
        call = Service(desk.port, jwt("ann"))
        assert 200 == call.call("POST", "/v1/flowtools/tools/note", {"text": CANARY})[0]
        assert 400 == call.call("POST", "/v1/flowtools/tools/note", {"n": 1})[0]
        assert ["flow_run", "flow_step"] == names(url)
        code, counted = erased(desk, "--dry-run")
        assert (0, 1, False) == (code, counted["pluginRecords"], counted["erased"])
        assert names(url)
        assert (0, 1, True) == ((done := erased(desk, "--yes"))[0], done[1]["pluginRecords"], done[1]["erased"])
        assert [] == names(url)
        assert 200 == call.call("POST", "/v1/flowtools/tools/note", {"text": CANARY})[0]
        status, said = Service(desk.port, key).call("POST", "/v1/subjects/erase", {"subject": ANN})
        assert (200, True, 1, 0) == (status, said["erased"], said["pluginRecords"], said["ending"])
        assert [] == names(url)
        assert 200 == call.call("POST", "/v1/flowtools/tools/note", {"text": CANARY})[0]
    assert (0, 1) == ((done := erased(desk, "--yes"))[0], done[1]["pluginRecords"])
    assert [] == names(url)
    assert "Nothing is kept" in desk.type("grants", "erase", "--subject", ANN, "--yes").err
    logged = "".join(file.read_text("utf-8") for file in (desk.folder / "store" / "data").rglob("audit*.jsonl"))
    assert [] == [text for text in (ANN, '"ann"', CANARY) if text in logged], "from the first"
    name = desk.type("audit", "name", "ann").out.strip()
    assert (3, 1) == tuple(
        sum(f'"type":"flowtools.{kind}"' in line and f'"actor":"{name}"' in line for line in logged.splitlines())
        for kind in ("FlowCalled", "FlowCallRefused")
    )
    assert 0 == desk.type("audit", "verify").code


def test_a_living_run_is_waited_for_with_status_3(desk: Desk, url: str) -> None:
    env = {ENVIRONMENT: url} if url.startswith("postgresql") else {}
    with serving(desk, **env):
        assert 200 == Service(desk.port, jwt("ann")).call("POST", "/v1/flowtools/tools/note", {"text": CANARY})[0]
    lives(url)
    done = desk.type("grants", "erase", "--subject", ANN, "--yes")
    assert (3, True) == (done.code, "must end first" in done.err)
    assert names(url)
    with serving(desk, prelude=LOOKS_OFTEN, **env):
        until_ended(url)
    assert (0, True) == ((code := erased(desk, "--yes"))[0], code[1]["erased"])
    assert [] == names(url)


LOOKS_OFTEN = """
from oauthbroker.flowtools.running import resuming
resuming.resuming.__wrapped__.__kwdefaults__["seconds"] = 0.2
"""


def lives(url: str) -> None:
    """Let the run be one that a killed process left behind its first step."""
    database = Database(url)
    try:
        with database.transaction() as connection:
            now = database.now(connection)
            connection.execute(sa.update(journal.RUN).values(state="running", due=now, ended=None, output=None))
    finally:
        database.engine.dispose()


def until_ended(url: str) -> None:
    until(lambda: "'cancelled'" in rows_of(url)["flow_run"])


def test_a_database_that_is_away_stops_the_erasure_and_no_password_is_shown(
    desk: Desk, idp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.ready_to_serve(idp)
    desk.write("broker", BROKER.format(base=desk.base, port=desk.port) + "  plugins: [flowtools]\n")
    monkeypatch.setenv(ENVIRONMENT, "postgresql://user:secret@127.0.0.1:1/flows?connect_timeout=1")
    bundle(desk.folder / "config", database={"valueFrom": {"env": ENVIRONMENT}})
    done = desk.type("grants", "erase", "--subject", ANN, "--yes")
    assert (2, True, False) == (done.code, "the database of flows" in done.err, "secret" in done.err + done.out)
