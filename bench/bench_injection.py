"""A request with an injected token, beside a bare httpx2 client that holds the token: CPU time of the tool's process.

Both send the same GET over kept connections to an API in a process of its own, one after the other and sixteen at once.
The bare client writes no audit log, assesses no target, masks nothing and asks nothing for its token.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import httpx2

from bench.bench_token_call import SUBJECT, app, grant
from bench.figures import US, parser, show_in_turn
from oauthbroker import Turn, TurnAuth
from oauthbroker.core.clock import SystemClock
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.settings import Settings
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.testing.stores import open_file_store
from oauthbroker.wiring.opening import open_running

SERVE = "--serve"
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1024\r\n\r\n"' + b"x" * 1022 + b'"'
Get = Callable[[], Awaitable[object]]


async def serve() -> None:
    """Answer requests without a body on every connection, after printing the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the parent has ended


async def cpu_of(get: Get, batch: int, at_once: int) -> float:
    """Return the microseconds of CPU time of one request."""
    began = time.process_time()
    for _ in range(batch // at_once):
        await asyncio.gather(*(get() for _ in range(at_once)))
    return (time.process_time() - began) / (batch // at_once * at_once) * US


async def compare(works: dict[str, Get], rounds: int, batch: int) -> None:
    for at_once in (1, 16):
        samples: dict[str, list[float]] = {f"{name}, {at_once} at once": [] for name in works}
        for round_ in range(-1, rounds):
            for name, get in works.items():
                taken = await cpu_of(get, batch, at_once)
                if round_ >= 0:  # the first one opens the connections
                    samples[f"{name}, {at_once} at once"].append(taken)
        show_in_turn(samples, "us of CPU")


async def main(port: int, *, quick: bool) -> None:
    rounds, batch = (3, 32) if quick else (40, 96)
    url = f"http://127.0.0.1:{port}/v1/messages"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = open_file_store(root, kinds=KINDS, lease_kinds=LEASES)
        held = grant(SUBJECT)
        await Repository(store).save_grant(held, expect=0)
        api = ApiAccess((ApiHost("127.0.0.1", port, "http"),))
        weaken = frozenset({"plainHttpProvider"})
        settings = Settings("http://127.0.0.1:8420", store_root=str(root / "store"), weaken=weaken)
        bundle = Bundle(settings, {"mail": replace(app(), api=api)})
        assert held.token is not None
        headers = {"Authorization": f"Bearer {held.token.access_token.reveal()}"}
        async with (
            open_running(bundle, env={}, clock=SystemClock(), store=store, background=False) as running,
            httpx2.AsyncClient(trust_env=False, headers=headers) as bare,
            running.broker.oauth(Turn("planner", "1", auth=TurnAuth(subjects={"user": SUBJECT}))).client(
                "mail"
            ) as ours,
        ):
            works: dict[str, Get] = {"bare httpx2": lambda: bare.get(url), "ctx.oauth.client": lambda: ours.get(url)}
            await compare(works, rounds, batch)


if __name__ == "__main__":
    if SERVE in sys.argv:
        asyncio.run(serve())
    else:
        asked = parser().parse_args()
        command = [sys.executable, "-m", "bench.bench_injection", SERVE]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as api:
            assert api.stdout is not None
            asyncio.run(main(int(api.stdout.readline()), quick=asked.quick))
            api.kill()
