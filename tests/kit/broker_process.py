"""A broker whose relay and sweeper run when the test says so, on a file layer of the test's choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from oauthbroker.audit.port import AuditWriter
from oauthbroker.authorization.code_exchange import PROVIDER_CALLS
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import App
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.records import AuthSession, Grant
from oauthbroker.repository.repository import KINDS, LEASES, PAIR_WAIT_SECONDS, Repository
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing import Browser, IdentityProvider, TestClock, leave
from oauthbroker.wiring.running import Running
from tests.kit.running_broker import ALICE, BASE, TEAM, turn
from tests.kit.running_on import HasRunning, running_on

AFTER_CLAIMS = PROVIDER_CALLS * Limits().provider_seconds + PAIR_WAIT_SECONDS + 1
CHANGING = frozenset({"make_folder", "create_file", "write", "reserve", "fsync", "rename", "link", "unlink"})
"""The calls that change a disk: a crash before any other one leaves the same disk as a crash before the next of these."""


@dataclass
class Heard:
    """The events a consumer got, and those it surely acknowledged (an ack that was cut off may count or not)."""

    received: list[str] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)

    def and_then(self, later: Heard) -> Heard:
        return Heard([*self.received, *later.received], self.acknowledged | later.acknowledged)


@dataclass
class Process(HasRunning):
    """One broker process, played in this one: `die` leaves everything as it lies."""

    running: Running
    store: FileStore
    clock: TestClock
    heard: Heard = field(default_factory=Heard)

    @classmethod
    def start(
        cls, root: Path, ring: Keyring, apps: Iterable[App], at: datetime | None = None, fs: Fs | None = None
    ) -> Process:
        clock = TestClock(at)
        return cls.on(FileStore(root, ring, kinds=KINDS, lease_kinds=LEASES, clock=clock, fs=fs), apps, clock)

    @classmethod
    def on(cls, store: FileStore, apps: Iterable[App], clock: TestClock, audit: AuditWriter | None = None) -> Process:
        settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}))
        bundle = Bundle(settings, {app.name: app for app in apps})
        return cls(running_on(store, bundle, clock, audit=audit), store, clock)

    def browser(self) -> Browser:
        return Browser(apps={BASE: self.broker.asgi.app})

    async def tend(self, after: float = 0) -> None:
        """What the background does every now and then: first the sweeper, then the relay."""
        self.clock.advance(after)
        await self.parts.sweep.once()
        await self.parts.relay.once()
        await self.parts.queues.tidy()

    async def drain(self, agent: str = "planner") -> None:
        """Receives every event there is and acknowledges one by one."""
        while (delivery := await self.broker.events.lease(agent)) is not None:
            self.heard.received.append(delivery.id)
            if await delivery.ack():
                self.heard.acknowledged.add(delivery.id)

    async def session(self, session_id: str) -> AuthSession | None:
        versioned = await Repository(self.store).session(session_id.removeprefix("as-"))
        return None if versioned is None else versioned.record

    async def grant(self, app: str, subject: str) -> Grant | None:
        versioned = await Repository(self.store).grant(GrantKey(app, subject))
        return None if versioned is None else versioned.record

    async def counts(self, kinds: Sequence[str] = ("due", "events", "sessions")) -> dict[str, int]:
        return {kind: await self.store.count(kind) for kind in kinds}

    async def die(self) -> None:
        """Gives back what the operating system would take: descriptors, threads, connections."""
        await self.running.close()
        await self.store.close()


async def ask(
    process: Process, app: str = "mail", *, user: str = ALICE, team: str = TEAM, instance: str = "thread", **more: Any
) -> Any:
    return await process.broker.oauth(turn(user, team, instance=instance)).get_access_token(app, **more)


async def complete(
    process: Process, idp: IdentityProvider, asked: AuthorizationRequired, account: str = "alice", *, deny: bool = False
) -> int:
    """From the link to the last page; its status."""
    browser = process.browser()
    page = await leave(browser, asked.authorization_url)
    assert page.next_url is not None
    return await visit_callback(browser, await idp.agree(page.next_url, account, browser=browser, deny=deny))


async def visit_callback(browser: Browser, callback: str) -> int:
    page = await browser.follow(callback)
    while page.location is not None:
        page = await browser.follow()
    return page.status


def granted_event_ids(*asked: AuthorizationRequired) -> list[str]:
    return [f"evt-{each.auth_session_id}-auth.granted" for each in asked]


async def outcome(process: Process, asked: AuthorizationRequired) -> tuple[str, Code | None]:
    """The state of the session, and why it ended."""
    found = await process.broker.wait(asked.auth_session_id, timeout=0)
    return found.status, found.code


async def connected(
    process: Process, idp: IdentityProvider, app: str = "mail", account: str = "alice", **who: Any
) -> Ready:
    asked = await ask(process, app, **who)
    assert isinstance(asked, AuthorizationRequired), asked
    assert 200 == await complete(process, idp, asked, account)
    ready = await ask(process, app, **who)
    assert isinstance(ready, Ready), ready
    return ready
