"""Two brokers on one store, in one event loop and by one clock, their provider, and what people and runtimes hold."""

from __future__ import annotations

import asyncio
import io
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from oauthbroker import Turn, TurnAuth
from oauthbroker.audit import Connected, GrantEnded
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.secret import Secret
from oauthbroker.events.port import EventLease
from oauthbroker.model.apps import App, IdentityRule, Owner
from oauthbroker.model.bundle import Bundle, ToolAuth
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.model.turn_token import BegunTurn
from oauthbroker.records.browser_session import BrowserSession
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.testing import Browser, Canaries, IdentityProvider, TestClock
from oauthbroker.testing.provider.types import Account
from oauthbroker.testing.stores import open_keyring
from oauthbroker.wiring.running import Running
from tests.faults.cancel_model import Model
from tests.kit.crashfs import HookedFs
from tests.kit.running_broker import BASE, TEAM, Harness, device_app, global_app, user_app
from tests.kit.running_on import HasRunning, running_on
from tests.story.api.kit import Callers
from tests.story.binding_kit import RUNTIME

PEOPLE = 5
ERASED = "idp:user:P4"  # the one person who is erased now and then: no claim is made about this one's events
AGENTS = ("planner", "writer")
LIFETIME = 900  # of access tokens, in seconds of the clock
TOOLS: dict[str, tuple[ToolAuth, ...]] = {"Tool/mail": (ToolAuth("mail"), ToolAuth("team"), ToolAuth("robot"))}
LIMITS = Limits(
    sweep_seconds=0.05,
    requests_per_minute=10_000_000,
    session_seconds=300,
    keep_finished_seconds=10**6,
    sessions_per_conversation=10**6,
    sessions_per_subject=10**6,
    sessions_per_app=10**6,
    sessions_total=10**6,
    rejections_per_hour=10**6,
)
SETTINGS = Settings(
    public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), admin_loopback=True,
    limits=LIMITS,
)  # fmt: skip


