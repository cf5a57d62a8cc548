"""Tool calls: which are allowed, a handler's arguments, and that every end is a result (specification 002, sections 2.3, 2.4,
9 and 10)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker import (
    AuthorizationRequired,
    AuthorizationRequiredError,
    BrokerError,
    Code,
    Failed,
    RequestRefusedError,
    Secret,
)
from oauthbroker.tools.bundle.spec import ToolResourceSpec
from oauthbroker.tools.calling.calls import ToolCalls
from oauthbroker.tools.calling.context import ToolContext
from oauthbroker.tools.calling.registry import Registry
from oauthbroker.tools.types.catalog import ToolCatalogItem
from oauthbroker.tools.types.failures import ToolCode, ToolFailure
from oauthbroker.tools.types.results import VALUE, Submitted, ToolCall, ToolCallResult, ToolError
from tests.unit.tools.kit import CITY, TOKEN, gives, performed, registry_with, scope_of, scrub

ASKED = AuthorizationRequired(
    auth_session_id="as-1",
    authorization_url="https://login.example/x",
    expires_at=datetime(2026, 1, 1, tzinfo=UTC),
    message="Connect mail.",
    reason="noGrant",
)
REFUSED = Failed.from_error(BrokerError(Code.APP_FORBIDDEN), "en")


@pytest.mark.rule("002-9.2-1", "002-2.3-1", "002-2.3-2", "002-2.3-4", "002-9.1-1", "002-9.1-2", "002-9.1-4")
@pytest.mark.parametrize("owner", ["Tool/weather", "Extension/weather"])
@pytest.mark.parametrize("name", ["unknown__action", "weather__get", "weather__later", "날씨__조회"])
async def test_a_call_outside_the_catalog_is_refused_as_printed(name: str, owner: str):
    """One that no tool has, one that the step hides, and one that is registered after the step began."""
    reached: list[str] = []
    registry = registry_with(lambda ctx, args: reached.append("handler"), owner=owner)
    scope = scope_of(registry, "weather", locale="ko")
    scope.catalog.remove("weather__get")
    registry.register(ToolCatalogItem(name="weather__later"), lambda ctx, args: reached.append("later"), owner=owner)

    async def around(call: ToolCall, perform: Any) -> Any:
        reached.append("middleware")
        return await perform(call)

    result = await ToolCalls(registry, scrub).perform(ToolCall("call-1", name), scope, around)
    assert [] == reached
    assert {
        "toolCallId": "call-1",
        "toolName": name,
        "status": "error",
        "error": {
            "code": "E_TOOL_NOT_IN_CATALOG",
            "name": "ToolNotInCatalogError",
            "message": f"Tool '{name}' is not available in the current Tool Catalog.",
            "suggestion": "Agent 구성의 spec.tools에 해당 도구를 추가하거나, step 미들웨어에서 동적으로 등록하세요.",
        },
    } == result.to_json()


@pytest.mark.rule("002-2.3-1", "002-2.3-2", "002-8.1-1")
@pytest.mark.parametrize("owner", ["Tool/weather", "Extension/weather"])
async def test_a_refused_call_reaches_neither_middleware_nor_handler(owner: str):
    reached: list[str] = []
    registry = registry_with(lambda ctx, args: reached.append("handler"), owner=owner)

    async def around(call: ToolCall, perform: Any) -> ToolCallResult:
        reached.append("before")
        result: ToolCallResult = await perform(call)
        reached.append("after")
        return result

    shown, hidden = scope_of(registry, "weather"), scope_of(registry, "weather")
    hidden.catalog.remove("weather__get")
    calls = ToolCalls(registry, scrub)
    both = [calls.perform(ToolCall("c", "weather__get"), scope, around) for scope in (hidden, shown)]
    assert ["error", "ok"] == [each.status for each in await asyncio.gather(*both)], "each by the catalog of its step"
    assert ["before", "handler", "after"] == reached
    registry.remove("weather__get", owner=owner)
    assert "error" == (await calls.perform(ToolCall("c", "weather__get"), shown, around)).status
    assert 3 == len(reached)


@pytest.mark.rule("002-2.3-3", "004-12.2-1", "002-9.1-3")
async def test_the_registry_is_called_directly_by_explicit_policy_only():
    registry = registry_with(lambda ctx, args: "done")
    calls = ToolCalls(registry, scrub, outside_catalog=True)
    assert "done" == (await calls.perform(ToolCall("c", "weather__get"), scope_of(registry))).output
    unknown = await calls.perform(ToolCall("c", "unknown__action"), scope_of(registry))
    assert unknown.error is not None
    assert "E_TOOL_NOT_IN_CATALOG" == unknown.error.code


@pytest.mark.rule("002-10.1-1", "002-10.3-1", "002-2.4-1", "002-2.4-4", "002-2.4-5", "002-10.2-2", "004-12.3.1-1")
@pytest.mark.parametrize("owner", ["Tool/weather", "Extension/weather"])
@pytest.mark.parametrize("waits", [True, False])
async def test_a_failure_is_reported_as_printed(waits: bool, owner: str):
    def blocking(ctx: object, args: object) -> None:
        raise ToolFailure("요청 실패", help_url="https://docs.goondan.ai/errors/E_TOOL")

    async def waiting(ctx: object, args: object) -> None:
        blocking(ctx, args)

    result = (await performed(waiting if waits else blocking, owner=owner, locale="ko")).to_json()
    assert "output" not in result
    assert "handle" not in result
    assert {
        "status": "error",
        "error": {
            "code": "E_TOOL",
            "name": "Error",
            "message": "요청 실패",
            "suggestion": "입력 파라미터를 확인하세요.",
            "helpUrl": "https://docs.goondan.ai/errors/E_TOOL",
        },
    } == {member: result[member] for member in ("status", "error")}


RAISED = [ValueError("no"), SystemExit(3), KeyboardInterrupt("no"), GeneratorExit("no"), StopIteration("no"), asyncio.CancelledError("no"),
          MemoryError("no"), RecursionError("no"), BaseException("no"), ExceptionGroup("no", [ValueError("1"), ValueError("2")])]  # fmt: skip


@pytest.mark.rule("002-2.4-1", "002-8.1-1", "004-12.3.1-1", "002-1.1-5", "002-10.3-2")
@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("waits", [True, False])
async def test_no_exception_of_a_handler_is_raised(error: BaseException, waits: bool):
    async def waiting(ctx: object, args: object) -> None:
        raise error

    def blocking(ctx: object, args: object) -> None:
        raise error

    result = await performed(waiting if waits else blocking)
    assert result.error is not None
    assert "E_TOOL" == result.error.code
    if type(error) is not StopIteration:  # Python makes another exception of it inside `async def`
        assert type(error).__name__ == result.error.name


async def test_an_exception_whose_text_raises_is_reported_by_its_type():
    class Odd(Exception):
        def __str__(self) -> str:
            raise SystemExit

    def handler(ctx: object, args: object) -> None:
        raise Odd

    result = await performed(handler)
    assert result.error is not None
    assert ("Odd", "Odd") == (result.error.name, result.error.message)


@pytest.mark.parametrize("waits", [True, False])
async def test_the_cancellation_of_the_caller_passes(waits: bool):
    begun, ends = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def waiting(ctx: object, args: object) -> None:
        begun.set()
        await asyncio.sleep(60)

    def blocking(ctx: object, args: object) -> None:
        loop.call_soon_threadsafe(begun.set)
        ends.wait(60)

    task = asyncio.create_task(performed(waiting if waits else blocking))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ends.set()


@pytest.mark.rule("002-7.1-1", "002-2.7-3")
async def test_a_handler_is_a_function_with_or_without_await():
    async def waiting(ctx: ToolContext, args: dict[str, Any]) -> Any:
        return [threading.current_thread() is threading.main_thread(), args]

    def blocking(ctx: ToolContext, args: dict[str, Any]) -> Any:
        return [threading.current_thread() is threading.main_thread(), args]

    def later(ctx: ToolContext, args: dict[str, Any]) -> Any:
        return and_on_the_loop(threading.current_thread() is threading.main_thread())

    async def and_on_the_loop(began: bool) -> Any:
        return [began, threading.current_thread() is threading.main_thread()]

    args = {"city": "Seoul"}
    assert [True, args] == (await performed(waiting, args)).output
    assert [False, args] == (await performed(blocking, args)).output
    assert [True, args] == (await performed(partial(waiting), args)).output
    assert [False, True] == (await performed(later, args)).output


ENDLESS = """
import asyncio, threading
from tests.unit.tools.kit import performed

