"""Events over a real connection: a stream as clients read it, and callers whose connection breaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from oauthbroker.web.middleware.access_log import uvicorn_options
from tests.e2e.served import free_port
from tests.kit.queues import queued
from tests.kit.running_broker import BASE, Harness
from tests.story.api.kit import Callers

EVENTS = "/v1/agents/planner/events"


@asynccontextmanager
async def listening(harness: Harness) -> AsyncIterator[tuple[int, uvicorn.Server]]:
    with free_port() as listener:
        server = uvicorn.Server(uvicorn.Config(harness.broker.asgi.app, **uvicorn_options(), lifespan="off"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            yield listener.getsockname()[1], server
        finally:
            harness.broker.life.stop()
            server.should_exit = True
            await asyncio.wait_for(serving, 60)


@asynccontextmanager
async def asking(port: int, bearer: str | None, path: str, *headers: str) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"GET {path} HTTP/1.1", f"Host: {BASE.partition('//')[2]}", f"Authorization: Bearer {bearer}", *headers]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    try:
        yield reader
    finally:
        writer.transport.abort()


async def until(said: Callable[[], Any], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not await said():
            await asyncio.sleep(0.01)


async def free_events(harness: Harness) -> int:
    return (await queued(harness.repository)).count((0, False))


async def test_a_stream_arrives_message_by_message_and_ends_in_order(harness: Harness, api: Callers) -> None:
    async with listening(harness) as (port, server):
        async with asking(port, api.runtime.bearer, EVENTS, "Accept: text/event-stream") as reader:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
            assert b" 200 " in head
            assert b"text/event-stream" in head
            assert b"transfer-encoding: chunked" in head.lower()
            assert b":\n\n" in await asyncio.wait_for(reader.readuntil(b":\n\n"), 60)
            await harness.connect(await harness.ask_link())
            said = await asyncio.wait_for(reader.readuntil(b"\n\n"), 60)
            data = said.split(b"data: ")[1]
            assert "auth.granted" == json.loads(data)["event"]["type"]
            harness.broker.life.stop()
            rest = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 60)
            assert rest.endswith(b"0\r\n\r\n"), "the end was said, nothing broke off"
        assert server.started


@pytest.mark.case("93")
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_caller_whose_connection_breaks_takes_no_event_along(
    harness: Harness, api: Callers, accept: str
) -> None:
    async with listening(harness) as (port, server):
        async with asking(port, api.runtime.bearer, f"{EVENTS}?wait=60", f"Accept: {accept}"):
            await until(lambda: _busy(server))
        await until(lambda: _idle(server))
        await harness.connect(await harness.ask_link())

        async def there() -> bool:
            return 1 == await free_events(harness)

        await until(there)
        await asyncio.sleep(0.3)
        assert await there()


async def _busy(server: uvicorn.Server) -> bool:
    return bool(server.server_state.tasks)


async def _idle(server: uvicorn.Server) -> bool:
    return not server.server_state.tasks


async def test_a_server_that_stops_does_not_wait_for_waiting_callers(harness: Harness, api: Callers) -> None:
    async with (
        listening(harness) as (port, server),
        asking(port, api.runtime.bearer, f"{EVENTS}?wait=60") as reader,
    ):
        await until(lambda: _busy(server))
        harness.broker.life.stop()
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        assert b" 204 " in head
