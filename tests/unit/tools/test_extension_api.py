"""What `register(api)` of an extension is given: pipeline, tools, state, events, logger."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from oauthbroker.tools.calling.calls import ToolCalls
from oauthbroker.tools.calling.context import ToolContext
from oauthbroker.tools.calling.registry import Registry
from oauthbroker.tools.extensions.pipeline import Pipeline, ToolCallContext
from oauthbroker.tools.turns.extension_api import ExtensionApi, ExtensionFailed, ExtensionHost, register_all
from oauthbroker.tools.types.catalog import ToolCatalogItem
from oauthbroker.tools.types.failures import ToolFailure
from oauthbroker.tools.types.results import TRUNCATED, ToolCall, ToolCallResult
from tests.unit.tools.kit import scope_of


class Values:
    """The durable values of one instance."""

    def __init__(self) -> None:
        self.there: dict[str, Any] = {}

    async def get(self, key: str) -> Any:
        return self.there.get(key)

    async def put(self, key: str, value: Any) -> None:
        self.there[key] = value


class World:
    def __init__(self) -> None:
        self.tools: list[tuple[str, str]] = []
        self.values = Values()
        self.host = ExtensionHost(pipeline=Pipeline(), register_tool=self.register, values=self.values)

    def register(self, item: ToolCatalogItem, _handler: Any, *, owner: str, seconds: float) -> None:
        self.tools.append((item.name, owner))


async def test_extensions_register_in_the_order_of_the_list():
    heard: list[str] = []

    def named(name: str) -> Any:
        async def later(_api: ExtensionApi) -> None:
            heard.append(name)

        def at_once(_api: ExtensionApi) -> None:
            heard.append(name)

        return (name, {}, later if name == "b" else at_once)

    await register_all([named(name) for name in "cba"], World().host)
    assert ["c", "b", "a"] == heard


@pytest.mark.rule("turns.ours-5")
async def test_a_failing_register_names_the_extension_and_stops_the_start():
    heard: list[str] = []

    def wrong(_api: ExtensionApi) -> None:
        raise RuntimeError("s3cret")

    with pytest.raises(ExtensionFailed) as failed:
        await register_all([("wrong", {}, wrong), ("next", {}, lambda _api: heard.append("next"))], World().host)
    assert "Extension/wrong: register(api) failed with RuntimeError" == str(failed.value)
    assert [] == heard


@pytest.mark.rule("002-12.1-1", "002-12.2-1", "002-10.4-1", "002-2.4-3")
async def test_the_printed_weather_extension_registers_its_tool_and_the_model_calls_it():
    """The handler is the printed one, `fetch` replaced."""
    registry, answers = Registry(), {"Seoul": (200, {"sky": "clear"}), "서울 & 부산": (200, [1])}

    async def get(_ctx: ToolContext, args: dict[str, Any]) -> Any:
        status, body = answers.get(str(args["city"]), (404, None))
        if status != 200:
            raise ToolFailure(f"날씨 API 오류: {status}" * 200)
        return body

    def register(api: ExtensionApi) -> None:
        city = {"type": "string", "description": "도시 이름 (예: Seoul, Tokyo)"}
        parameters = {"type": "object", "properties": {"city": city}, "required": ["city"]}
        item = ToolCatalogItem(
            name="weather__get", description="특정 도시의 현재 날씨 정보를 조회합니다", parameters=parameters
        )
        api.tools.register(item, get)

    host = ExtensionHost(pipeline=Pipeline(), register_tool=registry.register, values=Values())
    await register_all([("weather", {}, register)], host)
    calls, scope = ToolCalls(registry, lambda value: value), scope_of(registry)
    (shown,) = scope.catalog
    assert {"type": "extension", "name": "weather"} == shown.to_json()["source"]

    async def called(args: dict[str, Any]) -> Any:
        return await calls.perform(ToolCall("c", "weather__get", args), scope)

    assert [{"sky": "clear"}, [1]] == [(await called({"city": city})).output for city in answers]
    failed = [(await called(args)).error for args in ({"city": "Atlantis"}, {}, {"city": 5})]
    assert ["E_TOOL", "E_TOOL_ARGUMENTS", "E_TOOL_ARGUMENTS"] == [each.code for each in failed]
    assert (1000, TRUNCATED) == (len(failed[0].message), failed[0].message[-len(TRUNCATED) :]), "the usual limit"


@pytest.mark.rule("002-12.1-2")
@pytest.mark.parametrize(
    ("item", "reported"),
    [({"name": "weather__get"}, "ToolCatalogItem"), (ToolCatalogItem(name="weather"), "resource__export")],
)
async def test_an_extension_that_registers_no_tool_is_told_why(item: Any, reported: str):
    host = ExtensionHost(pipeline=Pipeline(), register_tool=Registry().register, values=Values())
    with pytest.raises(ExtensionFailed, match=f"Extension/weather.*{reported}"):
        await register_all([("weather", {}, lambda api: api.tools.register(item, print))], host)


@pytest.mark.rule("002-12.1-1")
async def test_a_dynamic_tool_belongs_to_its_extension():
    world = World()
    item = ToolCatalogItem(name="weather__get")
    await register_all([("weather", {}, lambda api: api.tools.register(item, lambda _ctx, _input: None))], world.host)
    assert [("weather__get", "Extension/weather")] == world.tools


async def test_state_is_kept_for_each_extension_apart():
    world = World()
    one, other = world.host.api_of("one", {}), world.host.api_of("other", {})
    await one.state.set({"count": 1})
    assert {"count": 1} == await one.state.get()
    assert await other.state.get() is None
    assert {"Extension/one": {"count": 1}} == world.values.there


async def test_events_reach_the_other_extensions_in_order_until_they_unsubscribe():
    world, heard = World(), []

    async def later(payload: Any) -> None:
        heard.append(("later", payload))

    one, other = world.host.api_of("one", {}), world.host.api_of("other", {})
    stop = one.events.on("found", lambda payload: heard.append(("at once", payload)))
    other.events.on("found", later)
    await other.events.emit("found", 7)
    assert [("at once", 7), ("later", 7)] == heard
    stop()
    stop()
    await one.events.emit("found", 8)
    await one.events.emit("never heard")
    assert [("later", 8)] == heard[2:]


@pytest.mark.rule("turns.ours-6")
async def test_a_failing_handler_is_logged_without_its_text_and_keeps_no_other_from_the_event(caplog):
    world = World()
    heard: list[Any] = []

    def wrong(_payload: Any) -> None:
        raise RuntimeError("s3cret")

    api = world.host.api_of("one", {})
    api.events.on("found", wrong)
    api.events.on("found", heard.append)
    with caplog.at_level(logging.WARNING):
        await api.events.emit("found", 1)
    assert [1] == heard
    assert ["Extension/one: its handler of found failed with RuntimeError"] == caplog.messages


def test_a_middleware_of_the_api_carries_the_name_of_its_extension():
    world = World()
    with pytest.raises(ValueError, match="Extension/one"):
        world.host.api_of("one", {}).pipeline.register("wrong", lambda _ctx: None)  # type: ignore[arg-type]


@pytest.mark.rule("002-8.4-1")
async def test_the_printed_extension_logs_before_and_after_a_call(caplog):
    """The example of the document: a debug line before `next()`, and one after it."""
    world = World()

    def register(api: ExtensionApi) -> None:
        async def log(ctx: ToolCallContext) -> Any:
            api.logger.debug("Tool call: %s %s", ctx.tool_name, ctx.args)
            result = await ctx.next()
            api.logger.debug("Tool done: %s", ctx.tool_name)
            return result

        api.pipeline.register("toolCall", log)

    done = ToolCallResult(tool_call_id="call-1", tool_name="bash__exec", output=None)

    async def handler(_ctx: ToolCallContext) -> ToolCallResult:
        return done

    await register_all([("log", {}, register)], world.host)
    facts: dict[str, Any] = {
        "step": None,
        "tool_call_id": "call-1",
        "tool_name": "bash__exec",
        "args": {"command": "ls"},
    }
    with caplog.at_level(logging.DEBUG):
        assert await world.host.pipeline.run("toolCall", ToolCallContext(**facts), handler) is done
    assert ["Tool call: bash__exec {'command': 'ls'}", "Tool done: bash__exec"] == caplog.messages