class SlowFs(HookedFs):
    """Renames and syncs take a moment now and then, long enough for everything else to happen before they end."""

    def __init__(self, seed: int) -> None:
        self._dice = Random(seed)

    def _step(self, call: str, _args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        if call in {"rename", "fsync", "unlink"} and self._dice.random() < 0.04:
            time.sleep(self._dice.choice((0.001, 0.004, 0.012)))
        return run()


class Quiet(Canaries):
    """Secrets that are not searched for: tens of thousands of pages times tens of thousands of tokens take hours."""

    def look(self, *_: Any, **__: Any) -> None:
        """Keeps nothing."""


def person(number: int) -> str:
    return f"idp:user:P{number}"


class NotNow(Exception):
    """An agent cannot take its event now."""


def login_of(subject: str) -> str:
    """The provider's account behind a subject. The team is connected by the first person."""
    return "p0" if subject == TEAM else subject.rpartition(":")[2].lower()


def turn_of(dice: Random, number: int | None = None) -> Turn:
    subject = person(dice.randrange(PEOPLE) if number is None else number)
    auth = TurnAuth(actor={"type": "user", "id": subject}, subjects={"user": subject, "global": TEAM})
    return Turn(
        dice.choice(AGENTS), f"thread {dice.randrange(4)}", "Swarm/default", origin={"connector": "chat"}, auth=auth
    )


def apps_of(idp: IdentityProvider) -> list[App]:
    team = Owner(
        global_identity=IdentityRule("userInfo", "idp:team:{team}"),
        user_identity=IdentityRule("userInfo", "idp:user:{sub}"),
        authorizers=(person(0),),
    )
    alone: dict[str, Any] = {"flow": "clientCredentials", "subject_mode": "global", "owner": Owner()}
    robot = user_app(idp, "robot", **alone)
    apps = [
        user_app(idp, refresh_ahead_seconds=0),
        global_app(idp, owner=team),
        device_app(idp),
        robot,
        user_app(idp, "asked", owner=Owner(binding="runtimeConfirm", confirm_url=RUNTIME)),
        user_app(idp, "said", owner=Owner(binding="channelCode")),
        user_app(idp, "old"),
    ]
    for app in apps:
        idp.change(app.client.client_id, access_lifetime=LIFETIME, device_interval=1, device_lifetime=300)
    return apps


@dataclass
class Side(HasRunning):
    """One broker process, played in this one."""

    running: Running
    home: Harness
    api: Callers


@dataclass
class World:
    """Everything that outlives a broker, and what runtimes and people remember of their calls."""

    idp: IdentityProvider
    clock: TestClock
    folder: Path
    seed: int
    apps: list[App]
    audit: AuditList = field(default_factory=AuditList)
    log: io.StringIO = field(default_factory=io.StringIO)
    sides: list[Side] = field(default_factory=list)
    model: Model = field(default_factory=Model)
    links: deque[tuple[str, AuthorizationRequired]] = field(default_factory=lambda: deque(maxlen=60))
    sessions: deque[str] = field(default_factory=lambda: deque(maxlen=60))
    held: deque[EventLease] = field(default_factory=lambda: deque(maxlen=40))
    turns: deque[BegunTurn] = field(default_factory=lambda: deque(maxlen=20))
    keys: deque[Any] = field(default_factory=lambda: deque(maxlen=10))
    proofs: deque[tuple[str, str, Turn | None]] = field(default_factory=lambda: deque(maxlen=20))
    browser_sessions: deque[BrowserSession] = field(default_factory=lambda: deque(maxlen=10))
    tokens: dict[tuple[str, str], Secret] = field(default_factory=dict)

    @classmethod
    def of(cls, idp: IdentityProvider, clock: TestClock, folder: Path, seed: int) -> World:
        for number in range(PEOPLE):
            idp.add_account(Account(f"p{number}", f"P{number}", "T111", number=2000 + number))
        return cls(idp, clock, folder, seed, apps_of(idp))

    def store(self, fs: HookedFs | None = None) -> FileStore:
        ring = open_keyring(self.folder)
        return FileStore(self.folder / "store", ring, kinds=KINDS, lease_kinds=LEASES, clock=self.clock, fs=fs)

    def bundle(self) -> Bundle:
        return Bundle(SETTINGS, {app.name: app for app in self.apps}, TOOLS)

    async def open(self) -> None:
        """Starts both brokers, with everything that works in the background."""
        for number in range(2):
            store = self.store(SlowFs(self.seed + number))
            running = running_on(store, self.bundle(), self.clock, audit=self.audit, log=self.log)
            home = Harness(self.idp, self.clock, store, self.audit, self.log, running)
            await running.start(background=True)
            self.sides.append(Side(running, home, await Callers.of(home)))

    async def close(self) -> None:
        for side in self.sides:
            await side.running.close()
            await side.running.parts.repository.close()
        self.sides.clear()

    def log_problems(self) -> list[str]:
        """Chores that failed with anything but a code, or with what an agent of ours raises."""
        lines = self.log.getvalue().splitlines()
        ours = f'"error": "{NotNow.__name__}"'
        return [line for line in lines if ('"error":' in line and ours not in line) or "Traceback" in line]

    def replaced(self) -> int:
        """How many logins took the place of a living grant, by the audit log."""
        alive, count = set[str](), 0
        for entry in self.audit.entries:
            if isinstance(entry, Connected):
                count += entry.grant in alive
                alive.add(entry.grant)
            elif isinstance(entry, GrantEnded):
                alive.discard(entry.grant)
        return count

    async def turn_the_page(self) -> None:
        """Clear the runtimes' memory and remove ended records: the next epoch begins with grants alone."""
        for kept in (self.links, self.sessions, self.held, self.turns, self.keys, self.proofs, self.browser_sessions):
            kept.clear()
        self.model.forget()
        self.log.truncate(0)
        self.log.seek(0)
        store = self.store()
        for kind in ("sessions", "turns", "browsersessions", "apikeys", "uses", "queues", "events"):
            async for entry in store.scan(kind):
                await store.delete(entry.key, expect=entry.generation)
        await store.close()

    def browser(self, dice: Random) -> Browser:
        """A person's browser; each of its requests reaches one of the brokers."""

        async def balanced(scope: Any, receive: Any, send: Any) -> None:
            await dice.choice(self.sides).broker.asgi.app(scope, receive, send)

        return Browser(apps={BASE: balanced}, canaries=self.idp.canaries)


def drawn(dice: Random, found: Any) -> Any:
    """One of them, or None where there is none."""
    there = list(found)
    return dice.choice(there) if there else None


@contextmanager
def complaints() -> Iterator[list[str]]:
    """Reports of asyncio meanwhile: exceptions that were never retrieved, tasks that were destroyed."""
    heard, loop = list[str](), asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, said: heard.append(f"{said.get('message')}: {said.get('exception')!r}"))
    try:
        yield heard
    finally:
        loop.set_exception_handler(before)
