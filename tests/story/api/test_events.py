"""Events over HTTP: long polling and streams, and that no event is lost with the connection that asked for it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.core.clock import printed
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.events.port import Queues
from oauthbroker.model.settings import Limits
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.web.api import streaming
from tests.kit.queues import queued
from tests.kit.running_broker import Harness, running, turn, user_app
from tests.story.api.kit import TOOLS, Caller, Callers, Exchange, checked

EVENTS = "/v1/agents/planner/events"
STREAM = {"accept": "text/event-stream"}


async def granted(harness: Harness, count: int = 1, first: int = 0) -> None:
    """So many conversations wait, a user consents, and all of them are to be woken."""
    asked = [await harness.ask_link(of=turn(instance=f"thread {number}")) for number in range(first, first + count)]
    await harness.connect(asked[0])

    async def came() -> bool:
        return len(await waiting(harness)) >= count

    await until(came)


async def waiting(harness: Harness) -> list[tuple[int, bool]]:
    """(attempts, leased) of every event."""
    return await queued(harness.repository)


async def until(said: Any) -> None:
    async with asyncio.timeout(60):
        while not await said():
            await asyncio.sleep(0.01)


def queues_of(harness: Harness) -> type[Queues]:
    """Return the class of the broker's queues, to patch it."""
    return type(harness.parts.queues)


async def test_an_event_comes_with_its_lease_and_goes_when_it_is_settled(harness: Harness, api: Callers) -> None:
    await granted(harness)
    answer = await api.runtime.get(EVENTS)
    leased = checked("LeasedEvent", answer.body)
    event = leased["event"]
    assert (1, "auth.granted", "thread 0") == (leased["attempt"], event["type"], event["instanceKey"])
    assert printed(harness.clock.now() + timedelta(seconds=60)) == answer.json()["leaseExpiresAt"]
    assert 204 == (await api.runtime.get(EVENTS)).status, "it is leased"
    path = f"{EVENTS}/{event['eventId']}"
    body = {"lease": leased["lease"]}
    for _ in range(2):
        assert 204 == (await api.runtime.post(f"{path}/nack", body)).status
    assert (409, "leaseLost") == ((lost := await api.runtime.post(f"{path}/ack", body)).status, lost.code)
    harness.clock.advance(10)
    again = (await api.runtime.get(EVENTS)).json()
    assert (2, event["eventId"]) == (again["attempt"], again["event"]["eventId"])
    for _ in range(2):
        assert 204 == (await api.runtime.post(f"{path}/ack", {"lease": again["lease"]})).status
    assert (409, "leaseLost") == ((lost := await api.runtime.post(f"{path}/ack", body)).status, lost.code)
    assert [] == await waiting(harness)


async def test_who_waits_is_answered_as_soon_as_there_is_an_event(harness: Harness, api: Callers) -> None:
    async with api.runtime.open("GET", f"{EVENTS}?wait=60") as exchange:
        await asyncio.sleep(0.05)
        assert not exchange.started.is_set()
        await harness.connect(await harness.ask_link())
        leased = json.loads(await exchange.part())
        assert "auth.granted" == leased["event"]["type"]


async def test_who_has_waited_long_enough_gets_nothing(harness: Harness, api: Callers) -> None:
    async with api.runtime.open("GET", f"{EVENTS}?wait=60") as exchange:
        async with asyncio.timeout(60):
            while not exchange.started.is_set():
                await asyncio.sleep(0.05)
                harness.clock.advance(61)  # again for a call that began its wait late
        assert 204 == exchange.status


@pytest.mark.case("93")
async def test_a_caller_who_left_takes_no_event_along(harness: Harness, api: Callers) -> None:
    async with api.runtime.open("GET", f"{EVENTS}?wait=60") as exchange:
        await asyncio.sleep(0.05)
        await exchange.leave()
    await granted(harness)
    assert [(0, False)] == await waiting(harness)
    assert 1 == (await api.runtime.get(EVENTS)).json()["attempt"]


