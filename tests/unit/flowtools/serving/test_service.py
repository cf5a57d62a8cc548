"""The service: routes, queries, findings, and the callers' idempotency keys."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from oauthbroker import BrokerError, Code, Secret, Turn, TurnAuth
from oauthbroker.flowtools.risk.audit_types import FlowCallRefused
from oauthbroker.flowtools.running.journal import META, RUN
from oauthbroker.flowtools.running.ports import Ports
from oauthbroker.flowtools.running.working import RunResult
from oauthbroker.flowtools.serving.http_calls import answer, caller_key, from_query
from oauthbroker.flowtools.serving.kinds import FlowServiceSpec
from oauthbroker.flowtools.serving.schedules import FIRED, QueueEvents, look_at_schedules
from oauthbroker.flowtools.serving.service import FlowService
from oauthbroker.flowtools.serving.webhooks import Webhooks
from oauthbroker.flowtools.specification.failures import Actor, FlowFailed
from oauthbroker.flowtools.specification.source import FlowRefused
from oauthbroker.plugins import PluginResource
from tests.kit.flow_bundle import NIGHTLY, SERVICE, bundle, call, deploy, note_tool
from tests.kit.flow_versions import damage, on_loop_of, state_of, store_of, versions_in
from tests.unit.flowtools.run_kit import Entries

pytestmark = pytest.mark.rule("000-trigger-http", "000-trigger-as", "run-serves")
CRON = {"type": "cron", "schedule": "0 3 * * *"}
STAFF = Actor(id="ada", roles=frozenset({"staff"}))


@pytest.fixture
def entries() -> Entries:
    return Entries()


@pytest.fixture
async def service(tmp_path: Path, entries: Entries) -> AsyncIterator[FlowService]:
    made = opened(tmp_path, audit=entries)
    yield made
    await made.close()


def opened(folder: Path, url: str = "", *, audit: Entries | None = None, **more: Any) -> FlowService:
    bundle(folder)
    secrets: dict[Any, Secret] = {("database",): Secret(url)} if url else {}
    resource = PluginResource(
        "FlowService", "flows", FlowServiceSpec.model_validate({**SERVICE, **more}), secrets=secrets
    )
    versions = versions_in(folder, audit=audit or Entries())
    return FlowService(resource, folder, store=folder / "store", ports=Ports(), versions=versions)


def codes(service: FlowService) -> list[str]:
    return [each.code for each in service.problems]


def test_two_serving_tools_of_one_method_and_path_are_refused_with_both_names(tmp_path: Path) -> None:
    here = {"type": "http", "path": "/notes"}
    deploy(tmp_path, note_tool("first", here))
    deploy(tmp_path, note_tool("other", {**here, "method": "PUT"}))
    with pytest.raises(FlowRefused, match=r"The tool second has the method and path of first version 1, which serves"):
        deploy(tmp_path, note_tool("second", {**here, "method": "POST"}))
    assert [] == versions_in(tmp_path).numbers("second")
    moved = {**note_tool("other", here), "version": 2}
    deploy(tmp_path, moved)
    with pytest.raises(FlowRefused, match=r"The tool other has the method and path of first"):
        deploy(tmp_path, moved, activate=True)


def hook(name: str, version: int = 1, **trigger: Any) -> dict[str, Any]:
    written = {"type": "webhook", "webhookSecret": "shop", **trigger}
    return {**note_tool(name, written, **NIGHTLY), "version": version}


@pytest.mark.rule("000-trigger-webhook")
def test_two_serving_webhooks_of_one_secret_are_refused_unless_both_declare_it(tmp_path: Path) -> None:
    """No form of signature covers the receiver: a signed event of one tool is a signed event of the other."""
    deploy(tmp_path, hook("first"))
    for more in ({}, {"sharedSecret": True}, {"signature": "github"}):
        with pytest.raises(FlowRefused, match=r"trigger.webhookSecret: Also the secret of first.*sharedSecret: true"):
            deploy(tmp_path, hook("second", **more))
    deploy(tmp_path, hook("second", webhookSecret="other"))
    deploy(tmp_path, hook("second", 2))
    with pytest.raises(FlowRefused, match="Also the secret of first"):
        deploy(tmp_path, hook("second", 2), activate=True)
    deploy(tmp_path, hook("first", 2, sharedSecret=True), activate=True)
    deploy(tmp_path, hook("second", 3, sharedSecret=True), activate=True)


@pytest.mark.rule("000-trigger-webhook")
async def test_webhooks_of_one_secret_that_serve_already_take_no_event_and_are_findings(
    service: FlowService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:  # as deployed before they were refused
        patch.setattr("oauthbroker.flowtools.deployment.versions.same_secret", lambda _: [])
        for name in ("first", "second"):
            deploy(tmp_path, hook(name))
    deploy(tmp_path, hook("third", webhookSecret="other"))
    await service.look()
    assert (["third"], ["sameSecret"] * 2) == (list(service.serving), codes(service))
    assert "first: its webhook has the secret of second, and takes no event." in {
        each.text for each in service.problems
    }


async def test_tools_whose_service_identity_is_missing_or_unknown_are_findings(
    service: FlowService, tmp_path: Path
) -> None:
    deploy(tmp_path, note_tool("good", CRON, **NIGHTLY))
    deploy(tmp_path, note_tool("missing", CRON))
    deploy(tmp_path, note_tool("unknown", CRON, auth={"runAs": "weekly"}))
    await service.look()
    assert (["good"], ["toolCannotRun"] * 2) == (list(service.serving), codes(service))
    actor = service.service_actor(service.serving["good"])
    assert Actor(id="service:nightly", roles=frozenset({"staff"})) == actor


@pytest.mark.rule("001-withdraw")
async def test_a_withdrawn_version_refuses_new_calls_and_its_runs_go_on(
    service: FlowService, tmp_path: Path, entries: Entries
) -> None:
    http = {"type": "http", "path": "/notes"}
    deploy(tmp_path, note_tool("note", http, auth={"required": False}))
    deploy(tmp_path, {**note_tool("note", http), "version": 2}, activate=True)
    await service.look()
    begun = service.runs.accept(service.flow("note@1"), {"text": "begun"}, None)
    first = await call(service, "note@1", {"text": "x"}, STAFF, key="k")
    service.versions.withdraw("note", 1, by="bob")
    refused = await call(service, "note@1", {"text": "y"}, STAFF)
    assert ("failed", "versionWithdrawn", 410) == (refused.state, refused.code, answer(refused).status_code)
    assert "version 1 is withdrawn; call another one" == refused.message
    assert first == await call(service, "note@1", {"text": "x"}, STAFF, key="k"), "a repeated call is no new one"
    assert "succeeded" == (await call(service, "note", {"text": "z"}, STAFF)).state
    flow = service.flow_of(begun)
    assert flow is not None
    assert "succeeded" == service.runs.resume(flow, begun.id).state
    refused_entries = entries.of(FlowCallRefused)
    assert [("ada", 1, "versionWithdrawn")] == [(each.actor, each.version, each.code) for each in refused_entries]


async def test_a_call_is_refused_with_store_unavailable_while_the_audit_log_is_full(
    service: FlowService, tmp_path: Path, entries: Entries
) -> None:
    deploy(tmp_path, note_tool("note", {"type": "http"}))
    await service.look()
    entries.refuses = True
    for given in ({"text": "x"}, {"text": 1}):
        with pytest.raises(BrokerError) as refused:
            await call(service, "note", given, STAFF, key="k")
        assert Code.STORE_UNAVAILABLE is refused.value.code
    entries.refuses = False
    assert "succeeded" == (await call(service, "note", {"text": "x"}, STAFF, key="k")).state


@pytest.mark.rule("001-withdraw")
@pytest.mark.parametrize("trigger", [CRON, {"type": "webhook", "webhookSecret": "shop"}, {"type": "queue"}])
async def test_no_trigger_starts_a_withdrawn_version(service: FlowService, tmp_path: Path, trigger: Any) -> None:
    given = {"input": {"type": "object"}}
    deploy(tmp_path, note_tool("paid", trigger, "'x'", **NIGHTLY, **given))
    service.versions.withdraw("paid", 1, by="bob", serving=True)
    await service.look()
    with service.database.transaction() as connection:
        META.create_all(connection)
        connection.execute(sa.insert(FIRED).values(tool="paid", schedule="0 3 * * * UTC", last=1.0))
    broker = SimpleNamespace(on_granted=None)
    await look_at_schedules(service)
    await (events := QueueEvents(service, broker)).look()  # type: ignore[arg-type]
    await (webhooks := Webhooks(service, broker)).look()  # type: ignore[arg-type]
    assert () == webhooks.problems, "a withdrawn webhook needs no secret"
    with pytest.raises(FlowFailed, match="version 1 is withdrawn"):
        await service.accept(service.serving["paid"], {}, "event")
    with service.database.transaction() as connection:
        assert ({}, 0) == (events._tasks, connection.execute(sa.select(sa.func.count()).select_from(RUN)).scalar_one())


@pytest.mark.rule("001-withdraw")
@pytest.mark.parametrize(
    "trigger", [{"type": "webhook", "webhookSecret": "shop"}, {"type": "queue", "agent": "orders"}]
)
async def test_a_tool_takes_over_the_events_of_one_that_is_withdrawn(
    service: FlowService, tmp_path: Path, trigger: Any
) -> None:
    for name in ("earlier", "later"):
        deploy(tmp_path, note_tool(name, trigger, "'x'", **NIGHTLY, input={"type": "object"}))
        if name == "earlier":
            service.versions.withdraw(name, 1, by="bob", serving=True)
    await service.look()
    assert (["earlier", "later"], []) == (list(service.serving), codes(service))
    if trigger["type"] == "queue":
        events = QueueEvents(service, SimpleNamespace())  # type: ignore[arg-type]
        await events._take("orders", {"payload": {}, "eventId": "e"})
        with service.database.transaction() as connection:
            assert ["later"] == list(connection.execute(sa.select(RUN.c.tool)).scalars())


async def test_a_database_that_is_away_is_a_finding_and_calls_may_be_repeated(tmp_path: Path) -> None:
    away = opened(tmp_path, f"sqlite:///{tmp_path / 'nowhere' / 'flows.db'}")
    deploy(tmp_path, note_tool("note", {"type": "http"}))
    await away.look()
    assert (["databaseAway"], False) == (codes(away), away.ready.is_set())
    with pytest.raises(BrokerError) as caught:
        await call(away, "note", {"text": "x"}, STAFF)
    assert ("storeUnavailable", True) == (caught.value.code.value, caught.value.retryable)
    (tmp_path / "nowhere").mkdir()
    await away.look()
    assert ([], "succeeded") == (codes(away), (await call(away, "note", {"text": "x"}, STAFF)).state)
    await away.close()


async def test_the_end_waits_for_a_run_that_needs_the_event_loop(tmp_path: Path) -> None:
    service, loop = opened(tmp_path), asyncio.get_running_loop()
    begun = threading.Event()

    async def token() -> str:
        await asyncio.sleep(0.05)
        return "sent"

    def run() -> str:
        begun.set()
        return asyncio.run_coroutine_threadsafe(token(), loop).result(30)

    task = asyncio.create_task(service.work(run))
    await asyncio.to_thread(begun.wait, 30)
    await service.close()
    assert "sent" == await task


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_call_that_is_cancelled_again_and_again_waits_for_the_end_of_its_run(
    service: FlowService, times: int
) -> None:
    begun, may = threading.Event(), threading.Event()

    def run() -> None:
        begun.set()
        assert may.wait(30)

    task = asyncio.create_task(service.work(run))
    assert await asyncio.to_thread(begun.wait, 30)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.01)
    assert not task.done()
    may.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_fault_behind_an_answer_is_logged_without_its_text(
    service: FlowService, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(tmp_path, note_tool("note", {"type": "http"}, auth={"required": False}))
    await service.look()

    def go_on(*_given: Any) -> None:
        raise KeyError("a value of a row")

    monkeypatch.setattr(service.runs, "go_on", go_on)
    run = await service.accept(service.serving["note"], {"text": "x"}, "key")
    while service._tasks:
        await asyncio.sleep(0.01)
    gc.collect()
    assert f"the run {run.id} did not go on: KeyError" in caplog.messages
    assert "a value of a row" not in caplog.text


async def test_a_key_of_a_caller_is_one_call_and_no_call_of_another(service: FlowService, tmp_path: Path) -> None:
    deploy(tmp_path, note_tool("note", {"type": "http"}))
    await service.look()
    other = Actor(id="bob", roles=STAFF.roles)
    subject = replace(STAFF, turn=Turn("flowtools", "ada", auth=TurnAuth(subjects={"user": "shop:user:ada"})))
    runs = [
        (await call(service, "note", {"text": "x"}, actor, key=caller_key(["k"], actor))).run
        for actor in (STAFF, STAFF, other, subject)
    ]
    assert (runs[0], 3, True) == (runs[1], len(set(runs)), all(runs)), "another subject of one caller is another call"
    for sent, actor in ((["k"], None), (["k", "k"], STAFF), ([""], STAFF), (["k" * 256], STAFF)):
        with pytest.raises(FlowFailed, match="The header Idempotency-Key is not one of 1 to 255 characters"):
            caller_key(sent, actor)


def test_a_query_is_typed_by_the_schema() -> None:
    kinds = {"s": "string", "i": "integer", "b": "boolean", "l": "array", "n": ["number", "null"], "x": "integer"}
    schema = {"properties": {name: {"type": kind} for name, kind in kinds.items()}}
    query = {"s": "1", "i": "1", "b": "true", "l": "[1]", "n": "null", "x": "one", "other": "2"}
    assert {"s": "1", "i": 1, "b": True, "l": [1], "n": None, "x": "one", "other": "2"} == from_query(schema, query)


@pytest.mark.parametrize(
    ("state", "code", "status"),
    [
        ("succeeded", None, 200),
        ("waiting", None, 202),
        ("running", None, 202),
        ("escalated", None, 202),
        ("unknown", None, 502),
        ("failed", "externalFailed", 502),
        ("failed", "idempotencyConflict", 409),
        ("failed", "assertFailed", 422),
        ("failed", "outputInvalid", 500),
    ],
)
def test_each_end_of_a_run_has_a_status(state: str, code: str | None, status: int) -> None:
    response = answer(RunResult(run="r1", state=state, code=code, message="m", output={"a": 1}))
    assert (status, "r1") == (response.status_code, response.headers["flow-run"])
    said = json.loads(bytes(response.body))
    assert said.get("code", state) == (code or state) if status != 200 else said == {"a": 1}


@pytest.mark.rule("run-erasure")
async def test_runs_whose_retention_is_over_lose_their_input(tmp_path: Path) -> None:
    made = opened(tmp_path, retentionDays=7)
    try:
        await made.forget()  # the database has not answered yet
        await made.look()
        run: dict[str, Any] = {"tool": "t", "digest": "d", "state": "succeeded", "origin": "call", "notes": "[]"}
        run |= {"input": '{"a": 1}', "version": 1, "taken": 1, "takes": 0, "generation": 0, "freed": 0, "started": 1.0}
        with made.database.transaction() as connection:
            now = made.database.now(connection)
            ends = [now - each * 86_400.0 for each in (*([7.1] * 501), 6.9)]
            connection.execute(sa.insert(RUN), [{**run, "id": str(n), "ended": end} for n, end in enumerate(ends)])
        await made.forget()
        with made.database.transaction() as connection:
            assert ["501"] == connection.execute(sa.select(RUN.c.id).where(RUN.c.input != "null")).scalars().all()
    finally:
        await made.close()


@pytest.mark.parametrize("name", ["note@", "note@0", "note@01", "note@1@1", "x" * 300, "..", "note/versions", "no\0te"])
async def test_a_name_of_another_form_is_not_found(service: FlowService, tmp_path: Path, name: str) -> None:
    deploy(tmp_path, note_tool("note", {"type": "http"}))
    await service.look()
    with pytest.raises(BrokerError) as refused:
        service.flow(name)
    assert Code.NOT_FOUND is refused.value.code


async def test_a_version_that_cannot_be_used_is_reported_by_its_name(service: FlowService, tmp_path: Path) -> None:
    deploy(tmp_path, note_tool("note", {"type": "http"}))
    deploy(tmp_path, note_tool("other", {"type": "http"}))
    on_loop_of(damage(state_of(store_of(tmp_path)), "note", 1))
    await service.look()
    assert (["other"], ["toolCannotRun"]) == ([*service.serving], codes(service))
    assert "note: note@1:1:1: Damaged." in service.problems[0].text


async def test_a_store_that_is_away_is_a_finding_and_what_serves_goes_on(
    service: FlowService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(tmp_path, note_tool("note", {"type": "http"}))
    await service.look()

    async def away(_key: str) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    monkeypatch.setattr(service.versions._records._state, "get", away)
    await service.look()
    assert (["note"], ["notServing"]) == ([*service.serving], codes(service))
