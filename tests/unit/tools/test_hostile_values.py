"""Values of foreign code: of any tool, middleware or call, `perform` returns a result and raises nothing, and
the result is JSON that every process and store takes (specification 002, section 2.4)."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Mapping
from typing import Any

import pytest

from oauthbroker.tools.calling.calls import ToolCalls
from oauthbroker.tools.extensions.pipeline import Pipeline, StepContext, ToolCallContext
from oauthbroker.tools.types.failures import ToolFailure
from oauthbroker.tools.types.results import (
    MESSAGE,
    NAME,
    SUGGESTION,
    GoesOn,
    Submitted,
    ToolCall,
    ToolCallResult,
    ToolError,
)
from tests.kit.hostile_values import ERRORS, PLAIN, VALUES, made
from tests.unit.tools.kit import performed, registry_with, scope_of, scrub

AWAITED = {name for name in VALUES if "__await__" in name}  # where a function without `await` returns them
UNTRUE = ("process", "interrupt", "may have taken effect")


class MemoryJournal:
    """A journal whose results are JSON texts. It notes how submitted work ended."""

    def __init__(self) -> None:
        self.kept: dict[str, str | None] = {}
        self.completed: dict[str, str] = {}

    async def begin(self, call_id: str) -> Mapping[str, Any] | None:
        before = self.kept.setdefault(call_id, "")
        self.kept[call_id] = before or None
        return json.loads(before) if before else None

    async def end(self, call_id: str, result: Mapping[str, Any]) -> None:
        self.kept[call_id] = written(result)

    async def submit(self, handle: str, call: Mapping[str, Any]) -> None:
        pass

    async def complete(self, handle: str, result: Mapping[str, Any]) -> None:
        self.completed[handle] = written(result)


def written(result: Mapping[str, Any]) -> str:
    """Return a result as each of our readers gets it."""
    text = json.dumps(result, ensure_ascii=False, allow_nan=False)
    assert result == json.loads(text.encode())
    return text


def is_reported(result: ToolCallResult, *, name: str | None = None) -> ToolCallResult:
    """Check that a result can be written and is no untruth, and return it."""
    assert type(result) is ToolCallResult
    assert len(written(result.to_json())) < 300_000
    if result.error is not None:
        texts = result.error.to_json()
        assert all(type(text) is str for text in texts.values())
        assert 0 < len(result.error.message) <= MESSAGE
        assert len(result.error.suggestion or "") <= SUGGESTION
        assert max(len(result.error.name), len(result.error.code)) <= NAME
        assert not any(word in result.error.message for word in UNTRUE)
        assert name is None or name == result.error.name
    return result


async def ends_of(ends: Any) -> list[ToolCallResult]:
    """Return the results of a handler with and without `await`, with and without a journal."""

    async def waiting(ctx: object, args: object) -> Any:
        return ends()

    def blocking(ctx: object, args: object) -> Any:
        return ends()

    return [
        is_reported(await performed(handler, journal=journal))
        for handler in (waiting, blocking)
        for journal in (None, MemoryJournal())
    ]


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a coroutine of the table that is never awaited
        yield


@pytest.mark.sample(80)
@pytest.mark.parametrize("name", VALUES)
async def test_a_value_that_a_handler_returns_is_an_output_or_a_refusal(name: str):
    for result in await ends_of(lambda: made(name)):
        if name in AWAITED:
            continue
        assert (name in PLAIN) == (result.error is None)
        if result.error is not None:
            assert "E_TOOL_OUTPUT" == result.error.code
            assert result.error.message.startswith("The output is refused: ")


@pytest.mark.parametrize("name", ERRORS)
async def test_an_exception_that_a_handler_raises_is_reported_by_its_type_and_text(name: str):
    def raises() -> None:
        raise made(name)

    for result in await ends_of(raises):
        assert result.error is not None
        assert "E_TOOL" == result.error.code
        expected = {"a group of one": "ValueError", "a deep group": "ValueError"}.get(name)
        assert result.error.name == (expected or type(made(name)).__name__)


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", [*VALUES, *ERRORS])
async def test_the_members_of_a_failure_are_reported_as_texts(name: str):
    def raised(**members: Any) -> Any:
        raise ToolFailure(**{"message": "no"} | members)

    def tampered() -> Any:
        failure = ToolFailure("no")
        failure.error = made(name)
        raise failure

    for member in ("message", "name", "code", "suggestion", "help_url"):
        for result in await ends_of(lambda member=member: raised(**{member: made(name)})):
            assert result.error is not None
    for result in await ends_of(tampered):
        assert result.error is not None


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", [*VALUES, *ERRORS])
async def test_handles_and_work_of_another_form_are_refused(name: str):
    for result in await ends_of(lambda: Submitted(made(name))):
        handle = result.handle
        assert (handle is None) == (result.error is not None)
        assert handle is None or (
            type(handle) is str and handle in {"text", "red", "\x1b[31m\x7f\u2028", "\0", "\U0001f600"}
        )
    for result in await ends_of(lambda: GoesOn(made(name))):
        assert result.error is not None
        assert "GoesOn takes a coroutine" in result.error.message


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", [*VALUES, *ERRORS])
async def test_the_end_of_work_that_goes_on_is_an_end_like_that_of_a_call(name: str):
    async def work() -> Any:
        if name in ERRORS:
            raise made(name)
        return made(name)

    journal, registry = MemoryJournal(), registry_with(lambda ctx, args: GoesOn(work()))
    calls = ToolCalls(registry, scrub)
    assert (
        "c"
        == (await calls.perform(ToolCall("c", "weather__get"), scope_of(registry, "weather", journal=journal))).handle
    )
    async with asyncio.timeout(60):
        while not journal.completed:
            await asyncio.sleep(0)
    end = is_reported(ToolCallResult.from_json(json.loads(journal.completed["c"])))
    assert name in AWAITED or (end.error is None) == (name in PLAIN)


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", [*VALUES, *ERRORS])
async def test_a_middleware_cannot_make_perform_raise(name: str):
    registry = registry_with(lambda ctx, args: "done")

    async def ends(around: Any) -> ToolCallResult:
        scope = scope_of(registry, "weather", journal=MemoryJournal())
        return is_reported(await ToolCalls(registry, scrub).perform(ToolCall("c", "weather__get"), scope, around))

    def result(**members: Any) -> Any:
        async def around(call: ToolCall, perform: Any) -> Any:
            return ToolCallResult(**{"tool_call_id": made(name), "tool_name": made(name)} | members)

        return around

    async def returned(call: ToolCall, perform: Any) -> Any:
        return made(name)

    async def changed(call: ToolCall, perform: Any) -> Any:
        return await perform(ToolCall(call.id, call.name, made(name)))

    async def another_call(call: ToolCall, perform: Any) -> Any:
        return await perform(made(name))

    assert "middleware" in (await ends(returned)).error.message  # type: ignore[union-attr]
    await ends(changed)
    assert (await ends(another_call)).error is not None
    assert name in AWAITED or (await ends(result(output=made(name)))).status == ("ok" if name in PLAIN else "error")
    assert name == "none" or (await ends(result(error=made(name)))).error is not None
    await ends(result(status=made(name)))
    await ends(result(handle=made(name)))
    assert (
        await ends(
            result(error=ToolError(**dict.fromkeys(["message", "name", "code", "suggestion", "help_url"], made(name))))
        )
    ).error


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", [*VALUES, *ERRORS])
async def test_a_registered_middleware_cannot_make_perform_raise(name: str):
    registry = registry_with(lambda ctx, args: "done")
    for way in ("returned", "raised", "args", "raised inside"):
        pipeline = Pipeline()

        async def middleware(ctx: Any, way: str = way) -> Any:
            if way == "args":
                ctx.args = made(name)
            result = await ctx.next() if way != "raised inside" else None
            if way.startswith("raised") and name in ERRORS:
                raise made(name)
            return made(name) if way == "returned" else result

        pipeline.register("toolCall", middleware, owner="Extension/x")

        async def around(call: ToolCall, perform: Any, pipeline: Pipeline = pipeline) -> Any:
            async def core(changed: ToolCallContext) -> Any:
                return await perform(ToolCall(call.id, call.name, changed.args))

            context = ToolCallContext(step=StepContext.__new__(StepContext), tool_call_id="c", tool_name="x", args={})
            return await pipeline.run("toolCall", context, core)

        scope = scope_of(registry, "weather")
        result = is_reported(await ToolCalls(registry, scrub).perform(ToolCall("c", "weather__get"), scope, around))
        if result.error is not None and way != "args":
            assert "Extension/x: its toolCall middleware" in result.error.message


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", [*VALUES, *ERRORS])
async def test_a_call_of_any_form_has_a_result(name: str):
    registry = registry_with(lambda ctx, args: "done")
    for journal in (None, MemoryJournal()):
        scope = scope_of(registry, "weather", journal=journal)
        for call in (
            ToolCall("c1", made(name)),
            ToolCall(made(name), "weather__get"),
            ToolCall("c2", "weather__get", made(name)),
            ToolCall(*[made(name)] * 3),
        ):
            result = is_reported(await ToolCalls(registry, scrub).perform(call, scope))
            assert result.tool_call_id in {"c1", "c2"} or result.error is not None or name in PLAIN


async def test_what_the_model_reads_of_common_mistakes():
    """The sentences name the problem, the place and the remedy."""

    def failing(error: Any) -> Any:
        raise error

    reported = {
        "set": lambda: {"rows": [{"tags": {1}}]},
        "deep": lambda: made("200 levels"),
        "large": lambda: "x" * 300_000,
        "failure of an exception": lambda: failing(ToolFailure(ValueError("no such city"))),  # type: ignore[arg-type]
        "failure of a number": lambda: failing(ToolFailure(404)),  # type: ignore[arg-type]
        "failure of nothing": lambda: failing(ToolFailure(None)),  # type: ignore[arg-type]
        "half": lambda: failing(ValueError("caf\ud800")),
        "one of a task group": lambda: failing(ExceptionGroup("unhandled errors in a TaskGroup", [KeyError("city")])),
        "handle": lambda: Submitted(7),  # type: ignore[arg-type]
    }
    results = {name: (await ends_of(ends))[0] for name, ends in reported.items()}
    messages = {name: each.error.message for name, each in results.items() if each.error is not None}
    assert {
        "set": "The output is refused: at /rows/0/tags it holds a value of the type 'set', which JSON does not have: use texts, "
        "finite numbers, true, false, null, lists and objects only.",
        "deep": "The output is refused: at /0/0/0/0/0/0/0/0/... it has more than 64 levels: put the inner ones into a text.",
        "large": "The output is refused: it has more than 262144 bytes: use less, or several parts.",
        "failure of an exception": "no such city",
        "failure of a number": "404",
        "failure of nothing": "The tool failed.",
        "half": "caf\ufffd",
        "one of a task group": "'city'",
        "handle": "The output is refused: its handle is not a text of 1 to 200 characters.",
    } == messages


async def test_an_error_that_a_middleware_writes_as_json_is_that_error():
    registry = registry_with(lambda ctx, args: 1)

    async def around(call: ToolCall, perform: Any) -> Any:
        error: Any = {"message": "closed", "code": "E_CLOSED", "helpUrl": "https://x.example", "more": 1}
        return ToolCallResult(tool_call_id="x", tool_name="y", status="error", error=error)

    result = await ToolCalls(registry, scrub).perform(
        ToolCall("c", "weather__get"), scope_of(registry, "weather"), around
    )
    assert result.error is not None
    reported = result.error.to_json()
    assert ("closed", "E_CLOSED", "https://x.example") == (reported["message"], reported["code"], reported["helpUrl"])


async def test_a_tool_that_cancels_its_task_cancels_no_other_one():
    async def handler(ctx: object, args: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if args["waits"]:
            await asyncio.sleep(0)

    for waits in (True, False):
        result = await performed(handler, {"waits": waits})
        assert result.error is not None
        assert "CancelledError" == result.error.name
    await asyncio.sleep(0)


@pytest.mark.parametrize("waits", [True, False])
async def test_work_that_goes_on_and_cancels_its_task_ends_with_an_error(waits: bool):
    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if waits:
            await asyncio.sleep(0)

    journal = MemoryJournal()
    await performed(lambda ctx, args: GoesOn(work()), journal=journal)
    async with asyncio.timeout(60):
        while not journal.completed:
            await asyncio.sleep(0)
    (end,) = journal.completed.values()
    assert "CancelledError" == json.loads(end)["error"]["name"]


async def test_a_journal_that_knows_another_form_of_result_is_an_error_of_the_call():
    class Odd(MemoryJournal):
        async def begin(self, call_id: str) -> Mapping[str, Any] | None:
            return {"status": "ok"}

    result = await performed(lambda ctx, args: 1, journal=Odd())
    assert result.error is not None
    assert "KeyError" == result.error.name
