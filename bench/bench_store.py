"""What a durable write costs through the store, against the bare system calls in the same run, pair by pair."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from bench.figures import parser, show, timed
from oauthbroker.testing.stores import open_file_store

BODY = b"x" * 1500
TOGETHER = 5


def replace_durably(folder: Path, number: int) -> None:
    """Write, fsync, rename, fsync the folder: the least a durable replacement can be."""
    temporary, final = folder / f".{number}.tmp", folder / str(number)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(descriptor, BODY)
    os.fsync(descriptor)
    os.close(descriptor)
    temporary.replace(final)
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


async def main(*, quick: bool) -> None:
    rounds = 20 if quick else 300
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        bare = root / "bare"
        bare.mkdir()
        store = open_file_store(root)
        loop = asyncio.get_running_loop()

        async def bare_write(number: int) -> None:
            await loop.run_in_executor(None, replace_durably, bare, number)

        async def put(number: int) -> None:
            await store.put(store.key("grants", "app", str(number)), BODY, expect=0)

        alone: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds):
            alone[0].append(await timed(bare_write(number)))
            alone[1].append(await timed(put(number)))
        show("write: bare durable replacement", alone[0], "us")
        show("write: store.put, lock included", alone[1], "us", {"write: bare durable replacement": alone[0]})

        together: tuple[list[float], list[float]] = ([], [])
        for each in range(1, TOGETHER + 1):
            some = range(each * rounds, (each + 1) * rounds)
            together[0].append(rounds / await timed(asyncio.gather(*map(bare_write, some)), 1))
            together[1].append(rounds / await timed(asyncio.gather(*map(put, some)), 1))
        show("together: bare", together[0], "1/s")
        show("together: store.put", together[1], "1/s", {"together: bare": together[0]})
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(quick=parser().parse_args().quick))
