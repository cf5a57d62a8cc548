"""The broker of one test: made like a new user's, opened on its bundle, its pages served over HTTP on a free port."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import httpx2
import uvicorn
from starlette.types import ASGIApp

from oauthbroker.config import load
from oauthbroker.core.clock import SystemClock
from oauthbroker.testing import off_the_record
from oauthbroker.web.middleware.access_log import uvicorn_options
from oauthbroker.wiring import init_store, with_keys
from oauthbroker.wiring.opening import open_running
from oauthbroker.wiring.running import Running
from tests.kit.warm_python import MAIN

ROOT = Path(__file__).parents[2]
_PATIENCE = 60.0  # seconds: a busy machine starts a process slowly, and a wait ends as soon as it is up


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
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


@asynccontextmanager
async def embedded(
    bundle: Path, listener: socket.socket, env: Mapping[str, str], clock: LateClock
) -> AsyncIterator[Running]:
    """A broker in this process, with its pages behind `listener`, until the block ends."""
    init_store(with_keys(load(bundle).settings, env), env, clock)
    async with open_running(bundle, env=env, clock=clock) as running, listening(running.broker.asgi.app, listener):
        yield running


@asynccontextmanager
async def apart(
    bundle: Path, listener: socket.socket, env: Mapping[str, str], clock: LateClock
) -> AsyncIterator[Running]:
    """A broker in this process whose pages another one serves: `oauthbroker serve` on the same store.

    What that process prints goes where ours goes, so that it is swept for secrets too.
    """
    home = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    init = await _oauthbroker("init", bundle, env)
    assert 0 == await init.wait()
    serve = await _oauthbroker("serve", bundle, env)
    try:
        await _healthy(home, serve)
        async with open_running(bundle, env=env, clock=clock) as running:
            yield running
        serve.terminate()
        assert 0 == await asyncio.wait_for(serve.wait(), _PATIENCE)
    finally:
        if serve.returncode is None:
            serve.kill()
            await serve.wait()


async def _oauthbroker(command: str, bundle: Path, env: Mapping[str, str]) -> asyncio.subprocess.Process:
    everything = {**os.environ, **env, "PYTHONPATH": str(ROOT)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", MAIN, command, "--config", str(bundle), env=everything
    )


async def _healthy(home: str, process: asyncio.subprocess.Process) -> None:
    with off_the_record():
        async with asyncio.timeout(_PATIENCE), httpx2.AsyncClient(trust_env=False) as http:
            while process.returncode is None:
                try:
                    answer = await http.get(home + "/healthz")
                    answer.raise_for_status()
                    return
                except httpx2.TransportError:
                    await asyncio.sleep(0.05)
    raise AssertionError("oauthbroker serve ended; its output is on stderr")


@asynccontextmanager
async def listening(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    config = uvicorn.Config(app, **uvicorn_options(), lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with asyncio.timeout(_PATIENCE):
            while not server.started and not task.done():
                await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await task
