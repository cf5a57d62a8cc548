"""A server of ours on a port of its own with a few routes behind the gate, and clients that write raw bytes."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from oauthbroker.core.clock import SystemClock
from oauthbroker.observability.logging import json_log
from oauthbroker.observability.metrics import Metrics
from oauthbroker.serving.connection_slots import Terms
from oauthbroker.serving.listeners import listen
from oauthbroker.serving.server import Server, served
from oauthbroker.web.gate.request_limits import Gate, may_take_long
from oauthbroker.web.middleware.access_log import RequestLog
from oauthbroker.web.middleware.forwarded import Proxies

HOST = "broker.example"


@dataclass
class Said:
    """What came back on a connection until it ended."""

    raw: bytes

    @property
    def status(self) -> int:
        """Of the first answer; 0 when the connection ended without one."""
        return int(self.raw.split(b" ", 2)[1]) if self.raw else 0

    @property
    def statuses(self) -> list[int]:
        return [int(part[:3]) for part in self.raw.split(b"HTTP/1.1 ")[1:]]

    @property
    def json(self) -> Any:
        return json.loads(self.raw.partition(b"\r\n\r\n")[2])

    @property
    def code(self) -> str:
        return str(self.json["code"])

    def header(self, name: str) -> str | None:
        head = self.raw.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
        found = [line.partition(": ")[2] for line in head if line.lower().startswith(f"{name}:")]
        assert len(found) < 2, f"{name} twice"
        return found[0] if found else None


@dataclass
class Site:
    port: int
    server: Server
    log: io.StringIO
    asked: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]

    async def connect(self, address: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))

    async def say(
        self, *parts: bytes, pause: float = 0, seconds: float = 60, end: bool = False, address: str = "127.0.0.1"
    ) -> Said:
        """Sends the parts, `pause` apart, and reads until the server hangs up. `end`: it is told that this was all."""
        reader, writer = await self.connect(address)
        try:
            async with asyncio.timeout(seconds):
                reading = asyncio.create_task(reader.read())
                try:
                    for part in parts:
                        writer.write(part)
                        await writer.drain()
                        await asyncio.sleep(pause)
                    if end:
                        writer.write_eof()
                except ConnectionError:
                    pass
                return Said(await reading)
        finally:
            writer.close()


def get(path: str = "/", *headers: str, host: str = HOST, close: bool = True) -> bytes:
    """A plain GET; `headers` as whole lines."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", *headers, *(["Connection: close"] if close else [])]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def routes(site: list[Site]) -> list[Route]:
    async def echo(request: Request) -> Response:
        site[0].asked.append(request.url.path)
        extensions = request.scope.get("extensions", {})
        client = request.client.host if request.client else None
        return JSONResponse({"client": client, "extensions": extensions, "headers": dict(request.headers)})

    async def length(request: Request) -> Response:
        body = await request.body()
        site[0].asked.append(request.url.path)
        return JSONResponse({"length": len(body)})

    async def late(request: Request) -> Response:
        await request.body()
        return JSONResponse({"headers": dict(request.headers)})

    async def wait(request: Request) -> Response:
        if "patient" in request.query_params:
            may_take_long(request)
        await asyncio.sleep(float(request.query_params["for"]))
        return PlainTextResponse("waited")

    async def big(_request: Request) -> Response:
        return Response(bytes(8 * 1024 * 1024))

    return [
        Route("/", echo),
        Route("/healthz", echo),
        Route("/length", length, methods=["POST"]),
        Route("/late", late, methods=["POST"]),
        Route("/wait", wait),
        Route("/big", big),
    ]


def gated(app_routes: Sequence[Route], log: Any, *, trusted: Sequence[str] = (), seconds: float = 60) -> ASGIApp:
    """The routes behind the gate that the broker's own stand behind."""
    app, requests = Starlette(routes=app_routes), RequestLog(SystemClock(), log, Metrics())
    app.middleware_stack = Gate(
        app.router,
        hosts=frozenset({HOST}),
        locale="en",
        log=log,
        requests=requests,
        proxies=Proxies(trusted),
        seconds=seconds,
    )
    return app


@asynccontextmanager
async def a_site(
    *, listener: socket.socket | None = None, trusted: Sequence[str] = (), seconds: float = 60, **terms: Any
) -> AsyncIterator[Site]:
    stream = io.StringIO()
    log = json_log(stream, SystemClock())
    found: list[Site] = []
    app = gated(routes(found), log, trusted=trusted, seconds=seconds)
    with listener or listen("127.0.0.1", 0) as line:
        port = line.getsockname()[1] if line.family != socket.AF_UNIX else 0
        async with served(app, [line], Terms(log, proxies=Proxies(trusted), **terms), grace_seconds=1) as server:
            found.append(Site(port, server, stream))
            yield found[0]
