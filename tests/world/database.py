"""The database of a world: it runs statements one after another, and a seed says which answers are late or lost.

A statement that was sent is run, or not, also when its asker is gone meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any

import psycopg

import tests.world.entry_rows
import tests.world.queue_rows  # noqa: F401  (they note their players)
from tests.world.tables import Place, Rows, Tables, Values, play

LISTEN = "listen oauthbroker"


@cache
def first_words(statement: str) -> str:
    return " ".join(statement.split())[:40]


def call_later(seconds: float, call: Callable[..., object], *given: Any) -> None:
    asyncio.get_running_loop().call_later(seconds, call, *given)


def future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


@dataclass(frozen=True)
class Weather:
    """How often a statement meets a fault, and how slow answers are, in seconds."""

    lost_before: float = 0.0
    lost_after: float = 0.0
    stuck: float = 0.0
    slow: float = 0.0
    latency: tuple[float, float] = (0.0004, 0.002)
    slowness: tuple[float, float] = (0.5, 4.0)


CALM = Weather()


@dataclass(eq=False)
class Session:
    """The server's side of a connection. `broken` once the server has lost it."""

    pid: int
    host: str
    broken: bool = False
    listens: bool = False
    asked: set[asyncio.Future[Rows]] = field(default_factory=set)
    notified: list[tuple[int, str]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class Database:
    """One server, and the copy of it that a standby has. `away` are the hosts that it refuses, `*` for all. `watch` is
    called with each entry that a statement has written."""

    tables: Tables
    dice: Random
    later: Callable[..., None] = call_later
    future: Callable[[], asyncio.Future[Any]] = future
    weather: Weather = CALM
    watch: Callable[[Place], None] = lambda _: None
    trace: Callable[..., None] = lambda *_: None
    away: set[str] = field(default_factory=set)
    sessions: dict[int, Session] = field(default_factory=dict)
    behind: Tables | None = None
    connects: int = 0

    def leave(self, *hosts: str) -> None:
        """Refuse these hosts, and lose their connections."""
        self.away |= set(hosts)
        for session in [each for each in self.sessions.values() if self.refuses(each.host)]:
            self.lose(session)

    def fall_behind(self) -> None:
        """From now on the standby gets nothing more."""
        self.behind = self.tables.copied()

    def fail_over(self) -> None:
        """Let the standby take over: what came after `fall_behind` is lost."""
        assert self.behind is not None
        self.tables, self.behind = replace(self.behind, timeline=self.tables.timeline + 1), None
        for session in list(self.sessions.values()):
            self.lose(session)

    def connect(self, host: str) -> Session:
        """Raises OperationalError for a host that it refuses."""
        if self.refuses(host):
            raise psycopg.OperationalError("connection refused")
        self.connects += 1
        session = self.sessions[self.connects] = Session(self.connects, host)
        return session

    async def ask(self, session: Session, statement: str, values: Values) -> Rows:
        """Run a statement. Raises OperationalError if the connection is lost: then it is run, or not."""
        answer: asyncio.Future[Rows] = self.future()
        session.asked.add(answer)
        (least, most), random = self.weather.latency, self.dice.random
        there, back = least + (most - least) * random(), least + (most - least) * random()
        luck = random()
        fate = "" if self.weather is CALM else self._fate(luck)
        if fate == "slow":
            back = self.dice.uniform(*self.weather.slowness)
        self.later(there, self._arrive, session, answer, fate, back, statement, values)
        try:
            return await answer
        finally:
            session.asked.discard(answer)

    def _fate(self, luck: float) -> str:
        weather = self.weather
        for fate in ("lost_before", "lost_after", "stuck", "slow"):
            luck -= getattr(weather, fate)
            if luck < 0:
                return fate
        return ""

    def _arrive(
        self, session: Session, answer: asyncio.Future[Rows], fate: str, back: float, statement: str, values: Values
    ) -> None:
        rows = [] if session.broken or fate == "lost_before" else self._run(session, statement, values)
        if session.broken or fate in {"lost_before", "lost_after"}:
            self.lose(session, answer)
        elif fate != "stuck":
            self.later(back, self._deliver, session, answer, rows)

    def _deliver(self, session: Session, answer: asyncio.Future[Rows], rows: Rows) -> None:
        if not answer.done() and not session.broken:
            answer.set_result(rows)

    def _run(self, session: Session, statement: str, values: Values) -> Rows:
        rows, notified = play(self.tables, statement, values)
        self.trace("statement", session.host, first_words(statement), len(rows))
        session.listens |= statement == LISTEN
        for listener in self.sessions.values() if notified else ():
            if listener.listens:
                listener.notified += [(session.pid, payload) for payload in notified]
                self.later(self.weather.latency[0], listener.news.set)
        if rows and "record" in values and "kind" in values:
            name = values["key"][-32:] if "key" in values else values["name"]
            self.watch((values["kind"], bytes(name)))
        return rows

    def refuses(self, host: str) -> bool:
        return "*" in self.away or host in self.away

    def lose(self, session: Session, *answers: asyncio.Future[Rows]) -> None:
        session.broken = True
        self.sessions.pop(session.pid, None)
        session.news.set()
        for answer in {*session.asked, *answers}:
            with suppress(asyncio.InvalidStateError):
                answer.set_exception(psycopg.OperationalError("the server closed the connection unexpectedly"))
