"""`oauthbroker serve` with one, two and four workers, on files and on PostgreSQL: requests for a ready token, by two
callers of 16 connections each. Beside PostgreSQL stands `pgbench` with as many clients and the statement that asks
whether a grant is still the newest version, by turns: a request asks twice, and requests at the same time share one.
With a trusted feed (`consistency: fast`) it asks nothing.

The callers and the database share the machine with the servers: on two cores a second worker has half a core at most.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path

from bench.bench_api import token_request
from bench.bench_scaling import FEED_SECONDS, make_rows, pgbench
from bench.children import ROOT
from bench.figures import parser, show, show_failure
from bench.installation import free_port, install, serving, turn_token
from tests.kit import postgres

CALLERS, CONNECTIONS = 2, 16
ENV = "OAUTHBROKER_BENCH_DATABASE"
BARE = f"pgbench, {CALLERS * CONNECTIONS} clients"
STORES = {"PostgreSQL": "strict", "PostgreSQL with feed": "fast"}


async def load(port: int, token: str, seconds: float) -> tuple[float, float]:
    """Return the requests a second of all callers, and the slower caller's median time of one, in us."""
    request = token_request(f"127.0.0.1:{port}", token)
    words = [sys.executable, "-m", "bench.bench_api", "--load", str(port), str(CONNECTIONS), str(seconds)]
    callers = [
        await asyncio.create_subprocess_exec(*words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(CALLERS)
    ]
    said = await asyncio.gather(*(each.communicate(request) for each in callers))
    found = [json.loads(out) for out, _ in said]
    return sum(each["rate"] for each in found), max(each["p50"] for each in found)


async def main(*, quick: bool) -> None:
    seconds, rounds = (0.7, 2) if quick else (3.0, 5)
    with tempfile.TemporaryDirectory() as name, ExitStack() as servers:
        server = None
        if postgres.binaries() is not None:
            server = servers.enter_context(postgres.server("fsync=on", "max_connections=200", on_disk=True))
        async with AsyncExitStack() as stack:
            served = dict[str, tuple[int, str]]()
            for workers in (1, 2, 4):
                served[label(workers)] = await started(stack, Path(name, f"files-{workers}"), workers)
                if server is not None:
                    served |= await on_postgres(stack, Path(name), workers, server)
            rates: dict[str, list[float]] = {each: [] for each in served}
            times: dict[str, list[float]] = {each: [] for each in served}
            bare = list[float]()
            if server is not None:
                make_rows(server, "strict1", CALLERS * CONNECTIONS)
                for port, token in served.values():
                    await load(port, token, 0.2)  # the first request begins the feed
                await asyncio.sleep(FEED_SECONDS)
            for _ in range(rounds):
                for each, (port, token) in served.items():
                    rate, time = await load(port, token, seconds)
                    rates[each].append(rate)
                    times[each].append(time)
                if server is not None:
                    where = {"host": str(server.folder), "database": "strict1"}
                    measure = partial(pgbench, server, "token", CALLERS * CONNECTIONS, seconds, **where)
                    bare.append(await asyncio.to_thread(measure))
    if bare:
        show(BARE, bare, "1/s")
    for each in served:
        names = dict.fromkeys((label(1), each.partition(", PostgreSQL")[0]))
        others = {name: rates[name] for name in names if name != each}
        show(each, rates[each], "requests/s", others | ({BARE: bare} if "PostgreSQL" in each else {}))
        show(f"{each}: time", times[each], "us")
    if server is None:
        show_failure(label(1, "PostgreSQL"), f"this machine lacks {postgres.LACKS}")


def label(workers: int, store: str = "") -> str:
    return f"serve, {workers} workers" + (f", {store}" if store else "")


async def on_postgres(
    stack: AsyncExitStack, folder: Path, workers: int, server: postgres.Server
) -> dict[str, tuple[int, str]]:
    """Start a server for each consistency, each with a database of its own."""
    served = dict[str, tuple[int, str]]()
    for store, consistency in STORES.items():
        database = f"{consistency}{workers}"
        server.run(f"create database {database}")
        os.environ[ENV], place = server.url(database).reveal(), folder / database
        served[label(workers, store)] = await started(stack, place, workers, ENV, consistency)
    return served


async def started(
    stack: AsyncExitStack, folder: Path, workers: int, variable: str = "", consistency: str = "strict"
) -> tuple[int, str]:
    """Return the port of a server that runs until the stack ends, and a turn's token."""
    port = free_port()
    await install(folder, port, variable, consistency)
    await stack.enter_async_context(serving(folder, port, workers))
    return port, await turn_token(folder)


if __name__ == "__main__":
    asyncio.run(main(quick=parser().parse_args().quick))
