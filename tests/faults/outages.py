"""`python -m tests.faults.outages`: a database that is away while refreshes are under way on two hosts.

It comes back as it was, or as a standby that lacks the last transactions. No family may end whose newest record or
answer a living broker has; the others are told as `refreshUncertain`. The outages take 5 to 300 seconds, with real
leases; `test_outages.py` plays short ones, with short leases.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psycopg
from rich.console import Console

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import AuthorizationRequired, Ready, TokenResult
from oauthbroker.store.postgres.contact import LEASE_SECONDS, grace_of
from oauthbroker.store.postgres.postgres_store import PostgresStore
from oauthbroker.store.postgres.schema import migrate
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider.faults import Hold
from tests.faults.storm_report import Report
from tests.kit import postgres
from tests.kit.running_broker import ALICE, Harness, running, turn, user_app

OUTAGES = (5.0, 20.0, 36.0, 70.0, 300.0)
NAME, HERE = "outage", "127.0.0.1"
FIRST_ANSWER_SECONDS = 3.0  # after the database accepts connections
_PATIENCE = 60.0
_PACE = 0.3  # seconds between two calls of one caller


class Database(Protocol):
    """A database that goes away and comes back. `loses`: without its transactions since `begin`."""

    @property
    def loses(self) -> bool: ...

    def url(self, database: str) -> Secret: ...

    def begin(self) -> None: ...

    def go(self) -> None: ...

    def come(self) -> None: ...


@dataclass(frozen=True)
class Restarted:
    """It comes back as it was."""

    server: postgres.Server
    loses: bool = False

    def url(self, database: str) -> Secret:
        return self.server.url(database)

    def begin(self) -> None:
        """Lose nothing."""

    def go(self) -> None:
        self.server.stop("immediate")

    def come(self) -> None:
        self.server.start("fsync=off", "full_page_writes=off")


@dataclass(frozen=True)
class FailedOver:
    """Its standby, which has fallen behind, takes over."""

    both: postgres.Replicated
    loses: bool = True

    def url(self, database: str) -> Secret:
        return self.both.url(database)

    def begin(self) -> None:
        self.both.fall_behind()

    def go(self) -> None:
        self.both.end()

    def come(self) -> None:
        self.both.take_over()


@dataclass
class Refreshing:
    """An app whose refresh is under way: who asked, with which token, and what the provider holds back."""

    app: str
    host: Harness
    old: Secret
    hold: Hold | None = None
    answers: list[asyncio.Task[TokenResult]] = field(default_factory=list)

    async def begin(self, idp: IdentityProvider, *, held: bool) -> None:
        self.hold = idp.script.refresh.hang(after_work=True) if held else None
        oauth = self.host.broker.oauth(turn())
        self.answers.append(asyncio.create_task(oauth.report_rejected(self.app, self.old)))
        await (self.hold.arrived(_PATIENCE) if self.hold is not None else self.answers[0])

    def answer(self) -> None:
        if self.hold is not None:
            self.hold.release()


APPS = (
    "one-stored",
    "one-holds",
    "one-waits",
    "two-stored",
    "two-holds",
    "two-waits",
    "dead-stored",
    "dead-holds",
    "quiet",
    "gone",
)


@dataclass
class Stage:
    """The hosts: `one` and `two` live, `two` is slow to connect again, `idle` has nothing to do, and `dead` never writes
    again once the database is away."""

    idp: IdentityProvider
    hosts: dict[str, Harness]
    first: dict[str, Secret] = field(default_factory=dict)

    async def connect(self) -> None:
        for app in APPS:
            ready = await self.hosts["one"].connected(app)
            self.first[app] = ready.access_token
        for host in self.hosts.values():
            await host.ask("quiet")

    async def begin(self) -> list[Refreshing]:
        found = []
        for app in APPS[:8]:
            host, _, how = app.partition("-")
            one = Refreshing(app, self.hosts[host], self.first[app])
            await one.begin(self.idp, held=how != "stored")
            found.append(one)
        assert await self.hosts["one"].broker.revoke("gone", subject=ALICE)
        return found

    def kill(self) -> None:
        """End the process of a host, as far as its database can tell."""
        connections(self.hosts["dead"]).end()

    def delay(self, host: str, seconds: float) -> Callable[[], None]:
        """Let a host be slow to connect again. Call the returned function when the database is back."""
        pools, back = connections(self.hosts[host])._pools, list[float]()
        refused = pools._refused

        async def late() -> psycopg.Error | None:
            if not back or time.monotonic() - back[0] <= seconds:
                return psycopg.OperationalError("slow to connect again")
            found: psycopg.Error | None = await refused()
            return found

        pools._refused = late
        return lambda: back.append(time.monotonic())

    async def pester(self, host: str) -> None:
        """Report each old token again and again, as tools do that still have it."""
        oauth = self.hosts[host].broker.oauth(turn(instance=f"{host}.1"))
        while True:
            await asyncio.gather(*(oauth.report_rejected(app, self.first[app]) for app in APPS[:8]))
            await asyncio.sleep(_PACE)

    async def first_good(self, host: str) -> float:
        """Return when a call of a host gets a token that no host refreshes."""
        while True:
            result = await self.hosts[host].ask("quiet")
            if isinstance(result, Ready) and not result.degraded:
                return time.monotonic()
            await asyncio.sleep(0.05)

    async def problems(self, *, loses: bool) -> list[str]:
        """Ask the living hosts for every token until nothing is under way, and return what must not be."""
        found: list[str] = []
        for app in APPS:
            answer = await self._settled(app)
            (family,) = self.idp.families(f"client-{app}")
            alive = isinstance(answer, Ready) and self.idp.is_alive(answer.access_token)
            asked = answer.reason if isinstance(answer, AuthorizationRequired) else ""
            if app == "gone":
                good = asked in {"revoked", "noGrant"}
            elif app == "dead-holds" or (app == "dead-stored" and loses and not alive):  # a host may have read it
                good = await self._ended(app) == "uncertain"
            else:
                good = alive and not (family.ended_by or family.reused or set(family.redeemed.values()) - {1})
            if not good:
                reported = f"the family ended by {family.ended_by or 'nothing'}, redeemed {family.redeemed}"
                found.append(f"{app}: {answer.status} {asked}; {reported}")
        return found

    async def _ended(self, app: str) -> str:
        grant = await self.hosts["two"].grant(app)
        return grant.refresh_state.ended if grant is not None else "gone"

    async def _settled(self, app: str) -> TokenResult:
        until = time.monotonic() + _PATIENCE
        while True:
            answers: list[TokenResult] = [await self.hosts[name].ask(app) for name in ("two", "idle", "one")]
            done = all(isinstance(each, (Ready, AuthorizationRequired)) for each in answers)
            same = len({each.access_token.reveal() for each in answers if isinstance(each, Ready)}) < 2
            old = isinstance(answers[0], Ready) and answers[0].access_token == self.first[app]
            new = app in {"quiet", "gone"} or not old or await self._ended(app)
            if (done and same and new) or time.monotonic() > until:
                return answers[0]
            await asyncio.sleep(_PACE)


def connections(host: Harness) -> Any:
    assert isinstance(host.store, PostgresStore)
    return host.store.connections


@asynccontextmanager
async def stage(url: Secret, folder: Path, lease_seconds: float) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        idp = await stack.enter_async_context(IdentityProvider())
        apps = [user_app(idp, name) for name in APPS]
        limits = Limits(sweep_seconds=1, provider_seconds=400, rejections_per_hour=1000)
        hosts = {}
        for name in ("one", "two", "idle", "dead"):
            store = postgres.open_postgres_store(url, folder, lease_seconds=lease_seconds)
            host = running(idp, apps, clock=SystemClock(), limits=limits, store=store)  # type: ignore[arg-type]
            hosts[name] = await stack.enter_async_context(host)
        yield Stage(idp, hosts)
        dead = connections(hosts["dead"])
        dead.closed, dead.pid = False, os.getpid()


async def outage(database: Database, name: str, folder: Path, *, seconds: float, lease_seconds: float) -> Report:
    """Play one outage."""
    async with stage(database.url(name), folder, lease_seconds) as it:
        await it.connect()
        await asyncio.to_thread(database.begin)
        under_way = await it.begin()
        await asyncio.to_thread(database.go)
        it.kill()
        is_back = it.delay("two", grace_of(lease_seconds) / 2)
        gone = time.monotonic()
        for each in under_way:
            if not each.app.endswith("waits"):
                each.answer()
        pestering = [asyncio.create_task(it.pester(host)) for host in ("one", "two")]
        await asyncio.sleep(max(0.0, seconds - (time.monotonic() - gone)))
        await asyncio.to_thread(database.come)
        await accepts(database.url(name))
        is_back()
        back = time.monotonic()
        first = {host: asyncio.create_task(it.first_good(host)) for host in ("one", "idle")}
        await asyncio.sleep(grace_of(lease_seconds) / 2)
        for each in under_way:
            each.answer()
        taken = {host: await asyncio.wait_for(task, _PATIENCE) - back for host, task in first.items()}
        await asyncio.sleep(grace_of(lease_seconds))
        found = await it.problems(loses=database.loses)
        for task in pestering:
            task.cancel()
        await asyncio.gather(*pestering, return_exceptions=True)
        unstored = sum(it.hosts[host].running.parts.retry_store.unstored for host in ("one", "two", "idle"))
        ended = {
            app: families[0].ended_by for app in APPS if (families := it.idp.families(f"client-{app}"))[0].ended_by
        }
    found += [
        f"{host}: the first good answer after {each:.1f} s"
        for host, each in taken.items()
        if each > FIRST_ANSWER_SECONDS
    ]
    found += [f"{unstored} tokens are not stored"] if unstored else []
    how = "comes back without its last transactions" if database.loses else "comes back"
    figures = {
        "first good answer after, s": ", ".join(f"{host} {each:.1f}" for host, each in taken.items()),
        "families ended": ended,
    }
    return Report(f"The database is away for {seconds:g} s and {how}; leases of {lease_seconds:g} s", figures, found)


async def accepts(url: Secret) -> None:
    """Return as soon as the database accepts a connection."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            with suppress(psycopg.OperationalError):
                await (await psycopg.AsyncConnection.connect(url.reveal(), connect_timeout=2)).close()
                return
            await asyncio.sleep(0.02)


