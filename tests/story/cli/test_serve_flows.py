"""Flow tools served by a real broker process: calls, deployments, kills."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import sqlalchemy as sa

from oauthbroker import Turn, open_broker
from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.entities.definition import load_entity
from oauthbroker.flowtools.entities.rows import Rows
from oauthbroker.flowtools.running.approvals import RunLine, run_lines
from oauthbroker.flowtools.running.journal import META, exist
from oauthbroker.flowtools.running.ports import AGENT
from oauthbroker.flowtools.serving.schedules import FIRED
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.browser import Browser
from oauthbroker.testing.story import connect_through
from tests.kit import postgres
from tests.kit.cli import BROKER, Desk, Done, serving
from tests.kit.flow_bundle import LOG, NIGHTLY, SERVICE, STAFF, bundle, deploy_in_store, jwt, note_tool
from tests.kit.served_api import Service, make_key, until
from tests.unit.flowtools.serving.jwt_kit import key_set
from tests.unit.flowtools.serving.webhook_kit import OLD, SECRET, standard

pytestmark = [pytest.mark.slow, pytest.mark.rule("000-trigger-http", "run-serves")]
Answer = tuple[int, Any]
LIMITED = "  plugins: [flowtools]\n  limits: {requestsPerMinute: 4}\n"
MORE = "  plugins: [flowtools]\n  advanced: {queueAttempts: 2}\n"
KILLS = """
import os, signal
from oauthbroker.flowtools.running.contract import FlowRuns
from oauthbroker.flowtools.running.interpreter import Interpreter
from oauthbroker.flowtools.running.working import Worker
FlowRuns.__init__.__kwdefaults__["lease_seconds"] = 1.0
die = lambda *_, **more: os.kill(os.getpid(), signal.SIGKILL)
"""
DIES = {
    "behind the commit that stores it": "Worker.go = die",
    "before its rows are committed": "Interpreter.commit = die",
    "behind its end, before the answer": "succeed = Interpreter.succeed; Interpreter.succeed = lambda *a: die(succeed(*a))",
}
LOOPBACK = """
from oauthbroker.flowtools.specification import spec
spec.is_public_url = lambda _: True
"""
SLOW = """
import time
from oauthbroker.flowtools.running.interpreter import Interpreter
begin = Interpreter.begin
Interpreter.begin = lambda *a: [time.sleep(1), begin(*a)]
"""
STOPS = """
from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.serving.schedules import QueueEvents
async def stops(*_): raise BrokerError(Code.AGENT_FORWARDED)
QueueEvents._consume = stops
"""
LOOKS_SOON = """
from oauthbroker.flowtools.serving import plugin, schedules
plugin.LOOK_SECONDS, schedules.SCHEDULE_SECONDS = 0.2, 0.5
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

    def serving(self, *words: str, prelude: str = "", **env: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        return serving(self.desk, *words, prelude=LOOKS_SOON + prelude, **self.env, **env)

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

    def sends(self, trigger: str) -> Callable[[], object]:
        """Deploy a tool with this trigger, and return what sends one and the same event to it."""
        more = {
            "webhook": {"webhookSecret": "shop"},
            "queue": {"agent": "shipping"},
            "cron": {"schedule": "0 0 1 1 *", "missed": "once"},
        }.get(trigger, {})
        given = {"input": {"type": "object"}} if trigger == "cron" else {}
        text = "'msg'" if trigger == "cron" else "input.text"
        auth = STAFF if trigger == "http" else NIGHTLY
        deploy_in_store(self.folder, note_tool("paid", {"type": trigger, **more}, text, **auth, **given))
        self.secret("set", "shop", stdin=SECRET)
        if trigger == "cron":
            self._is_due()
        return {
            "http": lambda: self.call("POST", "tools/paid", {"text": "msg"}, token=jwt(), Idempotency_Key="k1"),
            "webhook": lambda: self.hook("paid", "msg_1", SECRET),
            "queue": lambda: self.enqueue(({"text": "msg"}, {"idempotency_key": "e1"})),
            "cron": lambda: None,
        }[trigger]

    def _is_due(self) -> None:
        """Let the schedule of the tool be one that began long ago."""
        database = Database(self.url)
        try:
            with database.transaction() as connection:
                META.create_all(connection)
                connection.execute(sa.insert(FIRED).values(tool="paid", schedule="0 0 1 1 * UTC", last=1.0))
        finally:
            database.engine.dispose()

    def enqueue(self, *events: tuple[dict[str, Any], dict[str, Any]]) -> None:
        async def work() -> None:
            async with open_broker("config", background=False) as broker:
                for payload, more in events:
                    turn = Turn("shipping", str(payload))
                    await broker.events.enqueue("shipping", "shop.shipped", payload, turn=turn, **more)

        asyncio.run(work())

    def agree(self, idp: IdentityProvider, link: str) -> None:
        page = asyncio.run(connect_through(Browser(canaries=self.desk.canaries), idp, link, "alice"))
        assert 200 == page.status

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

    def runs(self) -> list[RunLine]:
        database = Database(self.url)
        try:
            with database.transaction() as connection:
                return run_lines(connection, limit=100) if exist(connection) else []
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
    deploy_in_store(flows.folder, note_tool("note", {"type": "http", "method": "PUT", "path": "/notes"}))
    deploy_in_store(flows.folder, note_tool("open.note", {"type": "http", "path": "/open"}, auth={"required": False}))
    with flows.serving():
        good = jwt()
        assert (200, {"text": "one"}) == flows.call("POST", "tools/note", {"text": "one"}, token=good)
        assert (200, {"text": "two"}) == flows.call("PUT", "api/notes", {"text": "two"}, token=flows.key)
        assert (200, {"text": "three"}) == flows.call("POST", "api/open", {"text": "three"})
        assert 404 == flows.call("POST", "api/notes", {"text": "x"}, token=good)[0]
        wrong: tuple[Any, ...] = ({"text": "x"}, {}, {"text": 1}, [])
        for sent in wrong:
            assert (401, "unauthenticated") == refusal(flows.call("POST", "tools/note", sent))
        assert (401, "unauthenticated") == refusal(flows.call("POST", "tools/note", {"text": "x"}, token=good[:-8]))
        assert (403, "notAllowed") == refusal(flows.call("POST", "tools/note", {"text": "x"}, token=jwt(roles=())))
        assert (400, "requestInvalid") == refusal(flows.call("POST", "tools/note", {}, token=good))
        assert (404, "notFound") == refusal(flows.call("POST", "tools/other", {"text": "x"}, token=good))
        assert ["one", "three", "two"] == flows.texts()

        second = note_tool("note", {"type": "http", "method": "PUT", "path": "/notes"}, "concat('v2 ', input.text)")
        deploy_in_store(flows.folder, {**second, "version": 2})
        assert (200, {"text": "v2 x"}) == flows.call("POST", "tools/note@2", {"text": "x"}, token=good)
        assert (200, {"text": "x"}) == flows.call("POST", "tools/note", {"text": "x"}, token=good)
        deploy_in_store(flows.folder, {**second, "version": 2}, activate=True)
        assert (200, {"text": "v2 y"}) == flows.call("POST", "tools/note", {"text": "y"}, token=good)
        until(lambda: flows.call("PUT", "api/notes", {"text": "z"}, token=good)[1] == {"text": "v2 z"})
    assert {"ada", "key:runtime", None} == {run.caller for run in flows.runs()}


BODIES = {
    b'{"text": NaN}': "NaN or an infinity",
    b'{"text": 1e400}': "a number out of range",
    b'{"text": "\\ud800"}': "a lone surrogate",
    b'{"text": "a", "text": "b"}': "a name twice",
    b'{"text": ' + b"1" * 5_000 + b"}": "a number is too long",
    b'{"text": }': "line 1, column 10",
}


def test_a_call_that_is_refused_says_why_and_a_misspelt_tool_what_the_caller_may_call(flows: Flows) -> None:
    deploy_in_store(flows.folder, note_tool("note", {"type": "http", "path": "/notes"}))
    deploy_in_store(flows.folder, note_tool("secretNote", {"type": "http"}, auth={"allowedRoles": ["boss"]}))
    with flows.serving():
        good = jwt()
        for path in ("tools/note", "api/notes"):
            for body, why in BODIES.items():
                status, said = flows.call("POST", path, body, token=good)
                assert (400, True) == (status, why in said["detail"]), said
            status, said = flows.call("POST", path, {"text": "x"}, token=good, Idempotency_Key="k" * 5_000)
            assert (400, True) == (status, "The header Idempotency-Key is not" in said["detail"]), said
        for name in ("noet", "note@9"):
            status, said = flows.call("POST", f"tools/{name}", {"text": "x"}, token=good)
            assert (404, "notFound") == (status, said["code"])
            assert "No such tool. The nearest known name is note." == said["detail"]
        status, said = flows.call("POST", "tools/secretNot", {"text": "x"}, token=good)
        assert (404, False) == (status, "secretNote" in said["detail"]), "it may not be called by them"
        assert "Note" not in str(flows.call("POST", "tools/secretNot", {"text": "x"}))
        assert [] == flows.texts()


@pytest.mark.rule("000-trigger-webhook", "000-trigger-as")
def test_a_webhook_runs_once_by_a_sealed_secret_that_can_be_changed(flows: Flows) -> None:
    first, second = SECRET, OLD
    with flows.serving():
        deploy_in_store(flows.folder, note_tool("paid", {"type": "webhook", "webhookSecret": "shop"}, **NIGHTLY))
        until(lambda: {"flowtools.webhookSecretMissing"} == flows.problems())
        assert (401, "unauthenticated") == refusal(flows.hook("paid", "msg_1", first))
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
    assert {"service:nightly"} == {run.caller for run in flows.runs()}
    assert 2 == flows.desk.type("flow", "secret", "set", "other", stdin=second).code, "one secret is for one name"
    assert "shop  1 valid\n" == flows.secret("list").out
    kept = [each for each in flows.desk.folder.rglob("*") if each.is_file() and second.encode() in each.read_bytes()]
    assert [] == kept


@pytest.mark.rule("000-trigger-queue")
def test_an_event_of_a_queue_is_one_run_and_one_that_no_run_takes_is_a_dead_letter(flows: Flows) -> None:
    deploy_in_store(flows.folder, note_tool("shipped", {"type": "queue", "agent": "shipping"}, **NIGHTLY))
    good = {"idempotency_key": "e1"}
    flows.enqueue(({"text": "one"}, good), ({"text": "one"}, good), ({"n": 1}, {}), ({"text": "two"}, {}))
    with flows.serving():
        until(lambda: ["one", "two"] == flows.texts())
        until(lambda: 1 == flows.dead_letters("shipping"))
    assert ["one", "two"] == flows.texts()


@pytest.mark.sample(3)
@pytest.mark.parametrize("dies", DIES)
@pytest.mark.parametrize("trigger", ["http", "webhook", "queue", "cron"])
def test_a_killed_broker_leaves_its_runs_to_the_next_one(flows: Flows, trigger: str, dies: str) -> None:
    """An event that is sent again, or due once more, is the same run, and its rows are written once."""
    send = flows.sends(trigger)
    with flows.serving(prelude=KILLS + DIES[dies] + "\n") as process:
        with suppress(OSError, HTTPException):
            send()
        until(lambda: process.poll() is not None)
    assert 1 == len(flows.runs())
    with flows.serving(prelude=LOOKS_OFTEN):
        send()
        until(lambda: ["succeeded"] == [run.state for run in flows.runs()])
        send()
    assert (["msg"], 1) == (flows.texts(), len(flows.runs()))


@pytest.mark.rule("000-trigger-cron")
@pytest.mark.parametrize("flows", ["sqlite", "postgres"], indirect=True)
def test_a_schedule_fires_once_for_all_workers_and_again_for_none(flows: Flows) -> None:
    flows.sends("cron")
    with flows.serving("--workers", "2"):
        until(lambda: ["msg"] == flows.texts())
    with flows.serving(prelude=LOOKS_OFTEN):
        until(lambda: set() == flows.problems())
    assert (["msg"], {"service:nightly"}) == (flows.texts(), {run.caller for run in flows.runs()})


@pytest.fixture
def inbox(flows: Flows, idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A node that asks the API of the app. `inbox` is called by HTTP, and `polled` by a webhook, both for Alice."""
    monkeypatch.setattr(
        "oauthbroker.flowtools.specification.spec.is_public_url", lambda _: True
    )  # the API is on loopback
    with (flows.folder / "mail.yaml").open("a", encoding="utf-8") as app:
        app.write(f'  api: {{hosts: ["{idp.issuer}"], methods: [GET]}}\n')
    services = {"nightly": {"roles": ["staff"], "subjects": {"user": f"idp:user:{idp.account('alice').sub}"}}}
    issuer = {**SERVICE["issuers"][0], "subjects": {"user": "idp:user:{sub}"}}
    bundle(flows.folder, issuers=[issuer], services=services)
    flows.secret("set", "shop", stdin=SECRET)
    request = {"r": ("httpRequest", {"url": f"{idp.issuer}/api/messages", "oauthAppRef": "OAuthApp/mail"})}
    deploy_in_store(flows.folder, note_tool("inbox", {"type": "http"}, before=request))
    deploy_in_store(
        flows.folder, note_tool("polled", {"type": "webhook", "webhookSecret": "shop"}, before=request, **NIGHTLY)
    )
    return request


@pytest.mark.rule("run-waits")
@pytest.mark.parametrize("flows", ["sqlite"], indirect=True)
@pytest.mark.usefixtures("inbox")
def test_a_run_that_waits_for_a_consent_goes_on_in_the_broker_that_serves_it(
    flows: Flows, idp: IdentityProvider
) -> None:
    alice = jwt(idp.account("alice").sub)
    with flows.serving(prelude=LOOPBACK):
        status, said = flows.call("POST", "tools/inbox", {"text": "msg"}, token=alice, Idempotency_Key="k1")
        assert (202, "waiting") == (status, said["state"])
        flows.agree(idp, said["authorization"]["authorizationUrl"])
        until(lambda: ["succeeded"] == [run.state for run in flows.runs()])
        again = flows.call("POST", "tools/inbox", {"text": "msg"}, token=alice, Idempotency_Key="k1")
    assert ((200, {"text": "msg"}), ["msg"], 1) == (again, flows.texts(), idp.count("resource"))


@pytest.mark.rule("run-waits")
@pytest.mark.parametrize("flows", ["sqlite"], indirect=True)
@pytest.mark.usefixtures("inbox")
def test_an_operator_gets_the_link_of_a_run_that_no_caller_waits_for(flows: Flows, idp: IdentityProvider) -> None:
    flows.desk.canaries.may_show("ticket")
    with flows.serving(prelude=LOOPBACK):
        said = flows.hook("polled", "msg_1", SECRET)[1]
        until(lambda: ["waiting"] == [run.state for run in flows.runs()])
        words = ("--resume", said["run"], "--config", "config", "--database", flows.url)
        done = flows.desk.type("flow", "run", "polled", *words, "--json")
        assert 75 == done.code
        flows.agree(idp, json.loads(done.out)["authorization"]["authorizationUrl"])
        until(lambda: ["succeeded"] == [run.state for run in flows.runs()])
    assert (["msg"], 1) == (flows.texts(), idp.count("resource"))


@pytest.mark.parametrize("flows", ["sqlite"], indirect=True)
def test_the_run_of_a_client_that_leaves_is_made_to_its_end(flows: Flows) -> None:
    deploy_in_store(flows.folder, note_tool("slow", {"type": "http"}))
    with flows.serving(prelude=SLOW):
        with closing(HTTPConnection("127.0.0.1", flows.desk.port, timeout=30)) as line:
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {jwt()}"}
            line.request("POST", "/v1/flowtools/tools/slow", b'{"text": "msg"}', headers)
            until(lambda: ["running"] == [run.state for run in flows.runs()])
        until(lambda: ["succeeded"] == [run.state for run in flows.runs()])
    assert ["msg"] == flows.texts()


@pytest.mark.parametrize("flows", ["sqlite"], indirect=True)
def test_a_secret_that_does_not_fit_the_form_and_a_consumer_that_stops_are_findings(flows: Flows) -> None:
    flows.secret("set", "shop", stdin="no secret of standard webhooks")
    with flows.serving(prelude=STOPS):
        deploy_in_store(flows.folder, note_tool("paid", {"type": "webhook", "webhookSecret": "shop"}, **NIGHTLY))
        deploy_in_store(flows.folder, note_tool("shipped", {"type": "queue", "agent": "shipping"}, **NIGHTLY))
        until(lambda: {"flowtools.webhookSecretMissing", "flowtools.queueStopped"} == flows.problems())
        assert 401 == flows.hook("paid", "msg_1", SECRET)[0]


@pytest.mark.parametrize("flows", ["sqlite"], indirect=True)
def test_a_reload_that_forwards_the_events_of_the_plugin_or_changes_its_service_is_a_finding(flows: Flows) -> None:
    secret = {"valueFrom": {"env": "HOOK_SECRET"}}
    spec = {"agents": [AGENT], "webhook": {"url": "https://hooks.example.com/", "secrets": [secret]}}
    forwarder = {
        "apiVersion": "agents.example.io/v1alpha1",
        "kind": "Forwarder",
        "metadata": {"name": "f"},
        "spec": spec,
    }
    with flows.serving(HOOK_SECRET=SECRET) as process:
        (flows.folder / "forwarder.yaml").write_text(json.dumps(forwarder))
        process.send_signal(signal.SIGHUP)
        until(lambda: {"flowtools.agentForwarded"} == flows.problems())
        (flows.folder / "forwarder.yaml").unlink()
        bundle(flows.folder, services={})
        process.send_signal(signal.SIGHUP)
        until(lambda: {"flowtools.restartNeeded"} == flows.problems())


@pytest.mark.parametrize("flows", ["sqlite"], indirect=True)
def test_callers_are_checked_by_the_key_set_that_their_issuer_serves_and_are_limited(flows: Flows) -> None:
    with key_server(key_set("rsa")) as url:
        issuer = {name: value for name, value in SERVICE["issuers"][0].items() if name != "jwks"} | {"jwksUrl": url}
        bundle(flows.folder, issuers=[issuer])
        flows.desk.write("broker", BROKER.format(base=flows.desk.base, port=flows.desk.port) + LIMITED)
        deploy_in_store(flows.folder, note_tool("note", {"type": "http"}))
        with flows.serving():
            assert (401, "unauthenticated") == refusal(
                flows.call("POST", "tools/note", {"text": "x"}, token=jwt()[:-8])
            )
            answers = [flows.call("POST", "tools/note", {"text": "x"}, token=jwt())[0] for _ in range(8)]
            assert (200, {200, 429}) == (answers[0], set(answers))
            assert 200 == flows.call("POST", "tools/note", {"text": "x"}, token=jwt("another"))[0]
    assert ["x"] * (answers.count(200) + 1) == flows.texts()


@contextmanager
def key_server(keys: dict[str, Any]) -> Iterator[str]:
    """Serve a key set, and yield its URL."""

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(keys).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Keys) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/keys"
        finally:
            server.shutdown()
            thread.join()


def refusal(answer: Answer) -> tuple[int, str]:
    return answer[0], answer[1]["code"]
