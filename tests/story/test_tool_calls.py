"""Tool calls in a running broker: `ctx.oauth` of a tool, consent, and the journal that outlives a process
(specification 004, section 12.3)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker import BrokerError, Code
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.plugins import PluginResources
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.tools.calling.broker_turn import blocks_of
from oauthbroker.tools.calling.calls import ToolCalls
from oauthbroker.tools.calling.context import AuthorizedToolContext, ToolContext
from oauthbroker.tools.calling.journal import MOST_OPEN, DurableJournal
from oauthbroker.tools.types.audit_types import ToolCalled
from oauthbroker.tools.types.results import GoesOn, ToolCall
from tests.kit.running_broker import ALICE, BOB, Harness, running, turn, user_app
from tests.story.tool_calls_kit import CALL, TURN, performed, registry_of, scope_of


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    tools = {
        "Tool/mail": (ToolAuth("mail", ("read", "write")),),
        "Tool/mail:list": (ToolAuth("mail", ("read",)),),
        "Extension/inbox": (ToolAuth("mail", ("read",)),),
        "Tool/mail:send": (ToolAuth("mail", ("read", "write")),),
    }
    plugins = {"tools": PluginResources()}
    apps = [user_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock, plugins=plugins, tools=tools) as harness:
        yield harness


# ctx.oauth


@pytest.mark.rule("002-2.5-3", "002-4.2-3")
@pytest.mark.parametrize("waits", [True, False])
async def test_a_tool_gets_tokens_within_the_scopes_of_its_export(harness: Harness, waits: bool):
    async def waiting(ctx: AuthorizedToolContext[Any], args: dict[str, Any]) -> Any:
        asked = [await ctx.oauth.get_access_token("mail", [scope]) for scope in ("read", "write")]
        return [each.to_json().get("status") for each in asked]

    def blocking(ctx: Any, args: dict[str, Any]) -> Any:
        asked = [ctx.oauth.get_access_token("mail", [scope]) for scope in ("read", "write")]
        return [each.to_json().get("status") for each in asked]

    await harness.connected()
    handler: Any = waiting if waits else blocking
    registry = registry_of(mail__send=handler, mail__list=handler)
    assert ["ready", "ready"] == (await performed(harness.broker, registry)).output
    listed = await performed(harness.broker, registry, ToolCall("turn-1.0.1", "mail__list"))
    assert ["ready", "error"] == listed.output


@pytest.mark.rule("002-2.5-3")
async def test_a_tool_without_auth_has_no_oauth(harness: Harness):
    registry = registry_of(plain__run=lambda ctx, args: hasattr(ctx, "oauth"))
    assert (await performed(harness.broker, registry, ToolCall("c", "plain__run"))).output is False


@pytest.mark.rule("tools.ours-5")
async def test_consent_is_a_result_and_a_block_of_the_next_step(harness: Harness):
    async def handler(ctx: AuthorizedToolContext[Any], args: dict[str, Any]) -> Any:
        return await ctx.oauth.get_access_token("mail")

    assert [] == await blocks_of(harness.broker, TURN)
    result = await performed(harness.broker, registry_of(mail__send=handler))
    assert result.error is not None
    assert "E_AUTHORIZATION_REQUIRED" == result.error.code
    (block,) = await blocks_of(harness.broker, TURN)
    assert "auth.pending" == block["type"]
    assert block["items"][0]["authorizationUrl"] in (result.error.suggestion or "")
    assert [] == await blocks_of(harness.broker, turn(BOB, instance="another")), "of this conversation only"


async def test_a_token_that_a_tool_returns_does_not_reach_the_model(harness: Harness):
    async def handler(ctx: AuthorizedToolContext[Any], args: dict[str, Any]) -> Any:
        return (await ctx.oauth.get_access_token("mail")).to_json()

    await harness.connected()
    output = (await performed(harness.broker, registry_of(mail__send=handler))).output
    assert ("ready", "***") == (output["status"], output["accessToken"])


# the audit log


@pytest.mark.parametrize("waits", [True, False])
async def test_a_call_with_an_app_is_in_the_audit_log_before_it_is_made(harness: Harness, waits: bool):
    seen: list[dict[str, Any]] = []

    def handler(ctx: Any, args: dict[str, Any]) -> Any:
        seen.extend(vars(each) for each in harness.audit.entries if isinstance(each, ToolCalled))
        return "private"

    async def waiting(ctx: Any, args: dict[str, Any]) -> Any:
        return handler(ctx, args)

    registry = registry_of(mail__send=waiting if waits else handler)
    assert (
        "private" == (await performed(harness.broker, registry, ToolCall("call-1", "mail__send", {"to": "x"}))).output
    )
    entry = {"tool": "Tool/mail:send", "call": "call-1", "agent": TURN.agent_name, "instance": TURN.instance_key}
    assert [entry] == seen


async def test_a_call_without_an_app_is_not_in_the_audit_log(harness: Harness):
    registry = registry_of(plain__run=lambda ctx, args: None)
    assert "ok" == (await performed(harness.broker, registry, ToolCall("c", "plain__run"))).status
    assert not any(isinstance(each, ToolCalled) for each in harness.audit.entries)


async def test_a_call_that_the_audit_log_refuses_is_not_made(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    def refuse(entry: object, at: object) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    called: list[int] = []
    registry = registry_of(mail__send=lambda ctx, args: called.append(1))
    monkeypatch.setattr(harness.audit, "write", refuse)
    result = await performed(harness.broker, registry, journal=None)
    assert (Code.STORE_UNAVAILABLE, []) == (result.error and result.error.name, called)


# the journal


@pytest.mark.rule("tools.ours-6")
async def test_a_call_that_comes_again_returns_its_first_result(harness: Harness):
    done: list[int] = []

    def handler(ctx: ToolContext, args: dict[str, Any]) -> Any:
        done.append(1)
        return len(done) if len(done) < 3 else sys.exit(3)

    registry = registry_of(mail__send=handler)
    first = await performed(harness.broker, registry)
    assert first == await performed(harness.broker, registry)
    other = await performed(harness.broker, registry, ToolCall("turn-1.0.1", "mail__send"))
    failed = await performed(harness.broker, registry, ToolCall("turn-1.0.2", "mail__send"))
    assert failed == await performed(harness.broker, registry, ToolCall("turn-1.0.2", "mail__send"))
    assert (1, 2, "error", 3) == (first.output, other.output, failed.status, len(done))
    await DurableJournal(harness.broker, TURN).forget([CALL.id, "unknown"])
    assert "error" == (await performed(harness.broker, registry)).status
    assert 4 == len(done), "a result that is forgotten is performed anew"


@pytest.mark.rule("tools.ours-6")
async def test_instances_have_journals_of_their_own(harness: Harness):
    registry = registry_of(mail__send=lambda ctx, args: ctx.instance_key)
    found = [(await performed(harness.broker, registry, of=turn(ALICE, instance=each))).output for each in ("a", "b")]
    assert ["a", "b"] == found


@pytest.mark.rule("tools.ours-6")
async def test_the_same_call_at_the_same_time_is_performed_once(harness: Harness):
    begun, goes_on, done = asyncio.Event(), asyncio.Event(), list[int]()

    async def handler(ctx: ToolContext, args: dict[str, Any]) -> Any:
        done.append(1)
        begun.set()
        await goes_on.wait()
        return "done"

    registry = registry_of(mail__send=handler)
    calls, scope = ToolCalls(registry, harness.broker.scrubber.json), scope_of(harness.broker, registry)
    both = [asyncio.create_task(calls.perform(CALL, scope)) for _ in range(2)]
    await begun.wait()
    goes_on.set()
    assert ["done", "done"] == [each.output for each in await asyncio.gather(*both)]
    assert [1] == done


@pytest.mark.rule("tools.ours-7")
async def test_a_call_whose_process_ended_is_not_repeated(harness: Harness):
    begun, done = asyncio.Event(), list[int]()

    async def handler(ctx: ToolContext, args: dict[str, Any]) -> Any:
        done.append(1)
        begun.set()
        await asyncio.sleep(60)

    registry = registry_of(mail__send=handler)
    task = asyncio.create_task(performed(harness.broker, registry))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    again = await performed(harness.broker, registry)
    assert again.error is not None
    assert ("E_TOOL_INTERRUPTED", [1]) == (again.error.code, done)
    assert "took effect" in (again.error.suggestion or "")


class Failing:
    """A journal whose store fails in one operation."""

    def __init__(self, operation: str) -> None:
        self.operation = operation

    async def begin(self, call_id: str) -> Mapping[str, Any] | None:
        self._or_fail("begin")
        return None

    async def end(self, call_id: str, result: Mapping[str, Any]) -> None:
        self._or_fail("end")

    async def submit(self, handle: str, call: Mapping[str, Any]) -> None:
        self._or_fail("submit")

    async def complete(self, handle: str, result: Mapping[str, Any]) -> None:
        self._or_fail("complete")

    def _or_fail(self, operation: str) -> None:
        if operation == self.operation:
            raise BrokerError(Code.STORE_UNAVAILABLE)


@pytest.mark.rule("tools.ours-7")
@pytest.mark.parametrize(("operation", "performs", "status"), [("begin", [], "error"), ("end", [1], "ok")])
async def test_a_call_that_cannot_be_noted_is_not_performed(
    harness: Harness, operation: str, performs: list[int], status: str
):
    done: list[int] = []
    registry = registry_of(mail__send=lambda ctx, args: done.append(1))
    result = await performed(harness.broker, registry, journal=Failing(operation))
    assert (status, performs) == (result.status, done)
    assert result.error is None or "storeUnavailable" == result.error.name


# work that goes on


async def ended(calls: ToolCalls) -> None:
    """Return when no work goes on: an event tells of its end a moment before."""
    async with asyncio.timeout(60):
        while calls._going_on:
            await asyncio.sleep(0.01)
    await calls.close()


LARGE = {"toolCallId": CALL.id, "toolName": CALL.name, "status": "ok", "output": "é" * 60_000}


async def going_on(output: Any, ends: asyncio.Event) -> Any:
    await ends.wait()
    return output() if callable(output) else output


@pytest.mark.rule("004-12.3-2", "004-12.3-3", "002-10.2-3")
@pytest.mark.parametrize("output", ["done", lambda: sys.exit(3)], ids=["output", "failure"])
async def test_work_that_goes_on_ends_with_an_event(harness: Harness, output: Any):
    ends, broker = asyncio.Event(), harness.broker
    registry = registry_of(mail__send=lambda ctx, args: GoesOn(going_on(output, ends)))
    scope = scope_of(broker, registry)
    calls = ToolCalls(registry, broker.scrubber.json)
    journal = DurableJournal(broker, TURN)
    assert {"toolCallId": CALL.id, "toolName": CALL.name, "status": "ok", "handle": CALL.id} == (
        await calls.perform(CALL, scope)
    ).to_json()
    assert {"status": "running"} == await journal.look(CALL.id)
    ends.set()
    lease = await broker.events.lease("planner", wait=30)
    assert lease is not None
    assert ("tool.completed", TURN.instance_key, TURN.auth) == (
        lease.type,
        lease.event.turn.instance_key,
        lease.event.turn.auth,
    )
    payload = dict(lease.event.payload)
    assert (CALL.id, CALL.id, "mail__send") == (payload["handle"], payload["toolCallId"], payload["toolName"])
    assert payload.get("output") == "done" if output == "done" else payload["error"]["name"] == "SystemExit"
    await ended(calls)
    assert await journal.look(CALL.id) is None


@pytest.mark.rule("004-12.3-3")
async def test_a_result_too_large_for_an_event_is_polled(harness: Harness):
    ends, broker = asyncio.Event(), harness.broker
    ends.set()
    registry = registry_of(mail__send=lambda ctx, args: GoesOn(going_on("é" * 60_000, ends)))
    calls, scope = ToolCalls(registry, broker.scrubber.json), scope_of(broker, registry)
    await calls.perform(CALL, scope)
    lease = await broker.events.lease("planner", wait=30)
    assert lease is not None
    assert {"handle", "toolCallId", "toolName", "status"} == set(lease.event.payload)
    await ended(calls)
    journal = DurableJournal(broker, TURN)
    found = await journal.take(CALL.id)
    assert found is not None
    assert "é" * 60_000 == found["output"]
    assert await journal.take(CALL.id) is None


@pytest.mark.rule("004-12.3-3")
async def test_a_large_result_can_be_polled_as_soon_as_its_event_is_there(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    journal, enqueue, seen = DurableJournal(harness.broker, TURN), harness.broker.events.enqueue, list[Any]()

    async def and_polled(*words: Any, **more: Any) -> Any:
        done = await enqueue(*words, **more)
        seen.append(await journal.look(CALL.id))
        return done

    monkeypatch.setattr(journal, "_events", SimpleNamespace(enqueue=and_polled))
    await journal.submit(CALL.id, {})
    await journal.complete(CALL.id, LARGE)
    assert [LARGE] == seen


@pytest.mark.rule("004-12.3-3")
async def test_a_large_result_of_work_that_ends_while_it_is_polled_is_kept(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    journal = DurableJournal(harness.broker, TURN)
    look = journal.look
    await journal.submit(CALL.id, {})

    async def and_ended(handle: str) -> Any:
        found = await look(handle)
        await journal.complete(handle, LARGE)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(journal, "look", and_ended)
        assert {"status": "running"} == await journal.take(CALL.id)
    assert LARGE == await journal.take(CALL.id)
    assert await journal.take(CALL.id) is None


@pytest.mark.rule("004-12.3-3", "tools.ours-7")
async def test_work_of_a_process_that_ended_is_reported_as_interrupted(harness: Harness):
    broker = harness.broker
    registry = registry_of(mail__send=lambda ctx, args: GoesOn(going_on("done", asyncio.Event())))
    calls, scope = ToolCalls(registry, broker.scrubber.json), scope_of(broker, registry)
    await calls.perform(CALL, scope)
    await calls.close()
    journal = DurableJournal(broker, TURN)
    assert [1, 0] == [await journal.recover(), await journal.recover()]
    lease = await broker.events.lease("planner", wait=30)
    assert lease is not None
    assert "E_TOOL_INTERRUPTED" == lease.event.payload["error"]["code"]
    await journal.complete(CALL.id, {"toolCallId": CALL.id, "toolName": CALL.name, "status": "ok", "output": 1})
    assert await lease.ack()
    assert await broker.events.lease("planner") is None, "its end is one event"


@pytest.mark.parametrize("journal", [None, Failing("submit")], ids=["none", "failing"])
async def test_work_that_cannot_be_noted_does_not_begin(harness: Harness, journal: Any):
    done: list[int] = []

    async def work() -> None:
        done.append(1)

    registry = registry_of(mail__send=lambda ctx, args: GoesOn(work()))
    result = await performed(harness.broker, registry, journal=journal)
    await asyncio.sleep(0)
    assert ("error", []) == (result.status, done)


async def test_an_end_that_cannot_be_told_stops_nothing(harness: Harness, caplog: pytest.LogCaptureFixture):
    ends = asyncio.Event()
    registry = registry_of(mail__send=lambda ctx, args: GoesOn(going_on("done", ends)))
    calls = ToolCalls(registry, harness.broker.scrubber.json)
    result = await calls.perform(CALL, scope_of(harness.broker, registry, journal=Failing("complete")))
    ends.set()
    await asyncio.wait(calls._going_on)
    assert CALL.id == result.handle
    assert ["the end of submitted work is not told: BrokerError"] == caplog.messages


async def test_an_instance_has_a_bounded_amount_of_work_that_goes_on(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("oauthbroker.tools.calling.journal.MOST_OPEN", 2)
    assert MOST_OPEN > 2
    registry = registry_of(mail__send=lambda ctx, args: GoesOn(going_on("done", asyncio.Event())))
    calls, scope = ToolCalls(registry, harness.broker.scrubber.json), scope_of(harness.broker, registry)
    found = [await calls.perform(ToolCall(str(each), "mail__send"), scope) for each in range(3)]
    assert ["ok", "ok", "error"] == [each.status for each in found]
    await calls.close()


async def test_results_are_removed_with_the_user(harness: Harness):
    registry = registry_of(mail__send=lambda ctx, args: "of Alice")
    await performed(harness.broker, registry)
    await harness.broker.erase(ALICE)
    assert [] == [value async for _key, value in harness.broker.plugin_state("tools").all()]
