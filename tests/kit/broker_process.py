"""A broker whose relay and sweeper run when the test says so, on a file layer of the test's choice."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from oauthbroker.apps import Bundle, OAuthApp
from oauthbroker.audit import AuditList
from oauthbroker.broker import Broker
from oauthbroker.flows.exchange import PROVIDER_CALLS
from oauthbroker.records import AuthSession, Grant
from oauthbroker.repository import KINDS, LEASES, Repository
from oauthbroker.settings import Limits, Settings
from oauthbroker.store.file import FileStore
from oauthbroker.store.fs import Fs
from oauthbroker.store.keys import Keyring
from oauthbroker.testing import Browser, TestClock
from oauthbroker.web.access_log import json_log
from oauthbroker.wiring.broker import build
from oauthbroker.wiring.house import House
from oauthbroker.wiring.rooms import Given
from tests.house import BASE

AFTER_CLAIMS = PROVIDER_CALLS * Limits().provider_seconds + 1
CHANGING = frozenset({"make_folder", "create_file", "write", "reserve", "fsync", "rename", "unlink"})
"""The calls that change a disk: a crash before any other one leaves the same disk as a crash before the next of these."""


@dataclass
class Heard:
    """What a consumer got, and what it surely acknowledged (an ack that was cut off may count or not)."""

    received: list[str] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)

    def and_then(self, later: Heard) -> Heard:
        return Heard([*self.received, *later.received], self.acknowledged | later.acknowledged)


@dataclass
class Process:
    """One broker process, played in this one: `die` leaves everything as it lies."""

    house: House
    store: FileStore
    clock: TestClock
    heard: Heard = field(default_factory=Heard)

    @classmethod
    def start(
        cls, root: Path, ring: Keyring, apps: Iterable[OAuthApp], at: datetime | None = None, fs: Fs | None = None
    ) -> Process:
        clock = TestClock(at)
        return cls.on(FileStore.open(root, ring, kinds=KINDS, lease_kinds=LEASES, clock=clock, fs=fs), apps, clock)

    @classmethod
    def on(cls, store: FileStore, apps: Iterable[OAuthApp], clock: TestClock) -> Process:
        settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}))
        bundle = Bundle(settings, {app.name: app for app in apps})
        log = json_log(io.StringIO(), clock)
        house = build(Given(bundle, Repository(store), store.mac, clock, AuditList(), log))
        return cls(house, store, clock)

    @property
    def broker(self) -> Broker:
        return self.house.broker

    def browser(self) -> Browser:
        return Browser(apps={BASE: self.broker.web})

    async def tend(self, after: float = 0) -> None:
        """What the background does every now and then: first the sweeper, then the relay."""
        self.clock.advance(after)
        await self.house.flows.sweep.once()
        await self.house.relay.once()
        await self.house.relay.tidy()

    async def drain(self, agent: str = "planner") -> None:
        """Receives every event there is and acknowledges one by one."""
        while (delivery := await self.broker.events.lease(agent)) is not None:
            self.heard.received.append(delivery.id)
            if await delivery.ack():
                self.heard.acknowledged.add(delivery.id)

    async def session(self, session_id: str) -> AuthSession | None:
        held = await Repository(self.store).session(session_id.removeprefix("as-"))
        return None if held is None else held.record

    async def grant(self, app: str, subject: str) -> Grant | None:
        held = await Repository(self.store).grant(app, subject)
        return None if held is None else held.record

    async def counts(self, kinds: Sequence[str] = ("due", "events", "sessions")) -> dict[str, int]:
        return {kind: await self.store.count(kind) for kind in kinds}

    async def die(self) -> None:
        """Gives back what the operating system would take: descriptors, threads, connections."""
        await self.house.close()
        await self.store.close()
