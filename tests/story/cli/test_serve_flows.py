"""Flow tools served by a real broker process: calls, deployments, kills."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from typing import Any

import pytest

from oauthbroker import Turn, open_broker
from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.entities.definition import load_entity
from oauthbroker.flowtools.entities.rows import Rows
from oauthbroker.flowtools.failures import Actor
from oauthbroker.flowtools.running import journal
from oauthbroker.testing import IdentityProvider
from tests.kit import postgres
from tests.kit.cli import BROKER, Desk, Done, serving
from tests.kit.flow_bundle import LOG, NIGHTLY, bundle, deploy, jwt, note_tool
from tests.kit.served_api import Service, make_key, until
from tests.unit.flowtools.serving.webhook_kit import OLD, SECRET, standard

pytestmark = [pytest.mark.slow, pytest.mark.rule("000-trigger-http", "run-serves")]
Answer = tuple[int, Any]
MORE = "  rooms: [flowtools]\n  limits: {queueAttempts: 2}\n"
DIES = """
import os
from oauthbroker.flowtools.running.contract import FlowRuns
FlowRuns.go_on = lambda *_, **more: os._exit(9)
"""
LOOKS_OFTEN = """
from oauthbroker.flowtools.running import contract, resuming
contract._GRACE_SECONDS, resuming.LOOK_SECONDS = 0.0, 0.2
resuming.resuming.__wrapped__.__kwdefaults__["seconds"] = 0.2
"""


class Flows:
    """A desk whose broker serves flow tools on one database."""

    def __init__(self, desk: Desk, idp: IdentityProvider, url: str) -> None:
        desk.ready_to_serve(idp)
        self.desk, self.key = desk, make_key(desk)
        self.folder = desk.folder / "config"
        desk.write("broker", BROKER.format(base=desk.base, port=desk.port) + MORE)
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

    def hook(self, tool: str, event: str, secret: str, body: bytes = b'{"text": "msg"}') -> Answer:
        signed = standard(secret, event=event, at=int(time.time()), body=body)
        return self.call("POST", f"webhooks/{tool}", body, **{name.replace("-", "_"): v for name, v in signed.items()})

    def secret(self, *words: str, stdin: str = "") -> Done:
        done = self.desk.type("flow", "secret", *words, stdin=stdin)
        assert 0 == done.code, done.err
        return done

    def problems(self) -> set[str]:
        with closing(HTTPConnection("127.0.0.1", self.desk.port, timeout=30)) as line:
            line.request("GET", "/healthz")
            return set(json.loads(line.getresponse().read()).get("problems", ()))

    def dead_letters(self, agent: str) -> int:
        _, said = Service(self.desk.port, self.key).call("GET", f"/v1/agents/{agent}/dead-letters")
        return len(said["deadLetters"])

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
def flows(request: pytest.FixtureRequest, desk: Desk, idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> Flows:
    url = ""
    if request.param == "postgres":
        server: postgres.Server = request.getfixturevalue("postgres_server")
        server.run("DROP DATABASE IF EXISTS served_flows")
        server.run("CREATE DATABASE served_flows")
        url = server.url("served_flows").reveal()
        monkeypatch.setenv("FLOWS_DATABASE", url)
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


@pytest.mark.rule("000-trigger-webhook", "000-trigger-as")
def test_a_webhook_runs_once_by_a_sealed_secret_that_can_be_changed(flows: Flows) -> None:
    first, second = SECRET, OLD
    with serving(flows.desk, **flows.env):
        deploy(flows.folder, note_tool("paid", {"type": "webhook", "webhookSecret": "shop"}, **NIGHTLY))
        until(lambda: {"flowtools.webhookSecretMissing"} == flows.problems())
        assert 500 == flows.hook("paid", "msg_1", first)[0]
        flows.secret("set", "shop", stdin=first)
        status, said = flows.hook("paid", "msg_1", first)
        assert (202, {"run"}) == (status, said.keys())
        assert (202, said) == flows.hook("paid", "msg_1", first), "the same event is the same run"
        assert (401, "unauthenticated") == refusal(flows.hook("paid", "msg_2", second))
        flows.secret("set", "shop", stdin=second)
        assert {202} == {flows.hook("paid", f"msg_{each}", each)[0] for each in (first, second)}
        flows.secret("set", "shop", "--only", stdin=second)
        assert 401 == flows.hook("paid", "msg_5", first)[0]
        assert (400, "requestInvalid") == refusal(flows.hook("paid", "msg_6", second, b'{"n": 1}'))
        assert 404 == flows.call("POST", "tools/paid", {"text": "x"}, token=jwt())[0]
        until(lambda: ["msg"] * 3 == flows.texts())
        until(lambda: set() == flows.problems())
    assert {"service:nightly"} == {run.actor and run.actor.id for run in flows.runs()}
    assert "shop  1 valid" in flows.secret("list").out
    kept = [each for each in flows.desk.folder.rglob("*") if each.is_file() and second.encode() in each.read_bytes()]
    assert [] == kept


@pytest.mark.rule("000-trigger-queue")
def test_an_event_of_a_queue_is_one_run_and_one_that_no_run_takes_is_a_dead_letter(flows: Flows) -> None:
    deploy(flows.folder, note_tool("shipped", {"type": "queue", "agent": "shipping"}, **NIGHTLY))
    good = {"idempotency_key": "e1"}

    async def enqueue() -> None:
        async with open_broker("config", background=False) as broker:
            for payload, more in (
                ({"text": "one"}, good),
                ({"text": "one"}, good),
                ({"n": 1}, {}),
                ({"text": "two"}, {}),
            ):
                await broker.events.enqueue(
                    "shipping", "shop.shipped", payload, turn=Turn("shipping", str(payload)), **more
                )

    asyncio.run(enqueue())
    with serving(flows.desk, **flows.env):
        until(lambda: ["one", "two"] == flows.texts())
        until(lambda: 1 == flows.dead_letters("shipping"))
    assert ["one", "two"] == flows.texts()


def test_a_killed_broker_leaves_its_runs_to_the_next_one(flows: Flows) -> None:
    """It dies behind the commit that stores the run, before its first node."""
    deploy(flows.folder, note_tool("paid", {"type": "webhook", "webhookSecret": "shop"}, **NIGHTLY))
    flows.secret("set", "shop", stdin=SECRET)
    with serving(flows.desk, prelude=DIES, **flows.env) as process:
        with suppress(OSError, HTTPException):
            flows.hook("paid", "msg_1", SECRET)
        until(lambda: process.poll() is not None)
    assert ([], ["running"]) == (flows.texts(), [run.state for run in flows.runs()])
    with serving(flows.desk, prelude=LOOKS_OFTEN, **flows.env):
        until(lambda: ["msg"] == flows.texts())
        assert 202 == flows.hook("paid", "msg_1", SECRET)[0]
    assert (["msg"], ["succeeded"]) == (flows.texts(), [run.state for run in flows.runs()])


def refusal(answer: Answer) -> tuple[int, str]:
    return answer[0], answer[1]["code"]
