"""`oauthbroker serve` with one worker and with two: requests for a ready token, by two callers of 16 connections each.

The callers share the machine with the servers: on two cores a second worker has half a core at most.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from bench.bench_api import token_request
from bench.children import ROOT
from bench.figures import parser, show
from bench.installation import free_port, install, serving, turn_token

CALLERS, CONNECTIONS = 2, 16


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
    with tempfile.TemporaryDirectory() as name:
        async with AsyncExitStack() as stack:
            served = dict[int, tuple[int, str]]()
            for workers in (1, 2):
                folder, port = Path(name, str(workers)), free_port()
                await install(folder, port)
                await stack.enter_async_context(serving(folder, port, workers))
                served[workers] = port, await turn_token(folder)
            rates: dict[int, list[float]] = {workers: [] for workers in served}
            times: dict[int, list[float]] = {workers: [] for workers in served}
            for _ in range(rounds):
                for workers, (port, token) in served.items():
                    rate, time = await load(port, token, seconds)
                    rates[workers].append(rate)
                    times[workers].append(time)
    for workers in served:
        one = {"serve, 1 workers": rates[1]} if workers > 1 else None
        show(f"serve, {workers} workers", rates[workers], "requests/s", one)
        show(f"serve, {workers} workers: time", times[workers], "us")


if __name__ == "__main__":
    asyncio.run(main(quick=parser().parse_args().quick))
