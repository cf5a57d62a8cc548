"""Broker processes of `rotation.Brokers`: forked like the storm's, opened on the files that people write.

First line on stdin: the folder of the bundle, its store and its key, and the environment, as JSON. Then
`ask <app> <tasks>` forks a broker that waits for `go` and asks for alice's token with so many tasks at once;
`live` forks one that asks for every grant of alice and bob without end.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from oauthbroker import open_broker
from oauthbroker.broker import Broker
from oauthbroker.config import load
from oauthbroker.core.clock import SystemClock
from oauthbroker.model.token_results import TokenResult
from oauthbroker.observability.logging import json_log
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.keys.key_encryption_keys import FileKek
from oauthbroker.store.keys.keyring_home import KeyringFile
from oauthbroker.store.memory import MemoryStore
from tests.e2e.bundle import turn
from tests.faults.broker_worker import say
from tests.faults.storm_worker import PACE, Nursery, TellingStore, fingerprint, main, word_of

PEOPLE = ("alice", "bob")


async def ask(broker: Broker, app: str, user: str) -> TokenResult:
    return await broker.oauth(turn(user), f"Tool/{app}-reader").get_access_token(app)


class Brokers(Nursery):
    """A process forked here reads the bundle again, as any process of a deployment would."""

    def __init__(self, orders: dict[str, Any]) -> None:
        super().__init__({**orders, "endpoints": {"issuer": ""}, "secrets": {}})
        self._folder = Path(orders["folder"])
        self._names = list(load(self._folder / "config").apps)

    async def warm_up(self) -> None:
        async with self._broker(MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=SystemClock())) as broker:
            await ask(broker, self._names[0], PEOPLE[0])

    def _obey(self, words: list[str]) -> None:
        match words:
            case ["ask", app, tasks]:
                self._fork(lambda: self._ask_at_once(app, int(tasks)))
            case _:
                super()._obey(words)

    @asynccontextmanager
    async def _broker(self, store: MemoryStore | None = None) -> AsyncIterator[Broker]:
        """On the files of the scene. Prints a line once it is up, and one for each refresh record that its store seals."""
        log = json_log(io.StringIO(), SystemClock())
        there = store or self._telling_store()
        async with open_broker(self._folder / "config", env=self.orders["env"], store=there, log=log) as broker:
            yield broker

    def _telling_store(self) -> FileStore:
        ring = KeyringFile(
            self._folder / "store" / "data" / "keyring", FileKek.open(self._folder / "keys/broker.kek")
        ).load()
        return TellingStore(self._folder / "store", ring, kinds=KINDS, lease_kinds=LEASES, clock=SystemClock())

    async def _ask_at_once(self, app: str, tasks: int) -> None:
        async with self._broker() as broker:
            say("up", os.getpid())
            await _opened(self._gate)
            begin = time.monotonic()

            async def one() -> None:
                result = await ask(broker, app, PEOPLE[0])
                say("told", os.getpid(), word_of(result), fingerprint(result), round(time.monotonic() - begin, 3))

            await asyncio.gather(*(one() for _ in range(tasks)))

    async def live(self) -> None:
        dice = random.Random(self.seed)
        async with self._broker() as broker:
            say("up", os.getpid())

            async def go_on(app: str, number: int) -> None:
                while True:
                    result = await ask(broker, app, PEOPLE[number])
                    say("told", os.getpid(), word_of(result), app, number)
                    await asyncio.sleep(dice.uniform(*PACE))

            await asyncio.gather(*(go_on(app, number) for app in self._names for number in range(len(PEOPLE))))


async def _opened(gate: int) -> None:
    opened, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(gate, opened.set)
    await opened.wait()
    loop.remove_reader(gate)


if __name__ == "__main__":
    main(Brokers)
