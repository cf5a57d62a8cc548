"""Many calls at once, as models ask for them: one number for each message, none left out, and results in the order of the
calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from oauthbroker.tools.calling.calls import Perform, ToolCalls
from oauthbroker.tools.calling.registry import Registry
from oauthbroker.tools.models import MOST_CALLS, ModelAnswer
from oauthbroker.tools.turns.conversation import Conversation
from oauthbroker.tools.types.catalog import ToolCatalogItem
from oauthbroker.tools.types.results import ToolCall, ToolCallResult
from tests.unit.tools.kit import scope_of, scrub
from tests.unit.tools.turn_kit import World, calls

DONE = ModelAnswer("Done.")


class SlowRecord:
    """A record that takes as long as a durable write, and refuses a number that another message has."""

    def __init__(self) -> None:
        self.kept: dict[str, Mapping[str, Any]] = {}

    async def __call__(self, appended: Mapping[str, Any]) -> None:
        message = appended["message"]
        await asyncio.sleep(0.001)
        assert message["id"] not in self.kept, "two messages of one number"
        self.kept[message["id"]] = message


@pytest.mark.rule("turns.ours-7")
async def test_results_that_end_together_have_numbers_of_their_own_without_a_gap():
    record = SlowRecord()
    conversation = Conversation(turn_id="turn-1", earlier=[], recorded=[], record=record)
    asked = await conversation.say("assistant", "", [ToolCall("x", "a__b") for _ in range(MOST_CALLS)])
    results = [ToolCallResult(tool_call_id=call.id, tool_name=call.name) for call in asked.calls]
    await asyncio.gather(*map(conversation.add_result, results))
    assert [f"turn-1.{number}" for number in range(MOST_CALLS + 1)] == list(record.kept), "written one after another"
    assert conversation.unanswered() is None


async def test_sixty_four_calls_of_a_step_are_one_turn_with_results_in_order():
    world, record = World([calls(*[("notes__add", {"n": n}) for n in range(MOST_CALLS)]), DONE]), SlowRecord()
    world.record = record  # type: ignore[method-assign]

    async def add(n: int) -> int:
        await asyncio.sleep((n * 7 % 5) / 1000)
        return n

    world.tool("notes__add", add)
    assert "Done." == (await world.run()).answer
    asked = world.model.requests[1].messages
    assert list(range(MOST_CALLS)) == [each.result.output for each in asked if each.result is not None]


async def each_its_own(call: ToolCall, perform: Perform) -> ToolCallResult:
    await asyncio.sleep(0)
    done = await perform(ToolCall(call.id, call.name, {**call.args, "seen": True}))
    return ToolCallResult(tool_call_id="x", tool_name="y", output=[done.output, call.args["n"]])


class Journal:
    """A journal in memory that is as slow as a store."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: dict[str, Mapping[str, Any]] = {}

    async def begin(self, call_id: str) -> Mapping[str, Any] | None:
        await asyncio.sleep(0)
        before = self.ended.get(call_id, {} if call_id in self.begun else None)
        self.begun.append(call_id)
        return before

    async def end(self, call_id: str, result: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        self.ended[call_id] = result


@pytest.mark.parametrize("journaled", [True, False])
@pytest.mark.parametrize("around", [each_its_own, None], ids=["with a middleware", "without"])
async def test_a_thousand_calls_at_once_of_twenty_tools_with_and_without_await(journaled, around):
    """Each call gets its own arguments, context and result, and each is made once."""
    registry, made = Registry(), list[str]()

    def blocking(ctx: Any, args: dict[str, Any]) -> Any:
        made.append(ctx.tool_call_id)
        return [ctx.tool_call_id, args["n"]]

    async def waiting(ctx: Any, args: dict[str, Any]) -> Any:
        await asyncio.sleep((args["n"] % 7) / 1000)
        return blocking(ctx, args)

    for number in range(20):
        item = ToolCatalogItem(name=f"t{number}__run", parameters={"type": "object", "required": ["n"]})
        registry.register(item, waiting if number % 2 else blocking, owner=f"Tool/t{number}")
    scope = scope_of(registry, *[f"t{n}" for n in range(20)], journal=Journal() if journaled else None)
    performing, more = ToolCalls(registry, scrub), () if around is None else (around,)
    wanted = [ToolCall(f"call-{n}", f"t{n % 20}__run", {"n": n}) for n in range(1000)]
    results = await asyncio.gather(*(performing.perform(call, scope, *more) for call in wanted))
    expected = [[f"call-{n}", n] for n in range(1000)]
    assert expected == [each.output[0] if around else each.output for each in results]
    assert [call.id for call in wanted] == [each.tool_call_id for each in results]
    assert sorted(call.id for call in wanted) == sorted(made)
