"""A run is disturbed at each of its points: a commit loses its race; or another process takes the run, the user refuses,
or a person cancels, while the worker is only slow. Nothing happens twice, and nothing that counts as done is lost."""

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
from oauthbroker.flowtools.running import approvals, journal, lifecycle
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.journal import DONE, RETRY, RUN, SENT, UNKNOWN, WAITING
from oauthbroker.flowtools.running.ports import ConsentNeeded, Effect, EffectRefused, NotSent, Ports
from tests.kit.forms import is_long
from tests.unit.flowtools.entity_kit import sqlite_url, url_of
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, STAFF, World, log

pytestmark = [pytest.mark.slow, pytest.mark.rule("run-kills", "run-waits", "001-rollback", "001-concurrency")]
STEP = 1 if is_long() else 11
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
    "f": ("assert", {"expression": "false", "message": "it fails"}),
}
STEPS = {"charge": "p", "refund": "p/refund", "POST": "r"}


def consent() -> ConsentNeeded:
    said: dict[str, Any] = {"auth_session_id": "s", "authorization_url": "https://b.example/c/1", "message": "Agree."}
    return ConsentNeeded(AuthorizationRequired(**said, expires_at=datetime(2100, 1, 1, tzinfo=UTC), reason="noGrant"))


LOOKS: dict[str, Callable[[], list[Exception]]] = {  # how the looks for a token end; then there is one
    "granted": list,
    "consents": lambda: [consent()],
    "declines": lambda: [consent()] * MOST,
    "not sent": lambda: [NotSent("away")],
    "refused": lambda: [EffectRefused("no")],
}


class Points:
    """Counts points, and does something at one of them, once."""

    def __init__(self) -> None:
        self.set(-1, lambda: None)

    def set(self, point: int, act: Callable[[], None]) -> None:
        self.left, self._act = point, act

    def __call__(self, *_: Any) -> None:
        self.left -= 1
        if self.left == -1:
            self._act()


class Outside:
    """The shop and the API. `unwritten` are effects that were sent before their step was in the journal."""

    database: sa.Engine

    def __init__(self, points: Points, *, takes_keys: bool) -> None:
        self._points, self.takes_keys = points, takes_keys
        self.begin([])

    def begin(self, looks: list[Exception]) -> None:
        self._looks, self._keys, self.sent, self.unwritten = looks, set[str](), Counter[str](), list[str]()

    def problem(self, *_: str) -> str:
        return ""

    def ask(self, _: Effect) -> None:
        self._points()
        if self._looks:
            raise self._looks.pop(0)

    def send(self, effect: Effect) -> Any:
        with self.database.connect() as connection:
            run = journal.find_runs(connection)[-1].id
            step = journal.steps_of(connection, run).get(STEPS[effect.operation])
        if step is None or step.state == RETRY:
            self.unwritten.append(effect.operation)
        self._points()
        if not (self.takes_keys and effect.kind == "payment" and effect.key in self._keys):
            self.sent[effect.operation] += 1
        self._keys.add(effect.key)
        self._points()
        return {"id": "x"}


@dataclass(frozen=True, kw_only=True)
class Story:
    """Runs one after the other, each disturbed at its point."""

    world: World
    outside: Outside
    flow: ReadyFlow
    looks: str
    points: Points

    def disturb(self, act: Callable[[], None], step: int = 1) -> int:
        """Let run after run come to its end, each with `act` at a later point. Return how many points there are."""
        for at in range(0, MOST, step):
            with self.world.database.transaction() as connection:
                connection.exec_driver_sql("DELETE FROM entity_log")
            self.outside.begin(LOOKS[self.looks]())
            self.points.set(at, act)
            run = str(self.world.runs.call(self.flow, {"id": str(at)}, STAFF).run)
            self._end()
            is_over = self.points.left >= 0
            self.points.set(-1, lambda: None)
            self._check(run, at)
            if is_over:
                return at
        raise AssertionError("more points than the bound")

    def _end(self) -> None:
        """Go on with runs as another process does, until none is left."""
        for _ in range(40):
            if not (living := self.living()):
                return
            for run, state in living:
                if state == WAITING:
                    answer(self.world, run, "refuses" if self.looks == "declines" else "consents")
                self.world.runs.work(run, lambda _: self.flow)
        raise AssertionError(self.living())

    def living(self) -> list[Any]:
        with self.world.database.reading() as connection:
            return list(connection.execute(sa.select(RUN.c.id, RUN.c.state).where(RUN.c.due.is_not(None))))

    def _check(self, run: str, at: int) -> None:
        with self.world.database.reading() as connection:
            steps = {name: step.state for name, step in journal.steps_of(connection, run).items()}
        found, texts, sent = self.world.runs.find(run), self.world.texts(), self.outside.sent
        why = (at, found, texts, sent, steps)
        assert [] == self.outside.unwritten, why
        assert {1} >= set(sent.values()), why
        assert all(steps.get(STEPS[each]) in {DONE, SENT, UNKNOWN} for each in sent), why
        assert (["one"] if "c" in steps else []) == texts, why
        assert found.state == self.world.entries.ends(run)[-1], why
        is_owed = any("paymentRollback" in note for note in found.notes)
        assert is_owed or found.state == "unknown" or sent["charge"] == sent["refund"], why
        assert self.looks != "declines" or "POST" not in sent, why


