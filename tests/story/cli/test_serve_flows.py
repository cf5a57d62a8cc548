"""Flow tools served by a real broker process: calls, deployments, kills."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.entities.definition import load_entity
from oauthbroker.flowtools.entities.rows import Rows
from oauthbroker.flowtools.failures import Actor
from oauthbroker.flowtools.running import journal
from oauthbroker.testing import IdentityProvider
from tests.kit import postgres
from tests.kit.cli import BROKER, Desk, serving
from tests.kit.flow_bundle import LOG, bundle, deploy, jwt, note_tool
from tests.kit.served_api import make_key, until

pytestmark = [pytest.mark.slow, pytest.mark.rule("000-trigger-http", "run-serves")]
Answer = tuple[int, Any]


class Flows:
    """A desk whose broker serves flow tools on one database."""

    def __init__(self, desk: Desk, idp: IdentityProvider, url: str) -> None:
        desk.ready_to_serve(idp)
        self.desk, self.key = desk, make_key(desk)
        self.folder = desk.folder / "config"
        desk.write("broker", BROKER.format(base=desk.base, port=desk.port) + "  rooms: [flowtools]\n")
        self.env = {"FLOWS_DATABASE": url} if url else {}
        bundle(self.folder, **({"database": {"valueFrom": {"env": "FLOWS_DATABASE"}}} if url else {}))
        self.url = url or f"sqlite:///{desk.folder / 'store-flows.db'}"

    def call(self, method: str, path: str, body: Any = None, *, token: str = "", **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            named["Authorization"] = f"Bearer {token}"
        raw = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        if raw is not None:
            named = {"Content-Type": "application/json", **named}
        with closing(HTTPConnection("127.0.0.1", self.desk.port, timeout=30)) as line:
            line.request(method, f"/v1/flowtools/{path}", raw, named)
            answer = line.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None

    def texts(self) -> list[str]:
        database = Database(self.url)
        try:
            with database.transaction() as connection:
                entity = load_entity(json.dumps(LOG).encode(), "log.json")
                rows = Rows(connection, {"Log": entity}, Actor(id="a")).read("Log", {})
                return sorted(row["text"] for row in rows)
        finally:
            database.engine.dispose()

    def runs(self) -> list[journal.RunRecord]:
        database = Database(self.url)
        try:
            with database.transaction() as connection:
                return journal.list_runs(connection, 100)
        finally:
            database.engine.dispose()


@pytest.fixture(params=["sqlite", "postgres"])
def flows(request: pytest.FixtureRequest, desk: Desk, idp: IdentityProvider) -> Flows:
    url = ""
    if request.param == "postgres":
        server: postgres.Server = request.getfixturevalue("postgres_server")
        server.run("DROP DATABASE IF EXISTS served_flows")
        server.run("CREATE DATABASE served_flows")
        url = server.url("served_flows").reveal()
    return Flows(desk, idp, url)


def test_tools_are_called_by_name_and_by_their_own_path_and_follow_deployments(flows: Flows) -> None:
    deploy(flows.folder, note_tool("note", {"type": "http", "method": "PUT", "path": "/notes"}))
    deploy(flows.folder, note_tool("open.note", {"type": "http", "path": "/open"}, auth={"required": False}))
    with serving(flows.desk, **flows.env):
        good = jwt()
        assert (200, {"text": "one"}) == flows.call("POST", "tools/note", {"text": "one"}, token=good)
        assert (200, {"text": "two"}) == flows.call("PUT", "api/notes", {"text": "two"}, token=flows.key)
        assert (200, {"text": "three"}) == flows.call("POST", "api/open", {"text": "three"})
        assert 404 == flows.call("POST", "api/notes", {"text": "x"}, token=good)[0]
        assert (401, "unauthenticated") == refusal(flows.call("POST", "tools/note", {"text": "x"}))
        assert (401, "unauthenticated") == refusal(flows.call("POST", "tools/note", {"text": "x"}, token=good[:-8]))
        assert (403, "notAllowed") == refusal(flows.call("POST", "tools/note", {"text": "x"}, token=jwt(roles=())))
        assert (400, "requestInvalid") == refusal(flows.call("POST", "tools/note", {}, token=good))
        assert (404, "notFound") == refusal(flows.call("POST", "tools/other", {"text": "x"}, token=good))
        assert ["one", "three", "two"] == flows.texts()

        second = note_tool("note", {"type": "http", "method": "PUT", "path": "/notes"}, "concat('v2 ', input.text)")
        deploy(flows.folder, {**second, "version": 2})
        assert (200, {"text": "v2 x"}) == flows.call("POST", "tools/note@2", {"text": "x"}, token=good)
        assert (200, {"text": "x"}) == flows.call("POST", "tools/note", {"text": "x"}, token=good)
        deploy(flows.folder, {**second, "version": 2}, activate=True)
        assert (200, {"text": "v2 y"}) == flows.call("POST", "tools/note", {"text": "y"}, token=good)
        until(lambda: flows.call("PUT", "api/notes", {"text": "z"}, token=good)[1] == {"text": "v2 z"})
    assert {"ada", "key:runtime", None} == {run.actor and run.actor.id for run in flows.runs()}


def refusal(answer: Answer) -> tuple[int, str]:
    return answer[0], answer[1]["code"]
