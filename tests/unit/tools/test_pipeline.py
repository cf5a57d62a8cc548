"""Middlewares around turns, steps and tool calls: their order, `next()` exactly once, and what a failing one does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.tools.extensions.pipeline import Pipeline, PipelineError, ToolCallContext
from oauthbroker.tools.types.failures import ToolFailure
from oauthbroker.tools.types.results import ToolCallResult

DONE = ToolCallResult(tool_call_id="call-1", tool_name="bash__exec", output="done")


def context(**changes: Any) -> ToolCallContext:
    facts: dict[str, Any] = {"step": None, "tool_call_id": "call-1", "tool_name": "bash__exec", "args": {}}
    return ToolCallContext(**facts | changes)


async def core(_ctx: ToolCallContext) -> ToolCallResult:
    return DONE


async def run(pipeline: Pipeline, of: ToolCallContext | None = None, inner: Any = core) -> Any:
    return await pipeline.run("toolCall", of or context(), inner)


@given(priorities=st.lists(st.integers(-3, 3), max_size=12))
@pytest.mark.rule("turns.ours-1")
def test_a_lower_priority_is_further_outside_and_equal_ones_keep_their_order(priorities):
    heard: list[str] = []

    def layer(name: int) -> Any:
        async def middleware(ctx: ToolCallContext) -> Any:
            heard.append(f"in {name}")
            result = await ctx.next()
            heard.append(f"out {name}")
            return result

        return middleware

    pipeline = Pipeline()
    for name, priority in enumerate(priorities):
        pipeline.register("toolCall", layer(name), priority, owner=f"Extension/{name}")
    assert asyncio.run(run(pipeline)) is DONE
    order = [name for priority in range(-3, 4) for name, given in enumerate(priorities) if given == priority]
    assert [f"in {name}" for name in order] + [f"out {name}" for name in reversed(order)] == heard


@pytest.mark.rule("002-8.3-1")
async def test_arguments_changed_outside_are_those_that_the_core_sees_and_metadata_is_shared():
    seen: list[Any] = []

    async def outer(ctx: ToolCallContext) -> None:
        ctx.args = {"command": "ls"}
        ctx.metadata["began"] = True
        await ctx.next()
        seen.append(ctx.metadata["ended"])

    async def inner(ctx: ToolCallContext) -> None:
        assert ctx.metadata["began"]
        await ctx.next()
        ctx.metadata["ended"] = True

    async def handler(ctx: ToolCallContext) -> ToolCallResult:
        seen.append(ctx.args)
        return DONE

    pipeline = Pipeline()
    pipeline.register("toolCall", outer, owner="Extension/a")
    pipeline.register("toolCall", inner, owner="Extension/b")
    assert await run(pipeline, inner=handler) is DONE
    assert [{"command": "ls"}, True] == seen


@pytest.mark.rule("002-8.3-1")
async def test_a_middleware_may_replace_the_result():
    other = ToolCallResult(tool_call_id="call-1", tool_name="bash__exec", output="hidden")

    async def hide(ctx: ToolCallContext) -> ToolCallResult:
        assert await ctx.next() is DONE
        return other

    pipeline = Pipeline()
    pipeline.register("toolCall", hide, owner="Extension/hide")
    assert await run(pipeline) is other


async def never(_ctx: ToolCallContext) -> None:
    """Forget next()."""


async def twice(ctx: ToolCallContext) -> None:
    await ctx.next()
    await ctx.next()


async def twice_quietly(ctx: ToolCallContext) -> None:
    await ctx.next()
    try:
        await ctx.next()
    except PipelineError:
        return


async def both_at_once(ctx: ToolCallContext) -> None:
    await asyncio.gather(ctx.next(), ctx.next())


async def wrong_type(ctx: ToolCallContext) -> Any:
    await ctx.next()
    return {"output": 1}


async def raises(_ctx: ToolCallContext) -> None:
    raise RuntimeError("s3cret text of an extension")


def plain_function(_ctx: ToolCallContext) -> None:
    """Forget next() without being a coroutine."""


FAULTS = {
    never: "did not call next()",
    plain_function: "did not call next()",
    twice: "called next() twice",
    twice_quietly: "called next() twice",
    both_at_once: "called next() twice",
    wrong_type: "returned an object of the type dict, not ToolCallResult",
    raises: "failed with RuntimeError",
}


@pytest.mark.parametrize(("middleware", "fault"), FAULTS.items(), ids=lambda each: getattr(each, "__name__", None))
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.rule("turns.ours-2")
async def test_a_middleware_that_breaks_a_rule_is_named(middleware, fault, depth):
    async def honest(ctx: ToolCallContext) -> Any:
        return await ctx.next()

    pipeline = Pipeline()
    for place in range(3):
        wrong = place == depth
        name = "Extension/wrong" if wrong else f"Extension/honest-{place}"
        pipeline.register("toolCall", middleware if wrong else honest, place, owner=name)
    calls = []

    async def handler(ctx: ToolCallContext) -> ToolCallResult:
        calls.append(ctx)
        return DONE

    with pytest.raises(PipelineError) as raised:
        await run(pipeline, inner=handler)
    assert f"Extension/wrong: its toolCall middleware {fault}" == str(raised.value)
    assert raised.value.__context__ is None, "the exception of an extension may hold secrets"
    assert len(calls) <= 1, "the handler runs at most once"


async def test_next_after_the_end_of_its_middleware_is_refused():
    kept: list[Any] = []

    async def keeps(ctx: ToolCallContext) -> Any:
        kept.append(ctx.next)
        return await ctx.next()

    pipeline = Pipeline()
    pipeline.register("toolCall", keeps, owner="Extension/late")
    await run(pipeline)
    with pytest.raises(PipelineError, match=r"Extension/late: .* called next\(\) after its end"):
        await kept[0]()


async def test_what_the_core_raises_passes_through_and_is_not_blamed_on_an_extension():
    async def honest(ctx: ToolCallContext) -> Any:
        return await ctx.next()

    async def failing(_ctx: ToolCallContext) -> Any:
        raise LookupError("the model's own")

    pipeline = Pipeline()
    pipeline.register("toolCall", honest, owner="Extension/a")
    with pytest.raises(LookupError):
        await run(pipeline, inner=failing)


async def test_a_refusal_passes_through_and_the_handler_does_not_run():
    async def gate(_ctx: ToolCallContext) -> Any:
        raise ToolFailure("not on Sundays", code="E_REFUSED")

    async def handler(_ctx: ToolCallContext) -> Any:
        raise AssertionError("it runs")

    pipeline = Pipeline()
    pipeline.register("toolCall", gate, owner="Extension/gate")
    with pytest.raises(ToolFailure) as refused:
        await run(pipeline, inner=handler)
    assert "E_REFUSED" == refused.value.error.code


async def test_cancellation_passes_through():
    async def honest(ctx: ToolCallContext) -> Any:
        return await ctx.next()

    async def endless(_ctx: ToolCallContext) -> Any:
        await asyncio.sleep(60)

    pipeline = Pipeline()
    pipeline.register("toolCall", honest, owner="Extension/a")
    task = asyncio.create_task(run(pipeline, inner=endless))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.rule("002-8.1-2")
def test_an_unknown_type_is_refused():
    with pytest.raises(ValueError, match="Extension/a: 'toolcall' is no type of middleware"):
        Pipeline().register("toolcall", never, owner="Extension/a")  # type: ignore[arg-type]


async def test_a_middleware_registered_during_a_run_takes_part_from_the_next_run_on():
    pipeline = Pipeline()
    heard = []

    async def late(ctx: ToolCallContext) -> Any:
        heard.append("late")
        return await ctx.next()

    async def first(ctx: ToolCallContext) -> Any:
        pipeline.register("toolCall", late, owner="Extension/late")
        return await ctx.next()

    pipeline.register("toolCall", first, owner="Extension/first")
    await run(pipeline)
    assert [] == heard
    await run(pipeline)
    assert ["late"] == heard