async def main():
    try:
        await asyncio.wait_for(performed(lambda ctx, args: threading.Event().wait()), 0.2)
    except TimeoutError:
        print("timeout")

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_handler_that_never_returns_does_not_hold_up_the_end_of_the_process():
    root = Path(__file__).parents[3]
    ran = subprocess.run(
        [sys.executable, "-c", ENDLESS], check=False, cwd=root, capture_output=True, text=True, timeout=60
    )
    assert (0, "timeout\n", "") == (ran.returncode, ran.stdout, ran.stderr)


async def test_a_handler_that_blocks_holds_up_no_other_call():
    ends = threading.Event()
    blocked = [asyncio.create_task(performed(lambda ctx, args: ends.wait(30))) for _ in range(60)]
    await asyncio.sleep(0)
    assert 1 == (await asyncio.wait_for(performed(lambda ctx, args: 1), 60)).output
    ends.set()
    assert all(each.output for each in await asyncio.gather(*blocked))


@pytest.mark.rule("002-2.5-1", "002-2.5-3", "002-2.5-4", "002-7.3-1")
async def test_the_context_has_the_printed_members_and_no_oauth():
    seen: list[ToolContext] = []
    registry = registry_with(lambda ctx, args: seen.append(ctx))
    scope = scope_of(registry, "weather", oauth_of=gives(None))
    await ToolCalls(registry, scrub).perform(ToolCall("call-7", "weather__get"), scope)
    (ctx,) = seen
    assert {
        "agent_name",
        "instance_key",
        "turn_id",
        "trace_id",
        "tool_call_id",
        "message",
        "workdir",
        "logger",
        "runtime",
    } == set(ToolContext.__dataclass_fields__)
    assert ("planner", "thread-1", "turn-1", "trace-1", "call-7") == (
        ctx.agent_name, ctx.instance_key, ctx.turn_id, ctx.trace_id, ctx.tool_call_id,
    )  # fmt: skip
    assert (scope.message, scope.workdir, None) == (ctx.message, ctx.workdir, ctx.runtime)
    assert (scope.logger, scope.logger.name) == (ctx.logger.parent, ctx.logger.name)
    assert not hasattr(ctx, "oauth")
    assert not hasattr(ctx, "swarm_bundle")


