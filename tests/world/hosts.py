"""The brokers of a world. Each is a process that can be killed, frozen, thawed and started again."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from datetime import datetime
from functools import cache
from typing import Any, Final

from oauthbroker.audit import AuditEntry
from oauthbroker.audit.memory import AuditList
from oauthbroker.broker import Broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Client, Endpoints, IdentityRule, Owner, Redirect
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.settings import Consistency, Limits, Settings
from oauthbroker.observability.logging import json_log
from oauthbroker.repository.repository import DEGRADED_SECONDS, KINDS, LEASES
from oauthbroker.store.keys.rotation import LEASE_KIND, KeyRotation
from oauthbroker.store.postgres.connection_pool import ConnectionPool
from oauthbroker.store.postgres.feed import Feed
from oauthbroker.store.postgres.postgres_store import PostgresStore
from oauthbroker.wiring.opening import open_running
from oauthbroker.wiring.parts import Parts
from oauthbroker.wiring.running import Running
from oauthbroker.wiring.storage import OpenedStore
from tests.world.database import Database
from tests.world.keys import KeyringRow
from tests.world.loop import Process, WorldLoop, current_process
from tests.world.provider import HOME

BASE: Final = "https://broker.example"
APPS: Final = ("mail", "chat")
RESTART_SECONDS: Final = 2.0


@cache
def bundle(consistency: Consistency, title: str = "") -> Bundle:
    """Return the configuration of all brokers. A `title` changes the apps, and not what their grants need."""
    limits = Limits(sweep_seconds=30, session_seconds=300, rejections_per_hour=1000, queue_lease_seconds=20)
    settings = Settings(public_base_url=BASE, limits=limits, store_consistency=consistency)
    return Bundle(settings, {name: _app(name, title) for name in APPS})


def _app(name: str, title: str) -> App:
    return App(
        name=name,
        provider="oidc",
        flow="authorizationCode",
        subject_mode="user",
        client=Client(name, Secret("the secret of a client")),
        endpoints=Endpoints(
            authorization_url=f"{HOME}/authorize", token_url=f"{HOME}/token", revoke_url=f"{HOME}/revoke"
        ),
        scopes=("read",),
        redirect=Redirect(f"/oauth/callback/{name}", BASE),
        owner=Owner(user_identity=IdentityRule("tokenResponse", "idp:user:{sub}")),
        title=title or name,
        revocation=Revocation(reach="token"),
    )


class WorldAudit(AuditList):
    """The audit log of one process; `tell` gets each entry."""

    def __init__(self, tell: Callable[[AuditEntry], None]) -> None:
        super().__init__()
        self._tell = tell

    def write(self, entry: AuditEntry, at: datetime) -> None:
        super().write(entry, at)
        self._tell(entry)


class NoAge:
    """In place of `StoreAge`, which keeps a file on each host."""

    async def grow(self) -> None:
        """Do nothing."""


class Host:
    """One place where brokers run, one after another."""

    def __init__(
        self,
        name: str,
        loop: WorldLoop,
        database: Database,
        consistency: Consistency,
        tell: Callable[[AuditEntry], None],
    ) -> None:
        self.name, self._loop, self._database, self.consistency, self._tell = name, loop, database, consistency, tell
        self.log = io.StringIO()
        self.process: Process | None = None
        self.running: Running | None = None
        self.rotation: KeyRotation | None = None
        self._context: Context | None = None
        self._stop = asyncio.Event()

    @property
    def up(self) -> bool:
        return self.running is not None and self.process is not None and self.process.runs

    @property
    def parts(self) -> Parts:
        assert self.running is not None
        return self.running.parts

    @property
    def broker(self) -> Broker:
        assert self.running is not None
        return self.running.broker

    def start(self) -> asyncio.Task[None]:
        self._stop = asyncio.Event()
        self.process, task = self._loop.begin(self.name, self._live)
        return task

    async def stop(self) -> None:
        """End the broker in order."""
        self._stop.set()

    def kill(self) -> None:
        """Let its tasks and its memory vanish. Its requests are on their way."""
        assert self.process is not None
        self.process.runs, self.process.killed, self.running = False, True, None
        for session in [each for each in self._database.sessions.values() if each.host == self.name]:
            self._database.lose(session)

    def freeze(self) -> None:
        assert self.process is not None
        self.process.runs = False

    def thaw(self) -> None:
        if self.process is not None and not self.process.killed:
            self.process.runs = True

    def task(self, work: Callable[[], Awaitable[Any]]) -> asyncio.Task[Any]:
        """Begin work in this process. It never ends if the process is killed."""
        assert self._context is not None
        task = self._loop.create_task(_awaited(work), context=self._context.run(copy_context))
        task.add_done_callback(lambda over: over.cancelled() or over.exception())  # its caller may have gone
        return task

    async def _live(self) -> None:
        """Run a broker. One that cannot start is started again, as by any service manager."""
        self._context = copy_context()
        while not self._stop.is_set():
            with suppress(BrokerError):
                await self._run(SystemClock())
            await asyncio.sleep(RESTART_SECONDS)

    async def _run(self, clock: SystemClock) -> None:
        async with open_running(
            bundle(self.consistency),
            env={},
            clock=clock,
            audit=WorldAudit(self._tell),
            log=json_log(self.log, clock),
        ) as running:
            self.running = running
            await self._stop.wait()
            self.running = None

    async def open_store(self, *_: Any, **__: Any) -> OpenedStore:
        """Stand in for `oauthbroker.wiring.storage.open_store`."""
        home, url = KeyringRow(self._database, self.name), Secret(f"world://{self.name}")
        store = PostgresStore(
            ConnectionPool(url),
            home.load(),
            kinds=KINDS,
            lease_kinds=(*LEASES, LEASE_KIND),
            feed=Feed(url, trusted=self.consistency != "strict"),
            degraded_seconds=DEGRADED_SECONDS if self.consistency == "available" else 0.0,
        )
        self.rotation = KeyRotation(store, home, SystemClock())
        age: Any = NoAge()
        return OpenedStore(store, self.rotation, age)


async def _awaited(work: Callable[[], Awaitable[Any]]) -> Any:
    return await work()


def opener(hosts: list[Host]) -> Callable[..., Awaitable[OpenedStore]]:
    """Return what opens the store of the process that asks."""
    by_name = {host.name: host for host in hosts}

    async def open_store(*_: Any, **__: Any) -> OpenedStore:
        return await by_name[current_process().name].open_store()

    return open_store
