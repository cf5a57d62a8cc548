"""Many processes at once: on one expired grant (the provider takes 50 ms), and on warm calls of one grant.

Perfect is one request to the provider, and the last process has its token when the first one has it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.children import Child, child
from bench.figures import parser, show
from bench.ours import fill, with_token
from bench.slow_server import SlowServer, slow_server
from oauthbroker.repository.repository import Repository
from oauthbroker.testing.stores import open_file_store

PROVIDER_SECONDS = 0.05
SOON = 0.3
WARM = "idp:user:0"


async def asked(children: Sequence[Child], **request: object) -> list[dict[str, float]]:
    """Ask all of them at once; the loop stays free for the provider."""
    for each in children:
        each.tell(**request)
    return [await asyncio.to_thread(each.answer) for each in children]


async def expired(repository: Repository, server: SlowServer, children: Sequence[Child], rounds: int) -> None:
    """Print when the last process had its token, and how often the provider was asked."""
    last, requests = list[float](), list[float]()
    for number in range(rounds):
        held = with_token(server.port, f"idp:user:expired-{len(children)}-{number}", server.give(), -60)
        await repository.save_grant(held, expect=0)
        before = server.refreshes
        answers = await asked(children, do="at", subject=held.subject, at=time.monotonic() + SOON)
        last.append(max(answer["ms"] for answer in answers))
        requests.append(server.refreshes - before)
    show(f"expired grant, {len(children)} processes: the last has its token", last, "ms")
    show(f"expired grant, {len(children)} processes: requests to the provider", requests, "")


async def warm(children: Sequence[Child], rounds: int, seconds: float) -> tuple[list[float], list[float]]:
    """Return calls a second of all together and the slowest process's time of a call, round by round."""
    rates, times = list[float](), list[float]()
    for _ in range(rounds):
        at = time.monotonic() + SOON
        answers = await asked(children, do="busy", subject=WARM, at=at, until=at + seconds)
        rates.append(sum(answer["calls"] for answer in answers) / seconds)
        times.append(max(answer["us"] for answer in answers))
    return rates, times


async def measure(folder: Path, sizes: Sequence[int], rounds: int, seconds: float) -> None:
    async with slow_server(PROVIDER_SECONDS) as server:
        await fill(folder, range(1), server.port)
        store = open_file_store(folder)
        with ExitStack() as stack:
            children = [
                stack.enter_context(child("bench.ours", str(folder), str(server.port))) for _ in range(sizes[-1])
            ]
            await asked(children, do="open")
            for size in sizes:
                await expired(Repository(store), server, children[:size], rounds)
            alone: list[float] = []
            for size in sizes:
                rates, times = await warm(children[:size], rounds, seconds)
                alone = alone or rates
                beside = {f"warm calls, {sizes[0]} processes": alone} if rates is not alone else None
                show(f"warm calls, {size} processes", rates, "1/s", beside)
                show(f"warm calls, {size} processes: time of the slowest", times, "us")
        await store.close()


async def main(*, quick: bool) -> None:
    sizes, rounds, seconds = ((1, 2, 4), 2, 0.2) if quick else ((1, 2, 8, 32), 7, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        await measure(Path(folder), sizes, rounds, seconds)


if __name__ == "__main__":
    asyncio.run(main(quick=parser().parse_args().quick))