@pytest.mark.parametrize(("waits", "owner", "asked"), [
    (True, "Tool/weather", "Tool/weather:get"), (False, "Tool/weather", "Tool/weather:get"), (False, "Extension/x", "Extension/x"),
])  # fmt: skip
async def test_a_tool_that_declared_an_app_gets_the_capability(waits: bool, owner: str, asked: str):
    async def waiting(ctx: Any, args: object) -> Any:
        return ctx.oauth.asked

    async def oauth_of(asks_as: str, call_id: str, *, blocking: bool) -> Any:
        return SimpleNamespace(asked=[asks_as, blocking])

    handler: Any = waiting if waits else lambda ctx, args: ctx.oauth.asked
    assert [asked, not waits] == (await performed(handler, owner=owner, oauth_of=oauth_of)).output


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    "ends",
    [lambda: ASKED, lambda: (_ for _ in ()).throw(AuthorizationRequiredError(ASKED))],
    ids=["returned", "raised"],
)
async def test_a_call_that_needs_consent_tells_the_model_what_to_do(ends: Any, waits: bool):
    async def waiting(ctx: object, args: object) -> Any:
        return ends()

    result = await performed(waiting if waits else lambda ctx, args: ends(), limit=5)
    assert result.error is not None
    assert ("E_AUTHORIZATION_REQUIRED", "AuthorizationRequired") == (result.error.code, result.error.name)
    assert "https://login.example/x" in (result.error.suggestion or ""), "no limit cuts the link"


