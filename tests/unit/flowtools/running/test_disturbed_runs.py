"""A run is disturbed at each of its points: a commit loses its race, or another process takes the run, or the user
refuses, or a person cancels, while its worker is only slow. Nothing happens twice, and nothing that counts as done is
lost."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from oauthbroker import AuthorizationRequired
from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.running import approvals, journal
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.journal import DONE, RETRY, RUN, SENT, UNKNOWN, WAITING
from oauthbroker.flowtools.running.ports import ConsentNeeded, Effect, EffectRefused, NotSent, Ports
from tests.kit.forms import swept
from tests.unit.flowtools.entity_kit import sqlite_url
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, STAFF, World, log

pytestmark = pytest.mark.rule("run-kills", "run-waits", "001-rollback", "001-concurrency")
STEP = swept(5).step
MOST = 400  # points; a bound
REQUEST = {"url": "https://api.example.com/v1", "oauthAppRef": "OAuthApp/mail", "method": "POST"}
NODES: dict[str, Any] = {
    "a": BEGIN,
    "b": log("one"),
    "c": COMMIT,
    "p": ("payment", {"provider": "stripe"}),
    "again": ("retry", {"attempts": 2, "backoffSeconds": 0}),
    "r": ("httpRequest", REQUEST),
    "d": BEGIN,
    "e": log("two"),
    "f": ("assert", {"expression": "input.n != 0.0", "message": "it fails"}),
}
OF = {"charge": "p", "refund": "p/refund", "POST": "r"}


class Points:
    """Counts points, and does something at one of them, once."""

    def __init__(self) -> None:
        self.left, self.act = -1, lambda: None

    def at(self, point: int, act: Callable[[], None]) -> None:
        self.left, self.act = point, act

    def __call__(self, *_: Any, **__: Any) -> None:
        self.left -= 1
        if self.left == -1:
            self.act()


class Outside:
    """The shop and the API. Each look for a token has its own end; then the user has consented."""

    def __init__(self, points: Points, *, takes_keys: bool) -> None:
        self.points, self.takes_keys = points, takes_keys
        self.database: Database
        self.begin([])

    def begin(self, looks: list[Exception]) -> None:
        self.looks, self.keys, self.sent, self.unwritten = looks, set[str](), Counter[str](), list[str]()

    def problem(self, *_: str) -> str:
        return ""

    def ask(self, _: Effect) -> None:
        self.points()
        if self.looks:
            raise self.looks.pop(0)

    def send(self, effect: Effect) -> Any:
        with self.database.reading() as connection:
            run = journal.find_runs(connection)[-1].id
            step = journal.steps_of(connection, run).get(OF[effect.operation])
        if step is None or step.state == RETRY:
            self.unwritten.append(effect.operation)
        self.points()
        if not (self.takes_keys and effect.kind == "payment" and effect.key in self.keys):
            self.sent[effect.operation] += 1
        self.keys.add(effect.key)
        self.points()
        return {"id": "x"}


def consent() -> ConsentNeeded:
    said = {"auth_session_id": "s", "authorization_url": "https://b.example/c/1", "message": "Agree."}
    return ConsentNeeded(AuthorizationRequired(**said, expires_at=datetime(2100, 1, 1, tzinfo=UTC), reason="noGrant"))


LOOKS: dict[str, Callable[[], list[Exception]]] = {
    "granted": list,
    "consents": lambda: [consent()],
    "declines": lambda: [consent()],
    "not sent, then granted": lambda: [NotSent("away")],
    "refused": lambda: [EffectRefused("no")],
}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    server = request.getfixturevalue("postgres_server")
    server.run(f'create database "{tmp_path.name.lower()}"')
    found: str = server.url(tmp_path.name.lower()).reveal()
    return found


@dataclass
class Story:
    """One run after the other, and what happens to each."""

    world: World
    outside: Outside
    flow: ReadyFlow
    consents: bool
    n: int

    def prepare(self, looks: list[Exception]) -> None:
        with self.world.database.transaction() as connection:
            connection.exec_driver_sql("DELETE FROM entity_log")
        self.outside.begin(looks)

    def go(self, at: int) -> str:
        """Call the tool, and bring its run to its end. Return the run."""
        run = str(self.world.runs.call(self.flow, {"id": str(at), "n": self.n}, STAFF).run)
        self.end()
        return run

    def answer(self) -> None:
        for run, state in self._living():
            if state == WAITING:
                answered(self.world, run, consents=self.consents)

    def end(self) -> None:
        """Look for runs as another process does, until each has ended."""
        for _ in range(40):
            self.answer()
            for run, _ in self.world.runs.due(10):
                self.world.runs.work(run, lambda _: self.flow)
            if not self._living():
                return
        raise AssertionError(self._living())

    def _living(self) -> list[Any]:
        with self.world.database.reading() as connection:
            return list(connection.execute(sa.select(RUN.c.id, RUN.c.state).where(RUN.c.due.is_not(None))))

    def check(self, run: str, at: Any) -> str:
        with self.world.database.reading() as connection:
            steps = {name: step.state for name, step in journal.steps_of(connection, run).items()}
        found, texts, sent = self.world.runs.find(run), self.world.texts(), self.outside.sent
        why = (at, found, texts, sent, steps)
        assert found.state == self.world.entries.ends(run)[-1], why
        assert [] == self.outside.unwritten, why
        assert 1 >= max(sent.values(), default=0), why
        assert (["one"] if "c" in steps else []) == texts[:1], why
        assert all(steps[OF[operation]] in {DONE, SENT, UNKNOWN} for operation in sent), why
        match found.state:
            case "succeeded":
                assert (1, 0, 1, ["one", "two"]) == (sent["charge"], sent["refund"], sent["POST"], texts), why
            case "failed":
                owes = any("paymentRollback" in note for note in found.notes)
                assert owes or sent["charge"] == sent["refund"], why
            case _:
                assert 0 == sent["refund"], why
        return f"{found.state} {found.code}"


def answered(world: World, run: str, *, consents: bool) -> None:
    if consents:
        world.runs.consented(run)
    else:
        world.runs.refused(run, "s", "accessDenied")


@contextmanager
def story_of(url: str, points: Points, *, takes_keys: bool, looks: str, n: int) -> Iterator[Story]:
    outside = Outside(points, takes_keys=takes_keys)
    ports = Ports(payments={"stripe": outside}, requests=outside)
    world = World(url, ports=ports, lease_seconds=-7200.0)
    outside.database = world.database
    flow = world.flow(NODES, chain(*NODES), idempotencyKey="input.id", policies=["paymentRollback"])
    yield Story(world, outside, flow, looks != "declines", n)
    world.database.engine.dispose()


def lose(database: Database, points: Points) -> Callable[[], None]:
    """Count the commits of what writes as points. Return what lets the one at hand lose its race."""
    dialect, lost = database.engine.dialect, list[bool]()
    commit = dialect.do_commit

    def counted(connection: Connection) -> None:
        if not connection.get_execution_options().get("only_reads"):
            points()

    def do_commit(connection: Any) -> None:
        if lost:
            lost.clear()
            connection.rollback()
            raise sqlite3.OperationalError("database is locked")
        commit(connection)

    dialect.do_commit, dialect.loaded_dbapi = do_commit, sqlite3
    event.listen(database.engine, "commit", counted)
    return lambda: lost.append(True)


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("n", [0, 1], ids=["fails", "succeeds"])
@pytest.mark.parametrize("looks", LOOKS)
def test_a_commit_that_loses_its_race_loses_no_step_and_sends_nothing_unwritten(url: str, looks: str, n: int) -> None:
    points, seen = Points(), Counter[str]()
    with story_of(url, Points(), takes_keys=False, looks=looks, n=n) as story:
        lost = lose(story.world.database, points)
        for at in range(MOST):
            story.prepare(LOOKS[looks]())
            points.at(at, lost)
            run = story.go(at)
            reached, points.left = points.left < 0, -9
            seen[story.check(run, at)] += 1
            if not reached:
                break
        print(at, seen)
    assert 6 < at < MOST - 1


def disturbing(url: str, story: Story, act: str) -> Iterator[Callable[[], None]]:
    """Yield what another process does. It does not wait for locks: its worker is the one that is slow."""
    points = Points()
    other = World(url, ports=story.flow.ports, lease_seconds=-7200.0, audit=story.world.entries)
    if other.database.engine.dialect.name == "sqlite":
        event.listen(other.database.engine, "connect", lambda each, _: each.execute("PRAGMA busy_timeout = 0"))
        other.database.engine.dispose()
    else:
        event.listen(other.database.engine, "begin", lambda each: each.exec_driver_sql("SET LOCAL lock_timeout = '10ms'"))

    def done() -> None:
        with suppress(OperationalError, ValueError):
            for run, state in story._living():
                match act:
                    case "takes":
                        other.runs.work(run, lambda _: story.flow)
                    case "consents" | "refuses":
                        answered(other, run, consents=act == "consents")
                    case "refuses, takes":
                        answered(other, run, consents=False)
                        other.runs.work(run, lambda _: story.flow)
                    case "cancels":
                        Tries_cancel(other, run)

    yield done
    other.database.engine.dispose()


def Tries_cancel(other: World, run: str) -> None:
    approvals.cancel(other.database, run, by="p", account="root", audit=other.entries)


@pytest.mark.slow
@pytest.mark.parametrize("takes_keys", [True, False], ids=["keys", "no keys"])
@pytest.mark.parametrize("n", [0, 1], ids=["fails", "succeeds"])
@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize("act", ["takes", "refuses", "refuses, takes", "consents", "cancels"])
def test_another_process(url: str, act: str, looks: str, n: int, takes_keys: bool, monkeypatch) -> None:
    monkeypatch.setattr("oauthbroker.flowtools.running.lifecycle._SECONDS", 0.0)
    points, seen = Points(), Counter[str]()
    with story_of(url, points, takes_keys=takes_keys, looks=looks, n=n) as story:
        engine = story.world.database.engine
        event.listen(engine, "before_cursor_execute", points)
        event.listen(engine, "commit", points)
        for done in disturbing(url, story, act):
            for at in range(0, MOST, STEP):
                story.prepare(LOOKS[looks]())
                points.at(at, done)
                run = story.go(at)
                reached, points.left = points.left < 0, -9
                if run != "None":
                    seen[story.check(run, at)] += 1
                if not reached:
                    break
        print(at, seen)
