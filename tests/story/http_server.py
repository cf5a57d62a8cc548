"""Serve a broker of a test by the HTTP server that `oauthbroker serve` uses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from oauthbroker.testing import Browser
from oauthbroker.web.middleware.access_log import uvicorn_options
from tests.kit.running_broker import Harness


@asynccontextmanager
async def served_over_http(harness: Harness) -> AsyncIterator[int]:
    """The broker behind the server that people run; the port."""
    server = uvicorn.Server(uvicorn.Config(harness.broker.asgi.app, host="127.0.0.1", port=0, **uvicorn_options()))
    running = asyncio.create_task(server.serve())
    async with asyncio.timeout(60):
        while not server.started:
            await asyncio.sleep(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await running


def cookie_header(browser: Browser) -> str:
    return "; ".join(f"{name}={browser.cookies[name].value}" for name in browser.cookies)