@pytest.mark.parametrize(
    "ends",
    [
        lambda: REFUSED,
        lambda: (_ for _ in ()).throw(RequestRefusedError(REFUSED)),
        lambda: (_ for _ in ()).throw(BrokerError(Code.APP_FORBIDDEN)),
    ],
)
async def test_a_call_without_a_token_tells_the_code(ends: Any):
    result = await performed(lambda ctx, args: ends())
    assert result.error is not None
    assert ("appForbidden", "E_TOOL", REFUSED.message) == (result.error.name, result.error.code, result.error.message)


TYPED = {
    "type": "object",
    "properties": {
        "text": {"type": "string"}, "number": {"type": "number"}, "flag": {"type": "boolean"}, "kind": {"enum": ["a", 2]},
        "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}}},
        "inner": {"type": "object", "additionalProperties": False}, "with": {"type": "string", "default": "x"},
    },
    "additionalProperties": False,
}  # fmt: skip
FITTING: list[dict[str, Any]] = [
    {}, {"text": ""}, {"text": "한글 \U0001f600\0"}, {"number": 1}, {"number": 1.5}, {"number": -0.0}, {"number": 10**30}, {"flag": False}, {"kind": 2}, {"kind": 2.0},
    {"list": []}, {"list": [{"n": 1}, {}]}, {"inner": {}}, {"with": "y"},
]  # fmt: skip
UNFIT: list[dict[str, Any]] = [
    {"text": 1}, {"text": None}, {"text": ["a"]}, {"number": "1"}, {"number": True}, {"number": None}, {"flag": 0}, {"flag": "true"}, {"kind": "2"}, {"kind": True},
    {"list": {}}, {"list": "[]"}, {"list": [1]}, {"list": [{"n": "1"}]}, {"inner": []}, {"inner": {"a": 1}}, {"Text": "a"}, {"": 1}, {"t\u0435xt": "a"},
]  # fmt: skip


@pytest.mark.rule("002-7.1-2", "002-6.1-1")
@pytest.mark.parametrize("owner", ["Tool/weather", "Extension/weather"])
async def test_arguments_of_each_printed_type_fit_or_are_refused(owner: str):
    called: list[Any] = []

    def handler(ctx: object, args: Any) -> None:
        called.append(args)

    for status, rows in {"ok": FITTING, "error": UNFIT}.items():
        for args in rows:
            assert status == (await performed(handler, args, parameters=TYPED, owner=owner)).status, args
    assert FITTING == called, "no default is filled in"


@pytest.mark.rule("002-6.1-2")
@pytest.mark.parametrize("args", [{}, {"any": ["thing"]}, {"": None}])
async def test_an_export_without_parameters_takes_any_object(args: Any):
    assert args == (await performed(lambda ctx, given: given, args)).output
    assert "error" == (await performed(lambda ctx, given: given, [args])).status


@pytest.mark.rule("002-7.1-2", "002-8.3-1")
async def test_arguments_that_a_middleware_has_changed_are_checked_too():
    called: list[Any] = []
    registry = registry_with(lambda ctx, args: called.append(args), parameters=CITY)

    async def around(call: ToolCall, perform: Any) -> ToolCallResult:
        result: ToolCallResult = await perform(ToolCall(call.id, call.name, {"city": 3}))
        return result

    call, scope = ToolCall("c", "weather__get", {"city": "Seoul"}), scope_of(registry, "weather")
    result = await ToolCalls(registry, scrub).perform(call, scope, around)
    assert result.error is not None
    assert ("E_TOOL_ARGUMENTS", []) == (result.error.code, called)