@pytest.mark.case("93")
async def test_a_caller_who_leaves_while_the_event_is_being_leased_gives_it_back_uncounted(
    harness: Harness, api: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await granted(harness)
    leasing, left, whole = asyncio.Event(), asyncio.Event(), queues_of(harness).lease

    async def slowly(self: Queues, agent: str) -> Any:
        delivery = await whole(self, agent)
        leasing.set()
        await left.wait()
        return delivery

    with monkeypatch.context() as patch:
        patch.setattr(queues_of(harness), "lease", slowly)
        async with api.runtime.open("GET", f"{EVENTS}?wait=60") as exchange:
            await asyncio.wait_for(leasing.wait(), 60)
            assert [(1, True)] == await waiting(harness)
            exchange.left.set()
            await asyncio.sleep(0.02)
            left.set()
    assert [(0, False)] == await waiting(harness)


@pytest.mark.case("93")
@pytest.mark.parametrize("headers", [{}, STREAM])
async def test_a_request_that_is_cancelled_gives_its_event_back(
    harness: Harness, api: Callers, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    await granted(harness)
    leasing, whole = asyncio.Event(), queues_of(harness).lease

    async def slowly(self: Queues, agent: str) -> Any:
        delivery = await whole(self, agent)
        leasing.set()
        await asyncio.sleep(0.05)
        return delivery

    with monkeypatch.context() as patch:
        patch.setattr(queues_of(harness), "lease", slowly)
        exchange = Exchange()
        task = asyncio.create_task(api.runtime._run(exchange, "GET", f"{EVENTS}?wait=60", headers=headers))
        await asyncio.wait_for(leasing.wait(), 60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [(0, False)] == await waiting(harness)


@dataclass
class Slow(Exchange):
    """A connection that is full before it takes one kind of message."""

    waits_before: str = ""

    async def before(self, kind: str) -> None:
        for _ in range(5 if kind == self.waits_before else 0):
            await asyncio.sleep(0)


@pytest.mark.case("93")
@pytest.mark.parametrize("cancels", [1, 3])
@pytest.mark.parametrize("part", ["start", "body"])
async def test_a_request_that_is_cancelled_anywhere_leases_no_event_that_it_did_not_hand_over(
    harness: Harness, api: Callers, part: str, cancels: int
) -> None:
    """However often: none of them counts as an attempt. A server may wait before it takes a part of the answer."""
    await granted(harness)
    steps = 0
    while True:
        exchange = Slow(waits_before=f"http.response.{part}")
        task = asyncio.create_task(api.runtime._run(exchange, "GET", f"{EVENTS}?wait=60"))
        for _ in range(steps):
            await asyncio.sleep(0)
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(task, return_exceptions=True)
        if exchange.parts.qsize():
            break
        assert [(0, False)] == await waiting(harness), f"cancelled after {steps} steps"
        steps += 1
    assert steps > 10


@pytest.mark.parametrize("headers", [{}, STREAM])
async def test_waiting_callers_are_let_go_when_the_broker_ends(
    harness: Harness, api: Callers, headers: dict[str, str]
) -> None:
    async with api.runtime.open("GET", f"{EVENTS}?wait=60", headers=headers) as exchange:
        await asyncio.sleep(0.05)
        harness.broker.life.stop()
        assert exchange.task is not None
        await asyncio.wait_for(asyncio.shield(exchange.task), 60)
        assert exchange.status == (200 if headers else 204)


def messages(text: str) -> list[dict[str, Any]]:
    """The events of a stream, by the rules of server-sent events."""
    found = []
    for block in text.split("\n\n"):
        lines = [line.partition(": ") for line in block.splitlines() if line and not line.startswith(":")]
        fields = {name: value for name, _, value in lines}
        if fields:
            assert {"id", "event", "data"} == set(fields)
            said = checked("LeasedEvent", fields["data"].encode())
            assert (fields["id"], fields["event"]) == (said["event"]["eventId"], said["event"]["type"])
            found.append(said)
    return found


async def read(exchange: Exchange, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        found += messages((await exchange.part()).decode())
    return found


async def test_a_stream_says_at_once_that_it_is_there_and_then_every_event(harness: Harness, api: Callers) -> None:
    async with api.runtime.open("GET", EVENTS, headers=STREAM) as exchange:
        assert b":\n\n" == await exchange.part()
        assert 200 == exchange.status
        assert exchange.headers["content-type"].startswith("text/event-stream")
        assert ("no-store", "no") == (exchange.headers["cache-control"], exchange.headers["x-accel-buffering"])
        assert "content-length" not in exchange.headers
        await granted(harness, count=3)
        found = await read(exchange, 3)
        assert {"thread 0", "thread 1", "thread 2"} == {each["event"]["instanceKey"] for each in found}
        for each in found:
            path = f"{EVENTS}/{each['event']['eventId']}/ack"
            assert 204 == (await api.runtime.post(path, {"lease": each["lease"]})).status
    assert [] == await waiting(harness)


@pytest.mark.parametrize(
    "accept", ["application/json, text/event-stream;q=0", "application/json, text/event-stream", "*/*"]
)
async def test_a_caller_who_does_not_prefer_a_stream_gets_no_endless_answer(api: Callers, accept: str) -> None:
    answer = await api.runtime.get(f"{EVENTS}?wait=0", headers={"accept": accept})
    assert 204 == answer.status


async def test_a_stream_that_has_nothing_to_say_says_so_every_quarter_of_a_minute(
    harness: Harness, api: Callers
) -> None:
    async with api.runtime.open("GET", EVENTS, headers=STREAM) as exchange:
        assert b":\n\n" == await exchange.part()
        for _ in range(3):
            await asyncio.sleep(0.05)
            assert exchange.parts.empty()
            harness.clock.advance(streaming.HEARTBEAT_SECONDS)
            assert b":\n\n" == await exchange.part()


async def test_a_conversation_gets_its_next_event_when_the_one_before_is_settled(
    harness: Harness, api: Callers
) -> None:
    first = await harness.ask_link()
    await harness.connect(first)
    second = await harness.ask_link("files")
    await harness.connect(second)

    async def both_are_there() -> bool:
        return 2 == len(await waiting(harness))

    await until(both_are_there)
    async with api.runtime.open("GET", EVENTS, headers=STREAM) as exchange:
        [one] = await read(exchange, 1)
        await asyncio.sleep(0.3)
        assert exchange.parts.empty()
        path = f"{EVENTS}/{one['event']['eventId']}/ack"
        assert 204 == (await api.runtime.post(path, {"lease": one["lease"]})).status
        [two] = await read(exchange, 1)
        assert {"mail", "files"} == {each["event"]["payload"]["oauthAppRef"]["name"] for each in (one, two)}


async def test_a_stream_holds_a_bounded_number_of_unsettled_events(
    harness: Harness, api: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "MOST_UNSETTLED", 2)
    await granted(harness, count=4)
    async with api.runtime.open("GET", EVENTS, headers=STREAM) as exchange:
        found = await read(exchange, 2)
        await asyncio.sleep(0.3)
        assert exchange.parts.empty()
        assert 2 == sum(leased for _, leased in await waiting(harness))
        path = f"{EVENTS}/{found[0]['event']['eventId']}/ack"
        assert 204 == (await api.runtime.post(path, {"lease": found[0]["lease"]})).status
        assert 1 == len(await read(exchange, 1))


async def ended(exchange: Exchange) -> None:
    """The server ended the stream; only comments were still on their way."""
    assert exchange.task is not None
    await asyncio.wait_for(asyncio.shield(exchange.task), 60)
    while not exchange.parts.empty():
        assert b":\n\n" == exchange.parts.get_nowait()


@pytest.mark.case("94")
@pytest.mark.parametrize("full", [False, True])
async def test_a_stream_whose_caller_let_a_lease_end_is_over_and_uses_up_no_attempt(
    harness: Harness, api: Callers, monkeypatch: pytest.MonkeyPatch, *, full: bool
) -> None:
    monkeypatch.setattr(streaming, "MOST_UNSETTLED", 2 if full else 16)
    await granted(harness, count=2)
    async with api.runtime.open("GET", EVENTS, headers=STREAM) as exchange:
        await read(exchange, 2)
        await asyncio.sleep(0.05)
        harness.clock.advance(61)
        await ended(exchange)
    assert {1} == {attempts for attempts, _ in await waiting(harness)}
    assert '"code": "leaseLost"' in harness.log.getvalue()
    assert 2 == (await api.runtime.get(EVENTS)).json()["attempt"], "the next caller gets it"


async def test_a_stream_goes_on_over_leases_that_were_settled_however_late_it_looks(
    harness: Harness, api: Callers
) -> None:
    await granted(harness, count=2)
    async with api.runtime.open("GET", EVENTS, headers=STREAM) as exchange:
        for how, each in zip(("ack", "nack"), await read(exchange, 2), strict=True):
            path = f"{EVENTS}/{each['event']['eventId']}/{how}"
            assert 204 == (await api.runtime.post(path, {"lease": each["lease"]})).status
        harness.clock.advance(61)
        [again] = await read(exchange, 1)
        assert 2 == again["attempt"]
        assert (
            204
            == (await api.runtime.post(f"{EVENTS}/{again['event']['eventId']}/ack", {"lease": again["lease"]})).status
        )
    assert [] == await waiting(harness)


@pytest.mark.case("79")
@pytest.mark.parametrize("end", ["removed", "expired"])
async def test_a_stream_ends_with_the_key_that_opened_it(harness: Harness, api: Callers, end: str) -> None:
    key, text = await harness.broker.api_keys.create("leaver", ["runtime"], lives_seconds=10)
    Canaries.active().add(text, "API key")
    async with Caller(harness, text.reveal()).open("GET", EVENTS, headers=STREAM) as exchange:
        assert b":\n\n" == await exchange.part()
        if end == "removed":
            assert await harness.broker.api_keys.remove(key.id)
        harness.clock.advance(streaming.HEARTBEAT_SECONDS)
        await ended(exchange)
    assert '"code": "unauthenticated"' in harness.log.getvalue()


@pytest.mark.case("79", "94")
@pytest.mark.parametrize("headers", [{}, STREAM])
async def test_no_event_is_handed_to_a_key_that_is_gone(
    harness: Harness, api: Callers, headers: dict[str, str]
) -> None:
    key, text = await harness.broker.api_keys.create("leaver", ["runtime"])
    Canaries.active().add(text, "API key")
    async with Caller(harness, text.reveal()).open("GET", f"{EVENTS}?wait=60", headers=headers) as exchange:
        await asyncio.sleep(0.05)
        assert await harness.broker.api_keys.remove(key.id)
        await granted(harness)
        assert exchange.task is not None
        await asyncio.wait_for(asyncio.shield(exchange.task), 60)
        said = b"".join(exchange.parts.get_nowait() for _ in range(exchange.parts.qsize()))
        assert b"auth.granted" not in said
        assert (200 if headers else 401) == exchange.status
    assert [(0, False)] == await waiting(harness), "it was not counted"
    assert 1 == (await api.runtime.get(EVENTS)).json()["attempt"]


@pytest.mark.case("93")
async def test_an_event_written_to_a_stream_keeps_its_lease_when_the_caller_leaves(
    harness: Harness, api: Callers
) -> None:
    """The broker cannot know whether it was read; two handlers at once would be worse than a minute's wait."""
    await granted(harness, count=2)
    async with api.runtime.open("GET", EVENTS, headers=STREAM) as exchange:
        found = await read(exchange, 2)
    assert [(1, True)] * 2 == await waiting(harness)
    path = f"{EVENTS}/{found[0]['event']['eventId']}/ack"
    assert 204 == (await api.runtime.post(path, {"lease": found[0]["lease"]})).status
    harness.clock.advance(61)
    assert 2 == (await api.runtime.get(EVENTS)).json()["attempt"]


@pytest.mark.case("94")
async def test_an_event_that_cannot_be_handled_ends_as_a_dead_letter_over_http_too(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    limits = Limits(queue_attempts=2)
    async with running(
        identity_provider, [user_app(identity_provider)], clock=test_clock, tools=TOOLS, limits=limits
    ) as harness:
        api = await Callers.of(harness)
        await granted(harness)
        for _ in range(2):
            leased = (await api.runtime.get(EVENTS)).json()
            path = f"{EVENTS}/{leased['event']['eventId']}/nack"
            assert 204 == (await api.runtime.post(path, {"lease": leased["lease"]})).status
            test_clock.advance(700)
        assert 204 == (await api.runtime.get(EVENTS)).status
        assert 1 == len(await harness.broker.events.dead("planner"))


@pytest.mark.parametrize("agent", ["planner", "an agent", "플래너", "a:b@c", "..x"])
async def test_an_agent_of_any_name_has_a_queue(harness: Harness, api: Callers, agent: str) -> None:
    assert 204 == (await api.runtime.get(f"/v1/agents/{agent}/events")).status


async def test_a_stream_over_a_store_that_does_not_work_ends_and_says_why_in_the_log(
    harness: Harness, api: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Queues, agent: str) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    async with api.runtime.open("GET", EVENTS, headers=STREAM) as exchange:
        assert b":\n\n" == await exchange.part()
        monkeypatch.setattr(queues_of(harness), "lease", fail)
        assert exchange.task is not None
        await asyncio.wait_for(asyncio.shield(exchange.task), 60)
    assert '"code": "storeUnavailable"' in harness.log.getvalue()
