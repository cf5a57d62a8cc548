"""`POST /v1/tokens` over loopback, with authentication and audit, beside the least there is, in the same run.

The rows beside it are raw ASGI and a Starlette route, which read JSON, look something up and answer JSON: each behind
uvicorn as it is fastest (httptools, uvloop). Ours stands behind its own listener, as `oauthbroker serve` has it, and
behind the same uvicorn, where each request takes the general way through the app. One worker, kept connections, and a
process of its own that asks; the rows take turns, because machines are noisy.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from bench.bench_token_call import SUBJECT, app, grant
from bench.figures import parser, show
from oauthbroker import Turn, TurnAuth, open_broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import ApiSocket, Limits, Settings
from oauthbroker.observability.logging import json_log
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.serving.connection_slots import Terms
from oauthbroker.serving.event_loop import run_serving
from oauthbroker.serving.listeners import listen, listen_unix
from oauthbroker.serving.server import served
from oauthbroker.testing.stores import open_file_store
from oauthbroker.web.middleware.access_log import uvicorn_options

HOST = "127.0.0.1:8420"
BODY = b'{"oauthAppRef":"OAuthApp/mail","scopes":["read"]}'
TURN = Turn("planner", "thread", auth=TurnAuth(subjects={"user": SUBJECT}))
GRANTS = {"mail": {"status": "ready", "accessToken": "t" * 900, "tokenType": "Bearer", "scopes": ["read", "write"]}}


async def _raw(_scope: Scope, receive: Receive, send: Send) -> None:
    asked = json.loads((await receive())["body"])
    body = json.dumps(GRANTS[asked["oauthAppRef"].removeprefix("OAuthApp/")]).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _route(request: Request) -> JSONResponse:
    asked = await request.json()
    return JSONResponse(GRANTS[asked["oauthAppRef"].removeprefix("OAuthApp/")])


ROUTE = Starlette(routes=[Route("/v1/tokens", _route, methods=["POST"])])


@dataclass
class Row:
    """One server under `place` (a port or a socket's path), and its measurements, round by round."""

    name: str
    place: str
    rates: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


@asynccontextmanager
async def behind_uvicorn(web: ASGIApp, path: Path | None) -> AsyncIterator[str]:
    with listen_unix(ApiSocket(str(path))) if path else listen("127.0.0.1", 0) as listener:
        options = {**uvicorn_options(), "http": "httptools"}
        server = uvicorn.Server(uvicorn.Config(web, **options, lifespan="off"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        try:
            yield str(path or listener.getsockname()[1])
        finally:
            server.should_exit = True
            await task


@asynccontextmanager
async def behind_our_listener(web: ASGIApp, path: Path | None) -> AsyncIterator[str]:
    with listen_unix(ApiSocket(str(path))) if path else listen("127.0.0.1", 0) as listener:
        async with served(web, [listener], Terms(json_log(io.StringIO(), SystemClock()))):
            yield str(path or listener.getsockname()[1])


class Caller(asyncio.Protocol):
    """One connection: asks, reads the answer, asks again."""

    def __init__(self, request: bytes, until: float, taken: list[float], done: asyncio.Future[None]) -> None:
        self._request, self._until, self._taken, self._done = request, until, taken, done
        self._answer, self._size = b"", 0

    def connection_made(self, transport: asyncio.WriteTransport) -> None:  # type: ignore[override]
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._began = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if not self._size and (end := self._answer.find(b"\r\n\r\n")) >= 0:
            head = self._answer[:end].lower()
            assert b" 200 " in head[:15], head
            self._size = end + 4 + int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if not self._size or len(self._answer) < self._size:
            return
        self._answer, self._size, now = b"", 0, time.perf_counter()
        self._taken.append(now - self._began)
        if now < self._until:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the run. A refused request ends it with an error: figures of fewer connections would mislead."""
        if self._done.done():
            return
        if exc is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(exc)


def token_request(host: str, token: str) -> bytes:
    """Return the bytes of a token call."""
    head = f"POST /v1/tokens HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY


async def load(place: str, connections: int, seconds: float) -> None:
    """The child's part; the request with its token comes by stdin."""
    request, taken, loop = sys.stdin.buffer.read(), list[float](), asyncio.get_running_loop()
    began, ends = time.perf_counter(), [loop.create_future() for _ in range(connections)]
    for end in ends:
        caller = Caller(request, began + seconds, taken, end)
        if place.isdigit():
            await loop.create_connection(lambda caller=caller: caller, "127.0.0.1", int(place))  # type: ignore[misc]
        else:
            await loop.create_unix_connection(lambda caller=caller: caller, place)  # type: ignore[misc]
    await asyncio.gather(*ends)
    rate = len(taken) / (time.perf_counter() - began)
    print(json.dumps({"rate": rate, "p50": statistics.median(taken) * 1e6, "count": len(taken)}))


async def measure(row: Row, request: bytes, connections: int, seconds: float) -> None:
    command = [sys.executable, "-m", "bench.bench_api", "--load", row.place, str(connections), str(seconds)]
    child = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    spent = time.process_time()
    said, _ = await child.communicate(request)
    spent = time.process_time() - spent
    found = json.loads(said)
    row.rates.append(found["rate"])
    row.p50.append(found["p50"])
    row.cpu.append(spent / found["count"] * 1e6)


def show_rows(rows: list[Row], way: str) -> None:
    """Print requests a second, the time of one and its CPU time; ours beside each of the others."""
    others = rows[:2]
    for row in rows:
        beside = {} if row in others else {each.name: each for each in others}
        for kind, unit, of in KINDS_OF_FIGURES:
            name = f"{row.name}, {way}{kind}"
            show(name, of(row), unit, {f"{its}, {way}{kind}": of(each) for its, each in beside.items()})


KINDS_OF_FIGURES: tuple[tuple[str, str, Callable[[Row], list[float]]], ...] = (
    ("", "requests/s", lambda row: row.rates),
    (": time", "us", lambda row: row.p50),
    (": CPU", "us", lambda row: row.cpu),
)


def nowhere() -> TextIO:
    """Lines are written all the same, one system call each."""
    return Path(os.devnull).open("w", encoding="utf-8")


async def main(*, quick: bool) -> None:
    seconds, rounds = (0.7, 3) if quick else (2.0, 5)
    with tempfile.TemporaryDirectory() as folder:
        root, clock = Path(folder), SystemClock()
        store = open_file_store(root, kinds=KINDS, lease_kinds=LEASES)
        await Repository(store).save_grant(grant(SUBJECT), expect=0)
        settings = Settings(limits=Limits(requests_per_minute=10**9), store_root=str(root / "store"))
        with nowhere() as stream:
            log = json_log(stream, clock)
            bundle = Bundle(settings, {"mail": app()})
            async with open_broker(bundle, env={}, store=store, log=log, background=False) as broker:
                token = (await broker.turns.begin(TURN)).token.reveal()
                request = token_request(HOST, token)
                for connections, path in ((16, None), (1, root)):
                    async with AsyncExitStack() as stack:
                        places = [path and path / f"{number}.socket" for number in range(4)]
                        rows = [
                            Row("raw ASGI", await stack.enter_async_context(behind_uvicorn(_raw, places[0]))),
                            Row("a Starlette route", await stack.enter_async_context(behind_uvicorn(ROUTE, places[1]))),
                            Row(
                                "POST /v1/tokens",
                                await stack.enter_async_context(behind_our_listener(broker.asgi.app, places[2])),
                            ),
                            Row(
                                "POST /v1/tokens behind uvicorn",
                                await stack.enter_async_context(behind_uvicorn(broker.asgi.app, places[3])),
                            ),
                        ]
                        for _ in range(rounds):
                            for row in rows:
                                await measure(row, request, connections, seconds)
                    show_rows(rows, f"{connections} over {'a Unix socket' if path else 'TCP'}")


if __name__ == "__main__":
    arguments = parser()
    arguments.add_argument("--load", nargs=3, metavar=("PLACE", "CONNECTIONS", "SECONDS"))
    given = arguments.parse_args()
    if given.load:
        run_serving(load(given.load[0], int(given.load[1]), float(given.load[2])))
    else:
        run_serving(main(quick=given.quick))
