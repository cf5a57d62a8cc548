"""Events of other programs in the agents' queues: their types, ids and payloads, and whom they wake."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import MAX_DEPTH
from oauthbroker.events.foreign_events import MAX_PAYLOAD_BYTES
from oauthbroker.events.port import Depth
from oauthbroker.observability.metrics import Metric
from tests.kit.hostile_values import nested
from tests.kit.running_broker import ALICE, Harness, turn

DONE = "tool.completed"


async def test_an_event_of_a_tool_continues_its_turn(harness: Harness) -> None:
    of = turn(ALICE, instance="thread")
    event_id = await harness.broker.events.enqueue("writer", DONE, {"answer": [1, {"a": None}]}, turn=of)
    delivery = await harness.broker.events.lease("writer")
    assert delivery is not None
    assert (event_id, DONE) == (delivery.id, delivery.type)
    assert {"answer": [1, {"a": None}]} == delivery.event.payload
    resumed = delivery.event.turn
    assert ("writer", "thread", of.origin, of.auth) == (
        resumed.agent_name, resumed.instance_key, resumed.origin, resumed.auth,
    )  # fmt: skip
    assert await delivery.ack()
    assert 1 == harness.broker.metrics.value(Metric.EVENTS_QUEUED, "other")


async def test_a_waiting_consumer_is_woken_and_gets_events_in_order(harness: Harness) -> None:
    waiting = asyncio.create_task(harness.broker.events.lease("planner", wait=30))
    await asyncio.sleep(0)
    first = await harness.broker.events.enqueue("planner", DONE, {}, turn=turn(), instance_key="a")
    second = await harness.broker.events.enqueue("planner", "agent.message", {}, turn=turn(), instance_key="a")
    delivery = await waiting
    assert delivery is not None
    assert first == delivery.id
    assert await harness.broker.events.lease("planner") is None, "the next one of its conversation waits"
    await delivery.ack()
    delivery = await harness.broker.events.lease("planner")
    assert delivery is not None
    assert second == delivery.id


@pytest.mark.case("93")
async def test_the_same_key_is_the_same_event_and_says_nothing_of_the_key(harness: Harness) -> None:
    async def put(key: str, kind: str = DONE, agent: str = "planner", instance: str = "thread") -> str:
        of = turn(instance=instance)
        return await harness.broker.events.enqueue(agent, kind, {}, turn=of, idempotency_key=key)

    first = await put("order 7")
    assert first == await put("order 7")
    others = [("order 8",), ("order 7", "tool.failed"), ("order 7", DONE, "writer"), ("order 7", DONE, "planner", "b")]
    assert 5 == len({first, *[await put(*each) for each in others]}), "channels count the messages of each conversation"
    assert "order" not in first
    found = [await harness.broker.events.lease("planner")]
    assert found[0] is not None
    assert await found[0].ack()
    assert first == await put("order 7"), "also after it was acknowledged"
    left = 0
    while (delivery := await harness.broker.events.lease("planner")) is not None:
        left += await delivery.ack()
    assert 3 == left


@pytest.mark.parametrize(
    "kind",
    [
        "auth.granted",
        "auth.x",
        "oauth.x",
        "oauthbroker.x",
        "tool",
        "",
        ".x",
        "tool.",
        "Tool.x",
        "a b.c",
        "t.ä",
        7,
        None,
    ],
)
async def test_a_type_needs_a_namespace_that_is_not_the_brokers(harness: Harness, kind: Any) -> None:
    await refused(harness, kind=kind)


@pytest.mark.parametrize(
    "payload",
    [
        {"token": Secret("x" * 8)}, {"deep": [{"token": Secret("x" * 8)}]}, [], "text", None, {"n": float("nan")},
        {"o": object()}, {"half": "\ud800"}, {"big": "x" * MAX_PAYLOAD_BYTES},
    ],
    ids=["secret", "deep secret", "list", "text", "none", "nan", "object", "surrogate", "big"],
)  # fmt: skip
async def test_a_payload_is_a_json_object_of_bounded_size_without_secrets(harness: Harness, payload: Any) -> None:
    await refused(harness, payload=payload)


@pytest.mark.parametrize(
    "more", [{"turn": {}}, {"agent": ""}, {"agent": 7}, {"idempotency_key": ""}, {"idempotency_key": "x" * 201}]
)
async def test_what_names_no_conversation_or_no_event_is_refused(harness: Harness, more: Any) -> None:
    await refused(harness, **more)


@pytest.mark.parametrize(("part", "levels"), [("payload", MAX_DEPTH), ("origin", MAX_DEPTH - 1)])
async def test_a_payload_and_an_origin_of_32_levels_come_back_whole_and_deeper_ones_are_refused(
    harness: Harness, part: str, levels: int
) -> None:
    """The origin is one level inside of the address of the turn."""

    async def queued(deep: Any) -> str:
        payload, origin = (deep, {}) if part == "payload" else ({}, deep)
        of = replace(turn(), origin=origin)
        return await harness.broker.events.enqueue("planner", DONE, payload, turn=of)

    deepest: Any = nested(levels, lambda inner: {"a": inner})
    event_id = await queued(deepest)
    with pytest.raises(BrokerError) as error:
        await queued({"a": deepest})
    assert Code.REQUEST_INVALID is error.value.code
    assert "it has more than 32 levels: put the inner ones into a text" in str(error.value)
    delivery = await harness.broker.events.lease("planner")
    assert delivery is not None
    assert event_id == delivery.id
    assert deepest == (delivery.event.payload if part == "payload" else delivery.event.turn.origin)


async def refused(harness: Harness, **changed: Any) -> None:
    said: dict[str, Any] = {"agent": "planner", "kind": DONE, "payload": {}, "turn": turn(), **changed}
    with pytest.raises(BrokerError) as error:
        await harness.broker.events.enqueue(said.pop("agent"), said.pop("kind"), said.pop("payload"), **said)
    assert Code.REQUEST_INVALID is error.value.code
    assert 0 == Depth.of(await harness.parts.queues.depths()).waiting
