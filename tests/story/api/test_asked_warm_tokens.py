"""A warm `POST /v1/tokens` where hosts share the store: one question confirms turn and grant, and no other part of the
general way is taken. What ended before the store's word is refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from oauthbroker.observability.metrics import Metric, Timing
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.format.port import Entry
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, Harness, global_app, running, user_app
from tests.kit.wire import Line
from tests.story.api.kit import TOOLS, Callers

ASK = b'{"oauthAppRef":"mail"}'
HEAD = (
    "POST /v1/tokens HTTP/1.1\r\nHost: 127.0.0.1:8420\r\nAuthorization: Bearer {}\r\n"
    "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n"
)


class AskedStore(MemoryStore):
    """A store that has to be asked whether versions are the newest ones. It answers once it may `go_on`."""

    degraded = False

    def __init__(self, clock: TestClock) -> None:
        super().__init__(kinds=KINDS, lease_kinds=LEASES, clock=clock)
        self.questions, self.go_on = list[tuple[str, ...]](), asyncio.Event()
        self.go_on.set()

    def unchanged(self, entry: Entry) -> bool:
        return False

    async def is_current(self, *entries: Entry) -> bool:
        self.questions.append(tuple(entry.key.kind for entry in entries))
        if len(entries) > 1:  # a warm call's
            await asyncio.sleep(0)
            await self.go_on.wait()
        return all(map(super().unchanged, entries))


@pytest.fixture
def store() -> AskedStore:
    return AskedStore(TestClock(frozen=True))


@pytest.fixture
async def harness(identity_provider: IdentityProvider, store: AskedStore) -> AsyncIterator[Harness]:
    clock = TestClock(frozen=True)
    apps = [user_app(identity_provider), global_app(identity_provider)]
    async with running(identity_provider, apps, clock=clock, store=store, tools=TOOLS, background=False) as harness:
        harness.parts.repository.shared = store  # type: ignore[assignment]  # calls read `degraded` alone
        await harness.connected()
        yield harness


@pytest.fixture
async def api(harness: Harness) -> Callers:
    return await Callers.of(harness)


@pytest.fixture
async def begun(api: Callers) -> dict[str, Any]:
    return await api.begin()


@pytest.fixture
async def line(harness: Harness, begun: dict[str, Any], store: AskedStore) -> AsyncIterator[Line]:
    """A connection on which the call is warm."""
    line = Line(harness.broker.asgi.app)
    line.data = HEAD.format(begun["turnToken"], len(ASK)).encode() + ASK
    for _ in range(4):
        assert (await line.say(line.data)).startswith(b"HTTP/1.1 200 OK\r\n")
    assert line.asked
    line.asked, line.at_once = 0, 0
    store.questions.clear()
    yield line
    await line.close()


async def asking(line: Line, store: AskedStore) -> None:
    """Send a request, whose question the store has not answered yet."""
    store.go_on.clear()
    line.wire.said = b""
    line.connection.data_received(line.data)
    assert line.connection._asking is not None
    await asyncio.sleep(0)
    assert b"" == line.wire.said


async def said(line: Line, store: AskedStore, answers: int = 1) -> list[bytes]:
    """Let the store answer. Return the status of each answer."""
    store.go_on.set()
    async with asyncio.timeout(30):
        while line.wire.said.count(b"HTTP/1.1 ") < answers:
            await asyncio.sleep(0)
    return re.findall(rb"HTTP/1.1 (\d+)", line.wire.said)


async def test_one_question_for_turn_and_grant_answers_a_warm_call(line: Line, store: AskedStore) -> None:
    first = await line.say(line.data)
    second = await line.say(line.data)
    without_id = re.compile(rb"x-request-id: \S+\r\n")
    assert without_id.sub(b"", first) == without_id.sub(b"", second)
    assert (2, 0) == (line.asked, line.at_once)
    assert [("grants", "turns")] * 2 == store.questions


async def test_each_warm_call_is_counted_once(harness: Harness, line: Line) -> None:
    metrics = harness.broker.metrics
    before = metrics.value(Metric.TOKENS_READY, "mail"), metrics.timed(Timing.TOKEN_CALL, "ready")
    await line.say(line.data)
    after = metrics.value(Metric.TOKENS_READY, "mail"), metrics.timed(Timing.TOKEN_CALL, "ready")
    assert (1, 1) == (after[0] - before[0], after[1] - before[1])


async def test_a_turn_that_ended_before_the_store_answered_gets_no_token(
    harness: Harness, begun: dict[str, Any], line: Line, store: AskedStore
) -> None:
    await asking(line, store)
    assert await harness.broker.turns.end(begun["turnId"])
    assert [b"401"] == await said(line, store)


async def test_a_grant_that_was_revoked_before_the_store_answered_is_not_handed_out(
    harness: Harness, line: Line, store: AskedStore
) -> None:
    await asking(line, store)
    assert await harness.broker.revoke("mail", subject=ALICE)
    await said(line, store)
    assert b"authorization_required" in line.wire.said


async def test_requests_behind_one_that_asks_are_answered_after_it(line: Line, store: AskedStore) -> None:
    await asking(line, store)
    line.connection.data_received(line.data + line.data)
    assert [b"200", b"200", b"200"] == await said(line, store, 3)


async def test_a_client_that_leaves_leaves_no_question_behind(line: Line, store: AskedStore) -> None:
    await asking(line, store)
    question = line.connection._asking
    await line.close()
    assert question is not None
    assert question.cancelled()


async def test_a_server_that_stops_answers_a_request_that_asks(line: Line, store: AskedStore) -> None:
    await asking(line, store)
    line.connection._terms.draining = True
    line.connection.shutdown()
    assert [b"200"] == await said(line, store)
    assert not line.wire.ended, "the caller does not know that it was the last answer"
    assert b"connection: close\r\n" in await line.say(line.data)
    assert line.wire.ended
