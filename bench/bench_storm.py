"""2,000 grants whose tokens have ended, and a caller for each that asks until it has one: at a provider that takes 200
ms, and at one that also answers 429 to more than 50 requests a second.

An app has 32 places for calls, so 160 refreshes a second are the most that such a provider allows.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from bench.bench_contention import asked
from bench.children import child
from bench.figures import parser, show
from bench.ours import subject, with_token
from bench.slow_server import SlowServer, slow_server
from oauthbroker.repository.repository import Repository
from oauthbroker.testing.stores import open_file_store

TOKEN_SECONDS = 0.2
PROVIDERS = {"without a limit": 0, "50 a second": 50}
AT_ONCE = 16


async def expire(folder: Path, server: SlowServer, grants: int) -> None:
    """Store grants whose token has ended."""
    store, left = open_file_store(folder), iter(range(grants))
    repository = Repository(store)

    async def some() -> None:
        for number in left:
            await repository.save_grant(with_token(server.port, subject(number), server.give(), -60.0), expect=0)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    await store.close()


async def measure(name: str, per_second: int, grants: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        async with slow_server(TOKEN_SECONDS, per_second=per_second) as server:
            await expire(Path(place), server, grants)
            with child("bench.ours", place, str(server.port)) as process:
                await asked([process], do="open")
                [storm] = await asked([process], do="storm", grants=grants)
    show(f"storm, {name}: refreshes", [grants / storm["seconds"]], "1/s", grants=grants)
    show(f"storm, {name}: requests for a grant", [(server.refreshes + server.refused) / grants], "", grants=grants)
    show(f"storm, {name}: time to a token, 99 of 100", [storm["p99"]], "ms", grants=grants)


async def main(*, quick: bool) -> None:
    for name, per_second in PROVIDERS.items():
        await measure(name, per_second, 100 if quick else 2_000)


if __name__ == "__main__":
    asyncio.run(main(quick=parser().parse_args().quick))
