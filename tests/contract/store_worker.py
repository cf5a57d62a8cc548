"""Another broker process on the same store, driven by a test: prints `ready`, then obeys and answers line by line."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from oauthbroker.core.secret import Secret
from oauthbroker.store.format.port import Conflict, Store
from oauthbroker.testing.stores import open_file_store


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def put(store: Store, name: str, expect: str, body: str) -> None:
    """One write, and whether it won."""
    try:
        await store.put(store.key("grants", name), body.encode(), expect=int(expect))
        say("won")
    except Conflict:
        say("conflict")


async def count_up(store: Store, name: str, times: str) -> None:
    """Adds one so many times, reading again after each Conflict."""
    key, left = store.key("grants", name), int(times)
    while left:
        entry = await store.get(key)
        value, generation = (int(entry.body), entry.generation) if entry else (0, 0)
        try:
            await store.put(key, str(value + 1).encode(), expect=generation)
            left -= 1
        except Conflict:
            await asyncio.sleep(0)
    say("done")


async def be_alone(store: Store, name: str, times: str, marker: str) -> None:
    """Takes the lease so many times; inside, makes a file that must not exist yet."""
    for _ in range(int(times)):
        async with store.lease(store.key("provider", name), wait=20):
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            await asyncio.sleep(0.001)
            os.unlink(marker)  # noqa: PTH108 - as plain as its counterpart
    say("done")


async def hold(store: Store, name: str) -> None:
    """Takes the lease and keeps it until the process ends."""
    async with store.lease(store.key("provider", name), wait=20):
        say("held")
        await asyncio.to_thread(sys.stdin.readline)


async def hold_and_fork(store: Store, name: str) -> None:
    """Takes the lease, forks a child that lives on, and waits to be killed."""
    async with store.lease(store.key("provider", name), wait=20):
        child = os.fork()
        if child == 0:
            os.read(os.pipe()[0], 1)  # never comes: the test ends this child
        say(f"held {child}")
        await asyncio.to_thread(sys.stdin.readline)


async def write_on(store: Store, name: str) -> None:
    """Creates, updates and removes one entry for ever, printing each step before it happens and after it is acknowledged."""
    key = store.key("grants", name)
    while True:
        for generation in range(3):
            say(f"try {generation + 1}")
            await store.put(key, f"body {generation + 1}".encode(), expect=generation)
            say(f"ack {generation + 1}")
        say("try 0")
        await store.delete(key, expect=3)
        say("ack 0")


COMMANDS: dict[str, Callable[..., Awaitable[None]]] = {
    "put": put,
    "count_up": count_up,
    "be_alone": be_alone,
    "hold": hold,
    "hold_and_fork": hold_and_fork,
    "write_on": write_on,
}


def opened(folder: Path, url: str) -> Store:
    if not url:
        return open_file_store(folder)
    from tests.kit.postgres import open_postgres_store  # workers of the file store start without a driver

    return open_postgres_store(Secret(url), folder)


async def main(folder: str, url: str = "") -> None:
    store = opened(Path(folder), url)
    say("ready")
    while order := (await asyncio.to_thread(sys.stdin.readline)).split():
        await COMMANDS[order[0]](store, *order[1:])
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
