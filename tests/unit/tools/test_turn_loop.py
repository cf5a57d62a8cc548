"""The turn loop: messages, steps, calls in parallel, blocks, limits, and turns that go on after a crash."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.tools.extensions.pipeline import PipelineError, StepContext, ToolCallContext, TurnContext, TurnResult
from oauthbroker.tools.models import MOST_CALLS, MOST_KEPT_CALLS, ModelAnswer, ModelFailed
from oauthbroker.tools.turns.conversation import in_order
from oauthbroker.tools.turns.turn_loop import ConfigurationChanged
from oauthbroker.tools.types.catalog import ToolCatalogItem
from oauthbroker.tools.types.failures import ToolFailure
from oauthbroker.tools.types.results import VALUE, Message, ToolCall, ToolCallResult, ToolError
from tests.kit.hostile_values import ERRORS, PLAIN, VALUES, made
from tests.unit.tools.turn_kit import Crashed, World, calls, event

DONE = ModelAnswer("Done.")
TEXTS = {name for name in PLAIN if issubclass(type(made(name)), str)}


@pytest.mark.rule("002-8.1-3")
async def test_a_turn_without_calls_is_the_models_words():
    world = World([ModelAnswer("Nothing is due.")])
    assert await world.run() == TurnResult("Nothing is due.", 1)
    assert [("user", "What is due?"), ("assistant", "Nothing is due.")] == [
        (m["role"], m["text"]) for m in world.recorded
    ]
    (request,) = world.model.requests
    assert "You plan." == request.system_prompt
    assert ["What is due?"] == [message.text for message in request.messages]


@pytest.mark.rule("turns.ours-7")
async def test_calls_run_in_parallel_and_their_results_keep_the_order_of_the_calls():
    world = World([calls(("notes__slow", {}), ("notes__fast", {})), DONE])
    fast_ended = asyncio.Event()

    async def slow() -> str:
        await asyncio.wait_for(fast_ended.wait(), 60)
        return "slow"

    async def fast() -> str:
        fast_ended.set()
        return "fast"

    world.tool("notes__slow", slow)
    world.tool("notes__fast", fast)
    seen: list[Any] = []

    async def watch(ctx: StepContext) -> Any:
        result = await ctx.next()
        seen.append([each.output for each in result.results])
        return result

    world.pipeline.register("step", watch, owner="Extension/watch")
    await world.run()
    asked = world.model.requests[1].messages
    assert ["slow", "fast"] == [message.result.output for message in asked if message.result is not None]
    assert [["slow", "fast"], []] == seen


@pytest.mark.rule("002-7.3-1", "002-8.2-1")
async def test_the_same_call_twice_in_an_answer_is_two_calls_with_ids_of_their_own():
    world = World([calls(("notes__add", {}), ("notes__add", {})), calls(("notes__add", {})), DONE])
    world.tool("notes__add", lambda: None)
    await world.run()
    ids = [call_id for _, call_id in world.performed]
    assert 3 == len(set(ids))
    assert all(len(each) <= 40 for each in ids), "providers take ids of forty characters"


async def test_a_call_of_an_unknown_tool_is_a_result_and_the_turn_goes_on():
    world = World([calls(("unknown__action", {})), DONE])
    assert "Done." == (await world.run()).answer
    (result,) = [m["result"] for m in world.recorded if "result" in m]
    assert "E_TOOL_NOT_IN_CATALOG" == result["error"]["code"]


@pytest.mark.rule("turns.ours-12")
async def test_what_waits_for_the_user_is_a_block_of_the_step_and_the_turn_ends_with_the_models_words():
    world = World([calls(("notes__read", {})), lambda asked: ModelAnswer(f"Please open {asked.blocks[0]['items'][0]}")])
    world.block = None

    def read() -> None:
        world.block = {"type": "auth.pending", "items": ["https://broker.example/connect/1"]}
        raise PermissionError("authorization_required")

    world.tool("notes__read", read)
    result = await world.run()
    assert "Please open https://broker.example/connect/1" == result.answer
    assert [[], [world.block]] == [list(request.blocks) for request in world.model.requests]


@pytest.mark.rule("turns.ours-12")
async def test_an_event_without_words_is_reported_by_the_system():
    world = World([DONE])
    await world.run(event(None, type="auth.granted", payload={"provider": "slack"}))
    first = world.recorded[0]
    assert "system" == first["role"]
    assert {"type": "auth.granted", "payload": {"provider": "slack"}} == json.loads(first["text"])


@pytest.mark.rule("turns.ours-8")
async def test_the_most_steps_end_a_turn_with_an_error():
    world = World([calls(("notes__add", {}))] * 9, max_steps=3)
    world.tool("notes__add", lambda: None)
    result = await world.run()
    assert (3, 3) == (result.steps, len(world.performed))
    assert result.error is not None
    assert ("E_MAX_STEPS", "The turn ended after 3 steps.") == (result.error.code, result.answer)


async def test_an_answer_in_the_last_step_is_no_error():
    world = World([calls(("notes__add", {})), DONE], max_steps=2)
    world.tool("notes__add", lambda: None)
    assert await world.run() == TurnResult("Done.", 2)


@pytest.mark.rule("002-2.1-1", "002-2.1-2", "002-2.3-1", "002-2.3-2", "002-1.1-1")
async def test_each_step_has_a_catalog_of_its_own_and_its_calls_are_checked_by_it():
    asked = calls(("notes__add", {}), ("other__run", {}))
    world = World([asked, asked, asked, DONE])
    world.tool("notes__add", lambda: "added")
    world.tool("other__run", lambda: "run", owner="Tool/other")

    async def hides_in_the_second(ctx: StepContext) -> Any:
        if ctx.index == 1:
            ctx.tool_catalog.remove("notes__add")
        return await ctx.next()

    world.pipeline.register("step", hides_in_the_second, owner="Extension/hides")
    await world.run()
    assert [["notes__add"], [], ["notes__add"], ["notes__add"]] == [
        [i.name for i in r.tools] for r in world.model.requests
    ]
    results = [message.result for message in world.model.requests[-1].messages if message.result is not None]
    refused = "E_TOOL_NOT_IN_CATALOG"
    assert ["added", refused, refused, refused, "added", refused] == [
        each.output if each.error is None else each.error.code for each in results
    ]


@pytest.mark.rule("002-2.1-3")
@pytest.mark.parametrize("given", [[], None, "notes__add"], ids=repr)
async def test_a_catalog_that_a_middleware_replaces_is_its_failure(given: Any):
    world = World([DONE])

    async def replaces(ctx: StepContext) -> Any:
        ctx.tool_catalog = given
        return await ctx.next()

    world.pipeline.register("step", replaces, owner="Extension/replaces")
    with pytest.raises(PipelineError, match=r"^Extension/replaces: its step middleware failed with TypeError$"):
        await world.run()


@pytest.mark.rule("002-8.3-1", "002-2.5-4")
async def test_a_middleware_that_changes_arguments_inside_changes_no_message():
    world = World([calls(("notes__add", {"texts": ["a"]})), DONE])
    world.tool("notes__add", lambda texts: texts)

    async def adds(ctx: ToolCallContext) -> Any:
        ctx.args["texts"].append("b")
        return await ctx.next()

    world.pipeline.register("toolCall", adds, owner="Extension/adds")
    await world.run()
    asked = world.model.requests[1].messages
    assert [{"texts": ["a"]}] == [call.args for message in asked for call in message.calls]
    assert [["a", "b"]] == [message.result.output for message in asked if message.result is not None]


@pytest.mark.rule("004-12.1-2", "002-2.1-3", "002-8.1-2")
async def test_a_step_middleware_changes_catalog_and_blocks_before_the_model_is_asked():
    world = World([DONE])
    world.tool("notes__read", lambda: None)
    world.tool("notes__drop", lambda: None)

    async def narrow(ctx: StepContext) -> Any:
        ctx.tool_catalog.remove("notes__drop")
        ctx.blocks.append({"type": "hint"})
        result = await ctx.next()
        with pytest.raises(RuntimeError):
            ctx.tool_catalog.remove("notes__read")
        return result

    world.pipeline.register("step", narrow, owner="Extension/narrow")
    await world.run()
    (request,) = world.model.requests
    assert ["notes__read"] == [item.name for item in request.tools]
    assert ({"type": "hint"},) == request.blocks


@pytest.mark.rule("002-12.3-2", "002-2.1-3", "002-9.2-1")
async def test_a_step_middleware_sees_changes_and_adds_dynamic_tools_for_its_step():
    """The suggestion of a refused call: register the tool in a step middleware."""
    world = World(
        [calls(("weather__get", {}), ("alerts__set", {})), calls(("weather__get", {}), ("alerts__set", {})), DONE]
    )
    world.tool("alerts__set", lambda: "set", owner="Extension/alerts")
    seen: list[list[str]] = []

    async def weather(ctx: StepContext) -> Any:
        seen.append([each.name for each in ctx.tool_catalog])
        if ctx.index == 0:
            world.tool("weather__get", lambda: "clear", owner="Extension/weather")
            ctx.tool_catalog.add(ToolCatalogItem(name="weather__get", description="Only now"))
            ctx.tool_catalog.remove("alerts__set")
        return await ctx.next()

    world.pipeline.register("step", weather, owner="Extension/weather")
    await world.run()
    ends = [each.result for each in world.model.requests[2].messages if each.result is not None]
    assert ["clear", "E_TOOL_NOT_IN_CATALOG", "clear", "set"] == [
        it.error.code if it.error else it.output for it in ends
    ]
    assert [["alerts__set"], *[["alerts__set", "weather__get"]] * 2] == seen, "each step begins anew"
    assert ["Only now", None] == [
        item.description for r in world.model.requests[:2] for item in r.tools if item.name == "weather__get"
    ]


@pytest.mark.rule("004-12.1-2", "002-2.1-4", "002-12.3-1", "002-12.1-1")
async def test_a_tool_registered_in_a_step_is_in_the_catalog_from_the_next_step_on():
    world = World([calls(("notes__add", {}), ("weather__get", {})), calls(("weather__get", {})), DONE])

    def add() -> None:
        world.registry.register(ToolCatalogItem(name="weather__get"), lambda _ctx, _input: 1, owner="Extension/weather")

    world.tool("notes__add", add)
    await world.run()
    ends = [each.result for each in world.model.requests[2].messages if each.result is not None]
    assert [None, "E_TOOL_NOT_IN_CATALOG", 1] == [it.error.code if it.error else it.output for it in ends]
    assert [["notes__add"], *[["notes__add", "weather__get"]] * 2] == [
        [i.name for i in r.tools] for r in world.model.requests
    ]


@pytest.mark.rule("turns.ours-3")
async def test_a_failing_tool_call_middleware_is_the_calls_result_and_names_its_extension():
    world = World([calls(("notes__add", {})), DONE])
    world.tool("notes__add", lambda: None)

    async def wrong(ctx: ToolCallContext) -> Any:
        """Forget next()."""

    world.pipeline.register("toolCall", wrong, owner="Extension/wrong")
    assert "Done." == (await world.run()).answer
    (result,) = [m["result"] for m in world.recorded if "result" in m]
    assert "Extension/wrong: its toolCall middleware did not call next()" == result["error"]["message"]
    assert [] == world.performed


async def test_a_middleware_refuses_a_call_with_an_error_of_its_own():
    world = World([calls(("notes__add", {})), DONE])
    world.tool("notes__add", lambda: None)

    async def gate(_ctx: ToolCallContext) -> Any:
        raise ToolFailure("not on Sundays", code="E_REFUSED", suggestion="Try on Monday.")

    world.pipeline.register("toolCall", gate, owner="Extension/gate")
    await world.run()
    (result,) = [m["result"] for m in world.recorded if "result" in m]
    assert ("E_REFUSED", "Try on Monday.") == (result["error"]["code"], result["error"]["suggestion"])
    assert [] == world.performed


async def test_a_failed_call_of_another_agent_is_a_result_with_its_code():
    world = World([calls(("notes__ask", {})), DONE])

    def ask() -> None:
        raise ToolFailure("no such agent", name="AgentCallFailed", code="E_AGENT_UNKNOWN", suggestion="writer")

    world.tool("notes__ask", ask)
    await world.run()
    (result,) = [m["result"] for m in world.recorded if "result" in m]
    assert {
        "code": "E_AGENT_UNKNOWN",
        "message": "no such agent",
        "name": "AgentCallFailed",
        "suggestion": "writer",
    } == (result["error"])


@pytest.mark.parametrize("kind", ["turn", "step"])
@pytest.mark.rule("turns.ours-4")
async def test_a_failing_turn_or_step_middleware_ends_the_turn_and_its_event_comes_again(kind):
    world = World([DONE])

    async def wrong(_ctx: Any) -> Any:
        raise RuntimeError("s3cret")

    world.pipeline.register(kind, wrong, owner="Extension/wrong")
    with pytest.raises(PipelineError, match=f"^Extension/wrong: its {kind} middleware failed with RuntimeError$"):
        await world.run()
    assert ["user"] == world.roles


@pytest.mark.rule("002-8.1-2")
async def test_a_turn_middleware_sees_event_and_messages_and_the_result():
    world = World([DONE])
    seen: list[Any] = []

    async def watch(ctx: TurnContext) -> Any:
        seen.extend([ctx.event.id, ctx.turn_id, ctx.trace_id, len(ctx.messages)])
        result = await ctx.next()
        seen.extend([result.answer, len(ctx.messages)])
        return result

    world.pipeline.register("turn", watch, owner="Extension/watch")
    await world.run()
    assert ["evt-1", "turn-evt-1", "trace-1", 1, "Done.", 2] == seen


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", [*VALUES, *ERRORS])
@pytest.mark.rule("turns.ours-32")
async def test_a_result_of_a_turn_middleware_that_cannot_be_used_ends_the_turn_with_an_error(name):
    """The answer is in the conversation, and another attempt would end alike."""

    class Hostile(TurnResult):
        @property
        def answer(self) -> Any:
            raise made("SystemExit")

    ways: dict[str, Any] = {
        "answer": lambda _ctx: TurnResult(made(name), 1),
        "steps": lambda _ctx: TurnResult("Done.", made(name)),
        "error": lambda _ctx: TurnResult("Done.", 1, made(name)),
        "members of the error": lambda _ctx: TurnResult("Done.", 1, ToolError(message=made(name), code=made(name))),
        "result": lambda ctx: setattr(ctx, "result", made(name)),
        "a method": lambda _ctx: object.__new__(Hostile),
    }
    for way, change in ways.items():
        world = World([DONE])

        async def wrong(ctx: TurnContext, change: Any = change) -> Any:
            await ctx.next()
            return change(ctx)

        world.pipeline.register("turn", wrong, owner="Extension/wrong")
        result = await world.run()
        reported = json.dumps([result.answer, result.error and result.error.to_json()], ensure_ascii=False)
        assert len(reported.encode()) < 2 * VALUE.size
        assert (str, 1) == (type(result.answer), result.steps)
        if way in {"result", "a method"} or (way == "answer" and name not in TEXTS):
            assert result.error is not None
            assert "E_TURN_RESULT" == result.error.code
            assert result.error.message == result.answer
            assert result.answer.startswith("The result of this turn is refused: ")
        elif way in {"error", "members of the error"}:
            assert (name == "none" and way == "error") == (result.error is None)
        else:
            assert result.error is None
        assert ["user", "assistant"] == world.roles


@pytest.mark.parametrize("name", ["a prototype", "a set", "an exception", "empty text"])
async def test_blocks_of_a_step_middleware_that_are_no_list_fail_the_turn(name):
    world = World([DONE])

    async def wrong(ctx: StepContext) -> None:
        ctx.blocks = made(name)
        await ctx.next()

    world.pipeline.register("step", wrong, owner="Extension/wrong")
    with pytest.raises(PipelineError, match=r"^an extension: its step middleware left blocks that are refused: "):
        await world.run()


@pytest.mark.parametrize("name", ["a set", "200 levels", "NaN", "an object with __iter__", "a dict that exits"])
async def test_blocks_of_a_step_middleware_that_are_no_json_fail_the_turn_before_the_model_is_asked(name):
    world = World([DONE])

    async def wrong(ctx: StepContext) -> None:
        ctx.blocks.append(made(name))
        await ctx.next()

    world.pipeline.register("step", wrong, owner="Extension/wrong")
    if name in PLAIN:
        await world.run()
        assert [{"a": 1}] == list(world.model.requests[0].blocks)
        return
    with pytest.raises(PipelineError, match=r"^an extension: its step middleware left blocks that are refused: at /0"):
        await world.run()
    assert [] == world.model.requests


async def test_a_middleware_that_swallows_a_failing_model_does_not_turn_for_ever():
    world = World([], max_steps=3)

    async def swallow(ctx: StepContext) -> None:
        try:
            await ctx.next()
        except ModelFailed:
            return

    world.pipeline.register("step", swallow, owner="Extension/swallow")
    result = await world.run()
    assert result.error is not None
    assert "E_MAX_STEPS" == result.error.code


@pytest.mark.rule("turns.ours-10")
async def test_a_failing_model_fails_the_turn_without_its_text_which_the_log_has(caplog):
    def broken(_request: Any) -> ModelAnswer:
        raise RuntimeError("s3cret prompt")

    world = World([broken])
    with pytest.raises(ModelFailed) as failed:
        await world.run()
    assert "the model failed with RuntimeError" == str(failed.value)
    assert failed.value.__context__ is None
    (line,) = caplog.messages
    assert re.fullmatch(r"the model failed with RuntimeError: s3cret prompt \(test_turn_loop\.py:\d+\)", line)


HOSTILE = {
    "no answer": None,
    "text that is none": ModelAnswer(7),  # type: ignore[arg-type]
    "calls that are none": ModelAnswer("", ["notes__add"]),  # type: ignore[list-item]
    "huge arguments together": ModelAnswer("", [ToolCall("1", "notes__add", {"a": "x" * (VALUE.size // 2)})] * 3),
    "huge words": ModelAnswer("x" * VALUE.size),
    "half a character in its words": ModelAnswer("\ud800"),
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.rule("turns.ours-9")
async def test_an_answer_that_cannot_be_used_ends_the_turn_with_an_error(answer):
    world = World([lambda _request: answer])
    world.tool("notes__add", lambda: None)
    result = await world.run()
    assert result.error is not None
    assert "E_MODEL" == result.error.code
    assert [] == world.performed
    assert ["user", "system"] == world.roles


def one(name: Any = "notes__add", args: Any = None) -> ToolCall:
    return ToolCall("1", name, {} if args is None else args)


BAD_CALLS = {
    "no name": (one(""), "E_TOOL_NOT_IN_CATALOG", "Tool '' is not available"),
    "a name that is no text": (one(7), "E_TOOL_NOT_IN_CATALOG", "Tool '' is not available"),
    "an overlong name": (one("x" * 100_000), "E_TOOL_NOT_IN_CATALOG", "Tool 'xxx"),
    "a name with half a character": (one("\ud800"), "E_TOOL_NOT_IN_CATALOG", "Tool '\ufffd'"),
    "a list": (one(args=[]), "E_TOOL_ARGUMENTS", "'notes__add': they are no object"),
    "a text": (one(args='{"a": '), "E_TOOL_ARGUMENTS", "they are no object"),
    "no JSON": (one(args={"a": {1, 2}}), "E_TOOL_ARGUMENTS", "of the type 'set'"),
    "huge": (one(args={"a": "x" * VALUE.size}), "E_TOOL_ARGUMENTS", "bytes"),
    "half a character": (one(args={"a": "\ud800"}), "E_TOOL_ARGUMENTS", "half a character"),
    "no number": (one(args={"a": float("nan")}), "E_TOOL_ARGUMENTS", "a number that is not finite"),
}


@pytest.mark.parametrize(("bad", "code", "text"), BAD_CALLS.values(), ids=BAD_CALLS)
@pytest.mark.rule("turns.ours-30", "002-2.4-1", "002-2.3-4")
async def test_a_call_that_cannot_be_performed_is_reported_to_the_model_and_the_others_are_performed(bad, code, text):
    world = World([ModelAnswer("", [one(), bad, one()]), DONE])
    world.tool("notes__add", lambda: "added")
    assert "Done." == (await world.run()).answer
    results = [each.result for each in world.model.requests[1].messages if each.result is not None]
    assert ["ok", "error", "ok"] == [each.status for each in results]
    assert (error := results[1].error) is not None
    assert (code, True) == (error.code, text in error.message)
    assert error.suggestion
    assert 2 == len(world.performed)
    json.dumps(world.recorded, ensure_ascii=False).encode()


@pytest.mark.rule("turns.ours-9", "turns.ours-30")
@pytest.mark.parametrize("extra", [1, 100, 10_000])
async def test_calls_beyond_the_most_are_told_and_the_first_are_performed(extra):
    world = World([ModelAnswer("", [one()] * (MOST_CALLS + extra)), DONE])
    world.tool("notes__add", lambda: "added")
    assert "Done." == (await world.run()).answer
    results = [each.result for each in world.model.requests[1].messages if each.result is not None]
    assert MOST_CALLS == len(world.performed)
    assert ["ok"] * MOST_CALLS == [each.status for each in results[:MOST_CALLS]]
    assert {"E_TOOL_TOO_MANY_CALLS"} == {each.error and each.error.code for each in results[MOST_CALLS:]}
    assert min(extra, MOST_KEPT_CALLS - MOST_CALLS) == len(results) - MOST_CALLS


@pytest.mark.rule("turns.ours-30", "turns.ours-11")
@pytest.mark.parametrize("place", [2, 3])
async def test_a_refused_call_stays_refused_after_an_interruption(place):
    world = World([ModelAnswer("", [one(), one(args=[])]), DONE])
    world.tool("notes__add", lambda: "added")
    world.fails_at = place
    with pytest.raises(Crashed):
        await world.run()
    world.fails_at = None
    assert "Done." == (await world.run()).answer
    results = [each.result for each in world.model.requests[1].messages if each.result is not None]
    assert [None, "E_TOOL_ARGUMENTS"] == [each.error and each.error.code for each in results]
    assert 1 == len({call_id for _, call_id in world.performed})


SCRIPT = [
    calls(("notes__one", {}), ("notes__two", {}), ("notes__one", {}), text="First."),
    calls(("notes__two", {})),
    DONE,
]


@pytest.mark.parametrize("place", range(8))
@pytest.mark.rule("turns.ours-11")
async def test_a_turn_that_was_interrupted_goes_on_where_it_was_recorded(place):
    """The turn is cut at each recording. A recorded step is neither asked nor called again; a call whose result was
    lost is made again with the same id."""
    world = World(list(SCRIPT))
    for name in ("one", "two"):
        world.tool(f"notes__{name}", lambda name=name: name)
    world.fails_at = place
    with pytest.raises(Crashed):
        await world.run()
    assert place == len(world.recorded)
    asked = len([1 for role in world.roles if role == "assistant"])
    world.model = type(world.model)(SCRIPT[asked:])
    world.fails_at = None
    result = await world.run()
    assert TurnResult("Done.", 3) == result
    ids = [call["id"] for m in world.recorded for call in m.get("toolCalls", ())]
    assert sorted(ids) == sorted(m["result"]["toolCallId"] for m in world.recorded if "result" in m)
    assert {call_id for _, call_id in world.performed} == set(ids)
    assert [f"turn-evt-1.{n}" for n in range(8)] == [m["id"] for m in world.recorded]


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.rule("turns.ours-26")
async def test_a_configuration_that_changes_ends_the_process_before_a_step_and_no_middleware_takes_it_for_a_failure(
    step,
):
    world, ends = World(list(SCRIPT)), []
    for name in ("one", "two"):
        world.tool(f"notes__{name}", lambda name=name: name)

    async def watch(context):
        try:
            return await context.next()
        except Exception as error:
            ends.append(type(error).__name__)
            raise
        finally:
            ends.append("left")

    world.pipeline.register("turn", watch, owner="Extension/watch")
    world.changed_at = step
    with pytest.raises(ConfigurationChanged):
        await world.run()
    assert (["left"], step - 1) == (ends, world.roles.count("assistant")), "no step has begun"
    performed = len(world.performed)
    assert TurnResult("Done.", 3) == await world.run()
    assert (["left", "left"], 4) == (ends, len(world.performed)), "no call is made again"
    assert performed == [0, 3, 4][step - 1]


async def test_a_turn_that_had_ended_is_neither_asked_nor_called_again():
    world = World([DONE])
    await world.run()
    assert await world.run() == TurnResult("Done.", 1)
    assert 2 == len(world.recorded)


@pytest.mark.rule("turns.ours-13")
@pytest.mark.parametrize(("size", "status"), [(VALUE.size, "error"), (VALUE.size - 2, "ok")])
async def test_an_output_that_is_too_large_for_a_conversation_is_an_error(size, status):
    world = World([calls(("notes__read", {})), DONE])
    world.tool("notes__read", lambda: "x" * size)
    await world.run()
    (result,) = [m["result"] for m in world.recorded if "result" in m]
    assert status == result["status"]


@pytest.mark.parametrize("output", ["\ud800", {"\udfff": 1}])
async def test_an_output_that_no_record_can_hold_is_an_error(output):
    world = World([calls(("notes__read", {})), DONE])
    world.tool("notes__read", lambda: output)
    assert "Done." == (await world.run()).answer
    json.dumps(world.recorded, ensure_ascii=False).encode()


@given(order=st.permutations(range(4)))
def test_results_are_in_the_order_of_their_calls_however_they_ended(order):
    asked = Message(id="a", role="assistant", calls=[ToolCall(str(n), "a__b") for n in range(4)])
    results = [
        Message(id=f"r{n}", role="tool", result=ToolCallResult(tool_call_id=str(n), tool_name="a__b")) for n in order
    ]
    after = Message(id="z", role="assistant", text="Done.")
    ordered = in_order([asked, *results, after])
    assert ["a", "r0", "r1", "r2", "r3", "z"] == [message.id for message in ordered]
    assert [each.to_json() for each in ordered] == [Message.from_json(each.to_json()).to_json() for each in ordered]