@pytest.mark.rule("002-7.1-2", "002-6.1-1")
@pytest.mark.parametrize(
    ("args", "reported"),
    [({}, '"city" is a required property'), ({"city": 3}, 'city: the value is not of type "string"'), ({"city": None}, "city: "),
     ([], "no object"), ("x", "no object"), (None, "required"), ({"city": float("nan")}, "finite"), ({"city": "\ud800"}, "half a character"),
     ({"city": "x" * VALUE.size}, "262144 bytes"), ({"city": object()}, "JSON does not have")],
)  # fmt: skip
async def test_arguments_are_checked_before_the_handler_is_called(args: Any, reported: str):
    called: list[Any] = []
    result = await performed(lambda ctx, given: called.append(given), args, parameters=CITY)
    assert [] == called
    assert result.error is not None
    assert ("E_TOOL_ARGUMENTS", "ToolArgumentsError") == (result.error.code, result.error.name)
    assert reported in result.error.message


async def test_problems_quote_no_value_and_are_few():
    schema = {"type": "object", "additionalProperties": {"type": "string"}}
    result = await performed(lambda ctx, args: 1, {f"a{n}": {"secret": "s3cret"} for n in range(99)}, parameters=schema)
    assert result.error is not None
    assert "s3cret" not in result.error.message
    assert 5 == result.error.message.count("is not of type")


async def test_a_handler_cannot_change_the_call():
    call = {"city": ["Seoul"]}

    def handler(ctx: object, args: Any) -> Any:
        args["city"].append("Busan")
        return args

    assert {"city": ["Seoul", "Busan"]} == (await performed(handler, call)).output
    assert {"city": ["Seoul"]} == call


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("output", "reported"),
    [(float("inf"), "not finite"), (LOOP, "contains itself"), ({1, 2}, "JSON does not have"), ("\udfff", "half a character"),
     (Secret("hidden"), "JSON does not have"), ("x" * VALUE.size, "262144 bytes"), ({(1, 2): 3}, "of the type 'tuple'")],
)  # fmt: skip
async def test_an_output_that_is_no_json_is_an_error(output: Any, reported: str):
    result = await performed(lambda ctx, args: output)
    assert result.error is not None
    assert ("E_TOOL_OUTPUT", True) == (result.error.code, reported in result.error.message)
    assert "If the output is too large, ask for less. Else the tool is at fault" in (result.error.suggestion or "")


@pytest.mark.rule("002-10.2-1", "004-12.3-1")
@pytest.mark.parametrize(
    "output",
    [
        None,
        0,
        "",
        [],
        False,
        1.5,
        -(2**60),
        "한글 \U0001f600\0",
        {"한": []},
        {"stdout": "x", "exitCode": 0},
        (1, (2,)),
        {"a": {"b": None}},
    ],
)
async def test_a_value_that_a_handler_returns_is_the_output(output: Any):
    result = (await performed(lambda ctx, args: output)).to_json()
    assert ("ok", [1, [2]] if isinstance(output, tuple) else output) == (result["status"], result["output"])


@pytest.mark.rule("004-12.3-2")
async def test_submitted_work_is_a_handle():
    result = (await performed(lambda ctx, args: Submitted("job-7"))).to_json()
    assert {"toolCallId": "call-1", "toolName": "weather__get", "status": "ok", "handle": "job-7"} == result


async def test_tokens_reach_no_result():
    def failing(ctx: object, args: object) -> None:
        raise ToolFailure(
            f"bad {TOKEN}", suggestion=f"try {TOKEN}", name=TOKEN, code=TOKEN, help_url=f"https://x.example/{TOKEN}"
        )

    for handler in (failing, lambda ctx, args: {TOKEN: [TOKEN]}, lambda ctx, args: Submitted(TOKEN)):
        reported = str((await performed(handler)).to_json())
        assert TOKEN not in reported
        assert "***" in reported


