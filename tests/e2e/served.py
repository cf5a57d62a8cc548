"""The broker of one test: made like a new user's, opened on its bundle, and served over HTTP on a free port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from oauthbroker import Broker, open_broker
from oauthbroker.clock import SystemClock
from oauthbroker.config import load
from oauthbroker.web.access_log import uvicorn_options
from oauthbroker.wiring import init_store, with_keys

_PATIENCE = 20.0  # seconds


class LateClock(SystemClock):
    """The system's clock, and `advance` for those who cannot wait ten minutes."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)


def free_port() -> socket.socket:
    """A bound socket: its port stays ours until the server takes it over."""
    return socket.create_server(("127.0.0.1", 0))


@asynccontextmanager
async def serving(bundle: Path, door: socket.socket, env: Mapping[str, str], clock: LateClock) -> AsyncIterator[Broker]:
    """A broker behind `door`, until the block ends."""
    init_store(with_keys(load(bundle).settings, env), clock)
    async with open_broker(bundle, env=env, clock=clock) as broker, _listening(broker.web, door):
        yield broker


@asynccontextmanager
async def _listening(app: ASGIApp, door: socket.socket) -> AsyncIterator[None]:
    config = uvicorn.Config(app, **uvicorn_options(), lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[door]))
    try:
        async with asyncio.timeout(_PATIENCE):
            while not server.started and not task.done():
                await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await task
