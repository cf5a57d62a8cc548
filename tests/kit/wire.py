"""A connection of our server without a network: bytes in, bytes out, as many steps of the event loop as it takes."""

from __future__ import annotations

import asyncio
import io
from typing import Any

from starlette.types import ASGIApp
from uvicorn.server import ServerState

from oauthbroker.core.clock import SystemClock
from oauthbroker.observability.logging import json_log
from oauthbroker.serving.connection_slots import Terms
from oauthbroker.serving.http1.connection import ListenerConfig
from oauthbroker.serving.http1.warm_connection import WarmConnection

SECONDS = 30.0


class Wire(asyncio.Transport):
    """A transport that keeps the written bytes."""

    def __init__(self, peer: tuple[str, int] = ("127.0.0.1", 40_000)) -> None:
        super().__init__()
        self.said, self.ended, self._peer = b"", False, peer

    def write(self, data: Any) -> None:
        self.said += bytes(data)

    def close(self) -> None:
        self.ended = True

    abort = write_eof = close

    def is_closing(self) -> bool:
        return self.ended

    def pause_reading(self) -> None: ...

    resume_reading = pause_reading

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self._peer, "sockname": ("127.0.0.1", 8420)}.get(name, default)


def a_listener(web: ASGIApp) -> ListenerConfig:
    """A listener in front of an application. Its connections share one cache of heads."""
    config = ListenerConfig(
        web=web, terms=Terms(json_log(io.StringIO(), SystemClock())), grace_seconds=1, protocol=WarmConnection
    )
    config.load()
    return config


class Line:
    """One connection to an application. `at_once` counts the answers that needed neither a parser nor a task, `asked`
    those that needed the store's word alone; `data` is the request that its user repeats."""

    data = b""
    asked = 0

    def __init__(self, listener: ASGIApp | ListenerConfig) -> None:
        config = listener if isinstance(listener, ListenerConfig) else a_listener(listener)
        self.wire, self.connection, self.at_once = (
            Wire(),
            WarmConnection(config=config, server_state=ServerState(), app_state={}),
            0,
        )
        self.connection.connection_made(self.wire)

    async def say(self, *parts: bytes) -> bytes:
        """Return what comes back for one request. The parts are read one after another. Nothing comes back while the
        application waits for more of a body than was sent."""
        self.wire.said, before, is_asked = b"", self.connection.cycle, False
        for part in parts:
            if not self.wire.ended:
                self.connection.data_received(part)
                is_asked = is_asked or self.connection._asking is not None
                await asyncio.sleep(0)
        async with asyncio.timeout(SECONDS):
            while self.connection._hold is not None or self.connection._asking is not None:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0)
            cycle = self.connection.cycle
            while cycle is not before and not cycle.response_complete and not self.wire.ended and not self._is_stuck():
                await asyncio.sleep(0)
        self.asked += is_asked and cycle is before and self.wire.said.startswith(b"HTTP/1.1 200")
        self.at_once += not is_asked and cycle is before and self.wire.said.startswith(b"HTTP/1.1 200")
        return self.wire.said

    def _is_stuck(self) -> bool:
        """Return whether the application waits for more of the body."""
        cycle = self.connection.cycle
        return cycle.more_body and not cycle.body and bool(cycle.message_event._waiters)

    async def settle(self) -> None:
        """Wait for what the application does behind an answer, unless it waits for more of a body."""
        async with asyncio.timeout(SECONDS):
            while self.connection.server_state.tasks and not self._is_stuck():
                await asyncio.sleep(0)

    async def close(self) -> None:
        """End the connection, and wait for what the application still does, such as to count a request cut short."""
        self.connection.connection_lost(None)
        async with asyncio.timeout(SECONDS):
            while self.connection._asking is not None or self.connection.server_state.tasks:
                await asyncio.sleep(0)