@pytest.mark.rule("002-2.4-2", "002-2.4-3", "002-10.1-2", "002-10.4-1", "004-12.3.1-2", "004-12.3.1-3")
@pytest.mark.parametrize("limit", [None, 20, 1200])
@pytest.mark.parametrize("text", ["x", "한", "\U0001f600"])
@pytest.mark.parametrize("place", ["handler", "middleware", "arguments"])
async def test_a_message_is_cut_to_the_limit_of_its_tool(place: str, text: str, limit: int | None):
    """A message counts characters as Unicode does: one of four bytes is one."""

    def handler(ctx: object, args: object) -> None:
        raise RuntimeError(text * 5000)

    async def around(call: ToolCall, perform: Any) -> Any:
        if place == "middleware":
            raise ToolFailure(text * 5000)
        return await perform(call)

    properties = {text * 300: {"type": "string"}, text * 301: {"type": "string"}, text * 999: {"type": "string"}}
    parameters = {"type": "object", "properties": properties}
    registry = registry_with(handler, parameters=parameters, limit=limit or 1000)
    args = {name: 1 for name in properties if place == "arguments"}
    result = await ToolCalls(registry, scrub).perform(
        ToolCall("c", "weather__get", args), scope_of(registry, "weather"), around
    )
    assert result.error is not None
    assert (limit or 1000) == len(result.error.message)
    assert result.error.message.endswith("... (truncated)")
    if place != "arguments":
        assert text * ((limit or 1000) - len("... (truncated)")) == result.error.message.removesuffix("... (truncated)")


@pytest.mark.rule("004-12.3.1-2", "004-12.3.1-3")
@pytest.mark.parametrize("text", ["", "x" * 1000, "요" * 1000, "\U0001f600" * 1000, "x" * 1001, "요" * 5000])
async def test_a_message_of_a_thousand_characters_is_whole_where_no_limit_is_given(text: str):
    def handler(ctx: object, args: object) -> None:
        raise ToolFailure(text)

    registry = Registry()
    registry.register(ToolCatalogItem(name="weather__get"), handler, owner="Tool/weather")
    result = await ToolCalls(registry, scrub).perform(ToolCall("c", "weather__get"), scope_of(registry, "weather"))
    assert result.error is not None
    whole = text or "The tool failed."
    assert (whole if len(whole) <= 1000 else whole[:985] + "... (truncated)") == result.error.message
    assert 1000 == ToolResourceSpec.model_fields["error_message_limit"].default


def raising(error: BaseException) -> Any:
    def handler(ctx: object, args: object) -> None:
        raise error

    return handler


LONG = "한글\U0001f600 " * 2000
ENDS = {
    "an exception": raising(ValueError(LONG)),
    "a failure of the tool": raising(ToolFailure(LONG, suggestion="s", help_url="https://x.example/")),
    "several exceptions": raising(ExceptionGroup(LONG, [ValueError(), ValueError()])),
    "a refusal of the broker": lambda ctx, args: replace(REFUSED, message=LONG),
    "a request for consent": lambda ctx, args: replace(ASKED, message=LONG),
    "an output that is no JSON": lambda ctx, args: {LONG: {1}},
}


@pytest.mark.rule("002-2.4-2", "002-2.4-3", "002-2.4-4")
@pytest.mark.parametrize("owner", ["Tool/weather", "Extension/weather"])
@pytest.mark.parametrize("limit", [None, 1, 14, 15, 10_000])
async def test_every_message_is_cut_and_has_a_suggestion(owner: str, limit: int | None):
    known: dict[str, Any] = {"owner": owner} | ({} if limit is None else {"limit": limit})
    results = [await performed(handler, **known) for handler in ENDS.values()]
    results.append(await performed(lambda ctx, args: 1, {LONG: 1}, parameters=CITY, **known))
    for end, result in zip([*ENDS, "arguments"], results, strict=True):
        assert result.error is not None
        assert len(result.error.message) <= (limit or 1000), end
        assert result.error.suggestion, end