def answer(world: World, run: str, how: str) -> None:
    if how == "consents":
        world.runs.consented(run)
    else:
        world.runs.refused(run, "s", "accessDenied")


@contextmanager
def story_of(url: str, looks: str, *, takes_keys: bool) -> Iterator[Story]:
    points = Points()
    outside = Outside(points, takes_keys=takes_keys)
    world = World(url, ports=Ports(payments={"stripe": outside}, requests=outside), lease_seconds=-7200.0)
    outside.database = sa.create_engine(world.database.engine.url)
    flow = world.flow(NODES, chain(*NODES), idempotencyKey="input.id", policies=["paymentRollback"])
    yield Story(world=world, outside=outside, flow=flow, looks=looks, points=points)
    for each in (outside.database, world.database.engine):
        each.dispose()


def losing(engine: sa.Engine, points: Points) -> Callable[[], None]:
    """Count commits of what writes as points. Return what lets the next one lose its race, as a server does."""
    asked, lost, dialect = list[bool](), list[bool](), engine.dialect
    commit = dialect.do_commit

    def counted(connection: Connection) -> None:
        if not connection.get_execution_options().get("only_reads"):
            points()
            lost[:] = asked
            asked.clear()

    def do_commit(connection: Any) -> None:
        if not lost:
            return commit(connection)
        lost.clear()
        connection.rollback()
        raise sqlite3.OperationalError("database is locked")

    dialect.do_commit = do_commit  # type: ignore[method-assign, assignment]
    event.listen(engine, "commit", counted)
    return lambda: asked.append(True)


@pytest.mark.parametrize("looks", LOOKS)
def test_a_commit_that_loses_its_race_loses_no_step_and_nothing_is_sent_before_its_step(
    tmp_path: Path, looks: str
) -> None:
    with story_of(sqlite_url(tmp_path), looks, takes_keys=False) as story:
        assert 10 < story.disturb(losing(story.world.database.engine, story.points))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, request, tmp_path)


@contextmanager
def another(story: Story, does: str) -> Iterator[Callable[[], None]]:
    """Yield what another process does meanwhile. It does not wait for locks: this worker goes on only behind it."""
    url = story.world.database.engine.url.set(drivername=story.world.database.engine.dialect.name)
    other = World(url.render_as_string(False), ports=story.flow.ports, lease_seconds=-7200.0, audit=story.world.entries)
    engine, is_sqlite = other.database.engine, other.database.engine.dialect.name == "sqlite"
    engine.dispose()
    impatient = "PRAGMA busy_timeout = 0" if is_sqlite else "SET lock_timeout = '10ms'"
    event.listen(engine, "connect", lambda each, _: each.cursor().execute(impatient))

    def act() -> None:
        with pytest.MonkeyPatch.context() as patch, suppress(OperationalError, ValueError):
            patch.setattr(lifecycle, "_SECONDS", 0.0)
            for run, _ in story.living():
                if does == "cancels":
                    approvals.cancel(other.database, run, by="p", account="root", audit=other.entries)
                elif does == "refuses":
                    answer(other, run, does)
                other.runs.work(run, lambda _: story.flow)

    yield act
    engine.dispose()


@pytest.mark.parametrize(
    ("does", "looks", "takes_keys"),
    [
        ("takes", "consents", True),
        ("takes", "consents", False),
        ("refuses", "declines", False),
        ("cancels", "consents", True),
    ],
    ids=["takes it, keys", "takes it, no keys", "refuses", "cancels"],
)
def test_what_another_process_does_while_the_worker_is_slow_does_nothing_twice_and_loses_nothing(
    url: str, does: str, looks: str, takes_keys: bool
) -> None:
    with story_of(url, looks, takes_keys=takes_keys) as story, another(story, does) as act:
        for name in ("before_cursor_execute", "commit"):
            event.listen(story.world.database.engine, name, story.points)
        assert 50 < story.disturb(act, STEP)