def two_ports() -> tuple[int, int]:
    """Return two ports of the machine that are free now."""
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind((HERE, 0))
        return one.getsockname()[1], two.getsockname()[1]


async def both(seconds: float) -> list[Report]:
    """Play an outage of a server that starts again, and one of a server whose standby takes over."""
    with (
        tempfile.TemporaryDirectory() as name,
        postgres.server() as alone,
        postgres.replicated(HERE, two_ports(), "") as replicated,
    ):
        alone.new_database(NAME)
        replicated.run(f"create database {NAME}")
        migrate(replicated.url(NAME))
        databases: dict[str, Database] = {"one": Restarted(alone), "two": FailedOver(replicated)}
        for each in databases:
            (Path(name) / each).mkdir()
        played = (
            outage(database, NAME, Path(name) / each, seconds=seconds, lease_seconds=LEASE_SECONDS)
            for each, database in databases.items()
        )
        return await asyncio.gather(*played)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.outages")
    parser.add_argument("--seconds", type=float, default=OUTAGES[-1], help="the longest outage")
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    longest, found = parser.parse_args().seconds, list[str]()
    for seconds in (OUTAGES[0], *(each for each in OUTAGES[1:] if each <= longest)):
        for report in asyncio.run(both(seconds)):
            Console().print(report.table())
            found += report.problems
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
