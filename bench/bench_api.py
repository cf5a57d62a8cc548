"""`POST /v1/tokens` over loopback, with authentication and audit, against a bare Starlette route in the same run.

Both stand behind the same server with the same options, one worker, and are asked by a process of its own over
connections that are kept. The bare route reads JSON, looks something up and answers JSON: the least there is.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from bench.bench_token_call import SUBJECT, app, grant
from oauthbroker import Turn, TurnAuth, open_broker
from oauthbroker.apps import Bundle
from oauthbroker.clock import SystemClock
from oauthbroker.repository import KINDS, LEASES, Repository
from oauthbroker.serving.doors import listen
from oauthbroker.settings import Limits, Settings
from oauthbroker.testing.stores import open_file_store
from oauthbroker.web.access_log import json_log, uvicorn_options

BODY = b'{"oauthAppRef":"OAuthApp/mail","scopes":["read"]}'
TURN = Turn("planner", "thread", auth=TurnAuth(subjects={"user": SUBJECT}))
GRANTS = {"mail": {"status": "ready", "accessToken": "t" * 900, "tokenType": "Bearer", "scopes": ["read", "write"]}}


async def _bare(request: Request) -> JSONResponse:
    asked = await request.json()
    return JSONResponse(GRANTS[asked["oauthAppRef"].removeprefix("OAuthApp/")])


BARE = Starlette(routes=[Route("/v1/tokens", _bare, methods=["POST"])])


@asynccontextmanager
async def serving(web: ASGIApp) -> AsyncIterator[int]:
    with listen("127.0.0.1", 0) as door:
        server = uvicorn.Server(uvicorn.Config(web, **uvicorn_options(), lifespan="off"))
        task = asyncio.create_task(server.serve(sockets=[door]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        try:
            yield door.getsockname()[1]
        finally:
            server.should_exit = True
            await task


async def ask(port: int, token: str, until: float, taken: list[float]) -> None:
    """One connection: ask, read the answer, ask again."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/tokens HTTP/1.1\r\nHost: 127.0.0.1:8420\r\nAuthorization: Bearer {token}\r\n"
    request = f"{head}Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    while (began := time.perf_counter()) < until:
        writer.write(request)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in answer[:15], answer
        await reader.readexactly(int(answer.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        taken.append(time.perf_counter() - began)
    writer.close()


async def load(port: int, connections: int, seconds: float) -> None:
    """The child's part; the token comes by stdin."""
    token, taken = sys.stdin.readline().strip(), list[float]()
    began = time.perf_counter()
    await asyncio.gather(*(ask(port, token, began + seconds, taken) for _ in range(connections)))
    rate = len(taken) / (time.perf_counter() - began)
    taken.sort()
    print(json.dumps({"rate": rate, "p50": taken[len(taken) // 2] * 1e6, "p99": taken[len(taken) * 99 // 100] * 1e6}))


async def measure(name: str, port: int, token: str, connections: int, seconds: float) -> None:
    command = [sys.executable, "-m", "bench.bench_api", "--load", str(port), str(connections), str(seconds)]
    spent = time.process_time()
    child = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    said, _ = await child.communicate(f"{token}\n".encode())
    spent = time.process_time() - spent
    found = json.loads(said)
    figure = {"name": f"{name}, {connections} connections", "value": round(found["rate"]), "unit": "requests/s"}
    figure |= {"p50 us": round(found["p50"]), "p99 us": round(found["p99"])}
    print(json.dumps(figure | {"cpu us a request": round(spent / (found["rate"] * seconds) * 1e6)}), flush=True)


async def main(*, quick: bool) -> None:
    seconds = 1.0 if quick else 5.0
    with tempfile.TemporaryDirectory() as folder:
        clock = SystemClock()
        store = open_file_store(Path(folder), kinds=KINDS, lease_kinds=LEASES)
        await Repository(store).save_grant(grant(SUBJECT), expect=0)
        settings = Settings(limits=Limits(requests_per_minute=10**9), store_root=str(Path(folder) / "store"))
        bundle, log = Bundle(settings, {"mail": app()}), json_log(io.StringIO(), clock)
        async with open_broker(bundle, env={}, store=store, log=log, background=False) as broker:
            begun = await broker.turns.begin(TURN)
            for connections in (1, 16):
                for name, web in (("a bare Starlette route", BARE), ("POST /v1/tokens", broker.web)):
                    async with serving(web) as port:
                        await measure(name, port, begun.token.reveal(), connections, seconds)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--load", nargs=3, metavar=("PORT", "CONNECTIONS", "SECONDS"))
    given = arguments.parse_args()
    if given.load:
        asyncio.run(load(int(given.load[0]), int(given.load[1]), float(given.load[2])))
    else:
        asyncio.run(main(quick=given.quick))
