"""A process that takes leases and removes the files of free ones, all the time, until it is killed.

Arguments: the folder of the store, and the mistake to make, if any. Inside a lease it locks a file that is never removed:
a line `two holders` says that another process had it. A line `taken` comes for each lease.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from oauthbroker.repository.repository import LEASES_OF_GRANTS
from oauthbroker.store.file import file_store, locks
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing.stores import open_file_store
from tests.faults.broker_worker import say

NAMES = "abc"
HESITATES, HOLDS, RESTS = 0.004, 0.002, 0.02  # seconds


class Hesitant(Fs):
    """Waits between opening a lock's file and locking it: there another process may remove the file."""

    def try_lock(self, fd: int) -> bool:
        time.sleep(random.random() * HESITATES)
        return super().try_lock(fd)

    def unlink(self, *name: Any, **folder: Any) -> None:
        super().unlink(*name, **folder)
        say("removed", *name)


async def take(store: FileStore, name: str, proof: int) -> None:
    while True:
        async with store.lease(store.key("provider", name), wait=60):
            try:
                fcntl.flock(proof, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("two holders", name)
                continue
            await asyncio.sleep(HOLDS)
            fcntl.flock(proof, fcntl.LOCK_UN)
            say("taken", name)
        await asyncio.sleep(random.random() * RESTS)  # nothing is removed that a task of this process waits for


async def tidy(store: FileStore) -> None:
    while True:
        await store.tidy(LEASES_OF_GRANTS)
        await asyncio.sleep(0.0005)


async def main(folder: Path, mistake: str) -> None:
    # opened first, so that the kernel frees them first when it ends this process
    proofs = {name: os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) for name in NAMES}
    locks._YOUNG, file_store._LOCKS_PAUSE = -60, 0
    if mistake == "any name":
        locks.HeldLock.still_named = lambda self: True  # type: ignore[method-assign]
    store = open_file_store(folder, fs=Hesitant())
    await asyncio.gather(*(take(store, name, proof) for name, proof in proofs.items()), tidy(store))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
