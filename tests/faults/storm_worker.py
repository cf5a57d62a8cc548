"""Broker processes of the storm: a nursery that imports everything once and forks brokers, many at a time.

First line on its stdin: where the store and the provider are, as JSON. Then `ask <tasks>` forks a broker that waits
for `go` and asks for one grant with so many tasks at once; `live` forks one that asks for every grant without end.
What happens is said line by line, each written at once, so that a line that was read is a fact.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import random
import select
import signal
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from oauthbroker import open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.broker import Broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.model.apps import App
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
from oauthbroker.observability.logging import json_log
from oauthbroker.records import Grant
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Entry, Key, Store
from oauthbroker.store.keys.key_encryption_keys import FileKek
from oauthbroker.store.keys.keyring_home import KeyringFile
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider
from tests.faults.broker_worker import Elsewhere, say, subject_of
from tests.kit.running_broker import BASE, turn, user_app

PACE = (0.1, 0.6)  # seconds between two questions of one task


class World(Elsewhere):
    """The provider's process, as far as several apps and their people need to know it."""

    def __init__(self, orders: dict[str, Any]) -> None:
        super().__init__(orders["endpoints"], "")
        self._secrets: dict[str, str] = orders["secrets"]

    def client(self, client_id: str) -> Any:
        self._secret = self._secrets[client_id]
        return super().client(client_id)

    def apps(self) -> dict[str, App]:
        names = [client_id.removeprefix("client-") for client_id in self._secrets]
        return {name: user_app(cast("IdentityProvider", self), name) for name in names}


class Telling:
    """Prints the refresh records that were sealed, once they are durable: before an intent's token can have been sent."""

    tell: Callable[..., None] = staticmethod(say)

    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        entry: Entry = await super().put(key, body, **more)  # type: ignore[misc]  # of the store beside it
        if key.kind == "grants":
            grant = Grant.from_plaintext(body)
            if (intent := grant.refresh_state.intent) is not None:
                self.tell("intent", os.getpid(), grant.app, intent.lost)
            if grant.refresh_state.ended and grant.token is not None:  # its later writes and its tombstone say so too
                token = digest(grant.token.access_token.reveal())
                self.tell("ended", os.getpid(), grant.app, grant.refresh_state.ended, token)
        return entry


class TellingStore(Telling, FileStore):
    """A store in files that tells."""


def telling_store(folder: Path) -> TellingStore:
    """The store that `tests.kit.running_broker.file_store` made."""
    ring = KeyringFile(folder / "store" / "data" / "keyring", FileKek.open(folder / "kek")).load()
    return TellingStore(folder / "store", ring, kinds=KINDS, lease_kinds=LEASES, clock=SystemClock())


@asynccontextmanager
async def broker_on(store: Store, apps: dict[str, App], *, background: bool = True) -> AsyncIterator[Broker]:
    settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), limits=Limits())
    log = json_log(io.StringIO(), SystemClock())
    bundle = Bundle(settings, apps)
    async with open_broker(bundle, env={}, store=store, audit=AuditList(), log=log, background=background) as broker:
        yield broker


async def ask(broker: Broker, app: str, person: int) -> TokenResult:
    return await broker.oauth(turn(subject_of(person))).get_access_token(app)


def word_of(result: TokenResult) -> str:
    """An answer in one word, without its token."""
    match result:
        case Ready(degraded=degraded):
            return "degraded" if degraded else "ready"
        case AuthorizationRequired(reason=reason):
            return f"link:{reason}"
        case Failed(code=code):
            return f"later:{code.value}" if result.retryable else f"failed:{code.value}"


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:16]


def fingerprint(result: TokenResult) -> str:
    return digest(result.access_token.reveal()) if isinstance(result, Ready) else "-"


async def ask_at_once(store: Store, apps: dict[str, App], tasks: int, gate: int) -> None:
    """One of the storm's processes: everything is open before the first request."""
    async with broker_on(store, apps) as broker:
        say("up", os.getpid())
        opened = asyncio.Event()
        asyncio.get_running_loop().add_reader(gate, opened.set)
        await opened.wait()
        asyncio.get_running_loop().remove_reader(gate)
        begin = time.monotonic()

        async def one() -> None:
            result = await ask(broker, next(iter(apps)), 0)
            say("told", os.getpid(), word_of(result), fingerprint(result), round(time.monotonic() - begin, 3))

        await asyncio.gather(*(one() for _ in range(tasks)))
    say("done", os.getpid())


async def live(store: Store, apps: dict[str, App], people: int, seed: str) -> None:
    """Asks for every grant, again and again, until it is killed."""
    dice = random.Random(seed)
    async with broker_on(store, apps) as broker:
        say("up", os.getpid())

        async def go_on(app: str, person: int) -> None:
            while True:
                result = await ask(broker, app, person)
                say("told", os.getpid(), word_of(result), app, person)
                await asyncio.sleep(dice.uniform(*PACE))

        await asyncio.gather(*(go_on(app, person) for app in apps for person in range(people)))


class Nursery:
    """Forks on command, reports the dead, and takes its children along when it ends."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self.orders, self.world = orders, World(orders)
        self.apps = self.world.apps()
        self._gate, self._gate_end = os.pipe()
        self._children: set[int] = set()
        self._forked = 0

    @property
    def seed(self) -> str:
        """The seed of a child: of the run, and how many children the nursery had before."""
        return f"{self.orders.get('seed', 0)}/{self._forked}"

    async def warm_up(self) -> None:
        """One question to a store in memory, so that late imports happen once and not in every child."""
        async with broker_on(MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=SystemClock()), self.apps) as broker:
            await ask(broker, next(iter(self.apps)), 0)

    def run(self) -> None:
        """Until stdin ends."""
        left = b""
        while True:
            if select.select([0], [], [], 0.005)[0]:
                data = os.read(0, 65536)
                if not data:
                    break
                *lines, left = (left + data).split(b"\n")
                for line in lines:
                    self._obey(line.decode().split())
            self._bury()
        for child in self._children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def store(self) -> Store:
        """Open the store, in a child."""
        return telling_store(Path(self.orders["folder"]))

    async def live(self) -> None:
        """Live until the child is killed."""
        await live(self.store(), self.apps, self.orders["people"], self.seed)

    def _obey(self, words: list[str]) -> None:
        match words:
            case ["ask", tasks]:
                self._fork(lambda: ask_at_once(self.store(), self.apps, int(tasks), self._gate))
            case ["live"]:
                self._fork(self.live)
            case ["go"]:
                os.close(self._gate_end)
            case _:
                raise ValueError(words)

    def _fork(self, life: Any) -> None:
        self._forked += 1
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(self._gate_end)
                os.close(0)
                asyncio.run(life())
                code = 0
            except Exception:  # noqa: BLE001  (the process ends without showing it)
                traceback.print_exc()
            finally:
                os._exit(code)
        self._children.add(child)
        say("born", child)

    def _bury(self) -> None:
        for child in list(self._children):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                self._children.discard(pid)
                say("dead", pid, os.waitstatus_to_exitcode(status))


def main(kind: type[Nursery] = Nursery) -> None:
    line = b""
    while not line.endswith(b"\n"):  # not by sys.stdin, which reads on into the orders
        line += os.read(0, 1)
    nursery = kind(json.loads(line))
    asyncio.run(nursery.warm_up())
    nursery.run()


if __name__ == "__main__":
    main()
