"""Broker processes of one host, on the database that all hosts share: a nursery as in `tests.faults.storm_worker`.

A process does random work until it is killed: it asks for tokens, consents for the people, revokes, begins and ends
turns, enqueues events and consumes them. A line that was read is a fact; times are of the machine's monotonic
clock, which is the same in all processes.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from oauthbroker import Turn
from oauthbroker.broker import Broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.secret import Secret
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.store.format.port import Store
from oauthbroker.store.keys.rotation import KeyRotation
from oauthbroker.store.postgres.feed import Feed
from oauthbroker.store.postgres.postgres_store import PostgresStore
from oauthbroker.testing import Browser, connect_through
from tests.faults.broker_worker import say, subject_of
from tests.faults.storm_worker import Nursery, Telling, World, broker_on, fingerprint, main, word_of
from tests.kit import postgres
from tests.kit.running_broker import BASE, turn

PACE = (0.05, 0.5)  # seconds between two actions of one kind
MOST_TIMES = 25  # that a process asks for one grant before it takes another
LEASE_SECONDS = 3.0
CONSUMER = "orders"


class TellingPostgres(Telling, PostgresStore):
    """A store in a database that tells."""


def telling_postgres(url: str, folder: Path, *, feed: Feed | None = None) -> TellingPostgres:
    found = postgres.open_postgres_store(
        Secret(url), folder, lease_seconds=LEASE_SECONDS, feed=feed, kind=TellingPostgres
    )
    assert isinstance(found, TellingPostgres)
    return found


def rotation_of(store: TellingPostgres, url: str, folder: Path) -> KeyRotation:
    return KeyRotation(store, postgres.keyring_table(Secret(url), folder), SystemClock())


async def follow(rotation: KeyRotation) -> None:
    """Follow the keyring, as a broker does that opened its store itself."""
    while True:
        try:
            await rotation.follow()
        except BrokerError as error:
            say("refused", "follow", error.code.value)
        await asyncio.sleep(1)


async def watch(feed: Feed) -> None:
    """Say that this process trusts its feed, and each second whether it is live."""
    say("trusts", os.getpid())
    while True:
        say("feed", os.getpid(), feed.state)
        await asyncio.sleep(1)


def now() -> str:
    """Return the time that all processes of the machine agree on, also where their clocks are wrong."""
    return f"{time.monotonic():.6f}"


class Work:
    """What one process does. A call that the store or the provider refuses is tried again with the next. Each task has
    dice of its own, so that a seed repeats its choices, however the tasks take turns."""

    def __init__(self, broker: Broker, world: World, people: int, *, shared: Path, seed: str) -> None:
        self._broker, self._world, self._people, self._shared = broker, world, people, shared
        self._seed, self._name = seed, f"p{os.getpid()}-{os.urandom(4).hex()}"
        self._apps = [*world.apps()]
        self._admitted: list[Path] = []

    async def go_on(self) -> None:
        kinds = (self.ask, self.ask, self.ask, self.revoke, self.turn, self.admit, self.enqueue)
        async with asyncio.TaskGroup() as group:
            for number, kind in enumerate(kinds):
                group.create_task(self._again(kind, random.Random(f"{self._seed}/{number}")))
            for agent in (CONSUMER, "planner"):
                group.create_task(self.consume(agent))

    async def _again(self, kind: Callable[[random.Random], Awaitable[None]], dice: random.Random) -> None:
        name = getattr(kind, "__name__", "")
        while True:
            await asyncio.sleep(dice.uniform(*PACE))
            try:
                await kind(dice)
            except BrokerError as error:
                say("refused", name, error.code.value)

    def _pair(self, dice: random.Random) -> tuple[str, int]:
        return dice.choice(self._apps), dice.randrange(self._people)

    async def ask(self, dice: random.Random) -> None:
        """Ask for one grant several times, so that a stale answer of this process has time to show."""
        pair, times = self._pair(dice), dice.randrange(1, MOST_TIMES)
        for _ in range(times):
            await self._ask(*pair, reports=dice.random() < 0.05)
            await asyncio.sleep(dice.uniform(*PACE))

    async def _ask(self, app: str, person: int, *, reports: bool) -> None:
        asked_at, turned = now(), turn(subject_of(person), instance=self._name)
        result = await self._broker.oauth(turned).get_access_token(app)
        say("told", os.getpid(), word_of(result), app, person, fingerprint(result), asked_at, now())
        if isinstance(result, AuthorizationRequired):
            await self._agree(result, app, person)
        elif isinstance(result, Ready) and reports:
            await self._broker.oauth(turned).report_rejected(app, result.access_token)

    async def _agree(self, asked: AuthorizationRequired, app: str, person: int) -> None:
        try:
            browser = Browser(apps={BASE: self._broker.asgi.app})
            page = await connect_through(browser, self._world, asked.authorization_url, f"person{person}")
        except (AssertionError, KeyError, TypeError, OSError):  # the link was used meanwhile, or a page has no form
            return
        if page.status == 200:
            say("granted", asked.auth_session_id, app, person, now())

    async def revoke(self, dice: random.Random) -> None:
        if dice.random() < 0.05:
            app, person = self._pair(dice)
            begun = now()
            say("revoking", app, person, begun)
            try:
                await self._broker.revoke(app, subject=subject_of(person))
            except BrokerError:
                say("unrevoked", app, person, begun, now())
                raise
            say("revoked", app, person, begun, now())

    async def turn(self, dice: random.Random) -> None:
        begun = await self._broker.turns.begin(turn(instance=self._name))
        path = self._shared / begun.turn_id
        path.write_text(begun.token.reveal())
        await asyncio.sleep(dice.uniform(*PACE))
        await self._broker.turns.end(begun.turn_id)
        say("over", begun.turn_id, now())

    async def admit(self, dice: random.Random) -> None:
        """Admit one of the newest turns, or one that was admitted here before, so that a stale answer shows."""
        found = sorted(self._shared.iterdir(), key=lambda each: each.stat().st_mtime_ns)[-20:]
        path = dice.choice(self._admitted if self._admitted and dice.random() < 0.5 else found or [None])
        if path is not None:
            asked_at = now()
            token_holder = await self._broker.turns.admit(path.read_text())
            assert token_holder is not None
            say("admitted", os.getpid(), path.name, asked_at)
            self._admitted = [*self._admitted[-9:], path]

    _number = 0

    async def enqueue(self, _dice: random.Random) -> None:
        self._number += 1
        about: Turn = turn(instance=self._name)
        try:
            await self._broker.events.enqueue(CONSUMER, "tool.completed", {"number": self._number}, turn=about)
        except BrokerError:
            self._name = f"p{os.getpid()}-{os.urandom(4).hex()}"  # it is not known whether it was kept
            raise
        say("enqueued", about.instance_key, self._number)

    async def consume(self, agent: str) -> None:
        while True:
            try:
                delivery = await self._broker.events.lease(agent, wait=5)
                if delivery is not None:
                    payload = delivery.event.payload
                    number, session = payload.get("number", 0), payload.get("authSessionId", "none")
                    say("received", delivery.event.target.instance_key, number, session, now())
                    await delivery.ack()
            except BrokerError as error:
                say("refused", "consume", error.code.value)
                await asyncio.sleep(0.5)


class HostNursery(Nursery):
    """Forks the brokers of a host."""

    def store(self) -> Store:
        return telling_postgres(self.orders["url"], Path(self.orders["folder"]), feed=self.feed())

    def feed(self) -> Feed | None:
        """Return the feed of a host that trusts one. It is settled: the store has had feeds before any record."""
        return Feed(Secret(self.orders["url"]), trusted=True, settling=0) if self.orders["trusts_feed"] else None

    async def live(self) -> None:
        """Live until the child is killed. A broker that cannot start ends, and is started again as any service."""
        folder, url = Path(self.orders["folder"]), self.orders["url"]
        try:
            async with AsyncExitStack() as stack:
                store = telling_postgres(url, folder, feed=self.feed())
                broker = await stack.enter_async_context(broker_on(store, self.apps))
                group = await stack.enter_async_context(asyncio.TaskGroup())
                say("up", os.getpid())
                if self.orders["trusts_feed"]:
                    group.create_task(watch(store.feed))
                group.create_task(follow(rotation_of(store, url, folder)))
                work = Work(broker, self.world, self.orders["people"], shared=folder / "turns", seed=self.seed)
                await work.go_on()
        except BrokerError as error:
            say("refused", "start", error.code.value)


if __name__ == "__main__":
    main(HostNursery)