@pytest.mark.rule("002-2.4-4")
@pytest.mark.parametrize("locale", ["en", "ko", "xx"])
async def test_each_code_has_a_suggestion_and_that_of_the_tool_comes_first(locale: str):
    for code in (*ToolCode, "E_AGENT_QUEUE", "E_CITY", "", "\ud55c"):
        usual = (await performed(raising(ToolFailure("no", code=code)), locale=locale)).error
        own = (await performed(raising(ToolFailure("no", code=code, suggestion="Ask.")), locale=locale)).error
        assert usual is not None
        assert own is not None
        assert usual.suggestion
        assert own.suggestion is not None
        assert own.suggestion.endswith("Ask.")
        assert (locale == "ko") is any("\uac00" <= char <= "\ud7a3" for char in usual.suggestion), code


async def test_a_huge_message_is_cut_at_a_space_before_it_is_scrubbed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("oauthbroker.tools.types.foreign_values.READ", 1000)
    assert 0 < 1000 % (len(TOKEN) + 1) < len(TOKEN), "the cut goes through a token"

    def handler(ctx: object, args: object) -> None:
        raise RuntimeError(f"{TOKEN} " * 99)

    result = await performed(handler)
    assert result.error is not None
    assert {"*", " "} == set(result.error.message)


async def test_a_middleware_may_change_arguments_and_result():
    registry = registry_with(lambda ctx, args: [args["city"], ctx.tool_call_id], parameters=CITY)

    async def around(call: ToolCall, perform: Any) -> ToolCallResult:
        result = await perform(ToolCall("another id", "another__name", {"city": "Busan"}))
        return ToolCallResult(tool_call_id="x", tool_name="y", output=[result.output, TOKEN])

    result = await ToolCalls(registry, scrub).perform(
        ToolCall("call-1", "weather__get", {"city": "Seoul"}), scope_of(registry, "weather"), around
    )
    expected = ToolCallResult(tool_call_id="call-1", tool_name="weather__get", output=[["Busan", "call-1"], "***"])
    assert expected == result


@pytest.mark.parametrize("ends", [SystemExit(1), ValueError("no"), asyncio.CancelledError()])
async def test_no_exception_of_a_middleware_is_raised(ends: BaseException):
    async def around(call: ToolCall, perform: Any) -> ToolCallResult:
        raise ends

    async def silent(call: ToolCall, perform: Any) -> Any:
        return None

    registry = registry_with(lambda ctx, args: 1)
    for each in (around, silent):
        call, scope = ToolCall("call-1", "weather__get"), scope_of(registry, "weather")
        result = await ToolCalls(registry, scrub).perform(call, scope, each)
        assert ("error", "call-1") == (result.status, result.tool_call_id)


async def test_an_error_without_a_reason_is_still_an_error():
    registry = registry_with(lambda ctx, args: 1)

    async def around(call: ToolCall, perform: Any) -> ToolCallResult:
        return ToolCallResult(tool_call_id="x", tool_name="y", status="error", output="ignored")

    call, scope = ToolCall("call-1", "weather__get"), scope_of(registry, "weather")
    result = await ToolCalls(registry, scrub).perform(call, scope, around)
    assert result.error == ToolError(
        message="The tool failed.", suggestion="Check the arguments of the call, or go on without this tool."
    )


@pytest.mark.rule("tools.ours-2")
@pytest.mark.parametrize("name", ["", "x" * 100_000, "bash", "a__b\n\x1b[0m", "../../etc__passwd", "weather__get "])
async def test_a_name_that_a_model_made_up_is_reported_in_one_short_line(name: str):
    registry = registry_with(lambda ctx, args: 1)
    result = await ToolCalls(registry, scrub).perform(ToolCall("c", name), scope_of(registry, "weather"))
    assert result.error is not None
    assert len(result.error.message) < 300
    assert result.error.message.isprintable()


async def test_a_tool_of_another_process_is_called_by_its_export():
    class Isolated:
        async def call(self, export: str, context: ToolContext, args: dict[str, Any]) -> Any:
            return [export, context.tool_call_id, args]

    assert ["get", "call-1", {"a": 1}] == (await performed(Isolated(), {"a": 1})).output


def test_an_empty_registry_finds_nothing():
    assert Registry().find("weather__get") is None
