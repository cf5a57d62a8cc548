"""The states of a run, and each way from one to another. No other module writes `state`, `due`, `failure` or `taken`. A
run that has not ended has a `due` time, at which a process looks at it; so each run ends. A process that takes a run
gets a token, and writes nothing more once another one has taken it. Transactions that lost a race are tried again, with
full jitter, until a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from threading import Event
from typing import Any, Final, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.entities.database import Database, is_lost_race
from oauthbroker.flowtools.entities.definition import Entity
from oauthbroker.flowtools.risk.audit_types import RunStopped
from oauthbroker.flowtools.running import journal
from oauthbroker.flowtools.running.auditing import of_run
from oauthbroker.flowtools.running.journal import RUN, STEP, LeaseLost, RunRecord
from oauthbroker.flowtools.specification.failures import FlowFailed
from oauthbroker.plugins import PluginAudit, SystemClock

MOST_TAKES: Final = 5  # without a step between them
DECIDES_SECONDS: Final = 14 * 86_400.0  # a person has this time for a decision
_LONGEST_LEASE: Final = 3600.0
_SECONDS: Final = 30.0  # from the first race that was lost to the last try
_FIRST_WAIT, _LONGEST_WAIT = 0.004, 0.5
_CLOCK: Final = SystemClock()
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The ways of runs in one open transaction, at its time. `audit` gets the entry of an end or a wait before the
    commit: a run without an entry has not ended."""

    connection: Connection
    now: float
    audit: PluginAudit

    @classmethod
    @contextmanager
    def opened(cls, database: Database, audit: PluginAudit) -> Iterator[Lifecycle]:
        with database.transaction() as connection:
            yield cls(connection, database.now(connection), audit)

    def change(self, run: RunRecord, *, cancellable: bool = False, has_ended: bool = False, **values: Any) -> RunRecord:
        """Change a run that this process has taken, or one that `has_ended`. Raises LeaseLost if another process has
        taken it since, or it has ended; and, if it is `cancellable` here, FlowFailed if a person has cancelled it."""
        time = RUN.c.due.is_(None) if has_ended else RUN.c.due.is_not(None)
        mine = sa.update(RUN).where(RUN.c.id == run.id, RUN.c.taken == run.taken, time)
        if cancellable:
            mine = mine.where(RUN.c.cancel.is_(None))
        kept = journal.stored(values)
        if self.connection.execute(mine.values(**kept)).rowcount != 1:
            by = sa.select(RUN.c.cancel).where(RUN.c.id == run.id, RUN.c.taken == run.taken)
            if cancellable and (canceller := self.connection.execute(by).scalar()):
                raise cancelled(canceller)
            raise LeaseLost(run.id)
        return run.changed(kept)

    def end(self, run: RunRecord, state: str, *, cancellable: bool = False, **values: Any) -> RunRecord:
        ended = self.change(run, cancellable=cancellable, state=state, due=None, ended=self.now, **values)
        self.audit(RunStopped(**of_run(run), state=state, code=ended.code))
        return ended

    def pause(self, run: RunRecord, state: str, **values: Any) -> None:
        """Let a run wait."""
        self.change(run, cancellable=True, state=state, takes=0, **values)
        self.audit(RunStopped(**of_run(run), state=state, code=None))

    def give_back(self, run: RunRecord, seconds: float) -> None:
        """Leave a run to the process that looks at it in `seconds`, as if this one had not taken it."""
        mine = RUN.c.id == run.id, RUN.c.taken == run.taken, RUN.c.due.is_not(None), RUN.c.takes > 0
        self.connection.execute(sa.update(RUN).where(*mine).values(takes=RUN.c.takes - 1, due=self.now + seconds))

    def take(self, run: RunRecord, lease: float, *, wakes: bool) -> RunRecord | None:
        """Take a run for this process; None if it is not due, or has ended. `wakes`: a waiting one, too. What a run
        waits for ends it at its deadline. One that was taken often without a step goes to its end."""
        woken = wakes and run.state == journal.WAITING and run.due is not None and run.due > self.now
        if run.due is None or (run.due > self.now and not woken):
            return None
        if run.state == journal.FAILING and run.takes > MOST_TAKES:
            self._break(run)
            return None
        failure = self._why_not(run, woken=woken)
        known = run if failure is None else self.stop(run, failure)
        if known.state in journal.ENDED:
            return None
        until = self.now + min(lease * 2.0**known.takes, _LONGEST_LEASE)
        state = journal.FAILING if known.state == journal.FAILING else journal.RUNNING
        return self.change(known, taken=run.taken + 1, takes=known.takes + 1, due=until, state=state)

    def _why_not(self, run: RunRecord, *, woken: bool) -> FlowFailed | None:
        """Return why a run goes no step forward; None if it does, or fails already."""
        if run.state == journal.FAILING:
            return None
        if run.cancel is not None:
            return cancelled(run.cancel)
        if run.state == journal.ESCALATED:
            return FlowFailed("undecided", "no person has decided in time")
        if run.state == journal.WAITING and not woken:
            return FlowFailed("consentRefused", "the user has not consented in time")
        if run.origin == journal.BY_CALL and not journal.step_lines(self.connection, run.id):
            return FlowFailed("abandoned", "its process ended before it began; call again")
        return FlowFailed("runBroken", "it was tried often, and does not go on") if run.takes > MOST_TAKES else None

    def stop(self, run: RunRecord, failure: FlowFailed, seconds: float = 0.0) -> RunRecord:
        """Let a run fail: it goes no step forward any more. One without a step has ended, and gives its key free.
        Others are `failing` until a process that has its flow has looked at their charges, in `seconds`."""
        why: dict[str, Any] = {"code": failure.code, "message": failure.message}
        if journal.step_lines(self.connection, run.id):
            return self.change(run, state=journal.FAILING, failure=why, due=self.now + seconds, takes=0)
        return self.end(run, journal.FAILED, **why, failure={**why, "owed": False}, freed=1, output=None)

    def _break(self, run: RunRecord) -> None:
        """End a failing run of which no process can find the charges: its version or a text cannot be read."""
        acted = {journal.DONE, journal.SENT, journal.UNKNOWN}
        steps = journal.step_lines(self.connection, run.id)
        outside = [each for each in steps if each.attempts and each.state in acted]
        notes = [f"{each.node}: it took effect or may have, and was not undone" for each in outside]
        state = journal.UNKNOWN if any(each.state != journal.DONE for each in outside) else journal.FAILED
        why: dict[str, Any] = {"code": "runBroken", "message": "it failed, and its version or its data cannot be read"}
        self.end(run, state, **why, failure={**why, "owed": bool(outside)}, notes=notes, output=None)

    def wake(self, run: RunRecord) -> None:
        """Let a waiting run go on, in the process that looks next."""
        if run.state == journal.WAITING:
            self.change(run, state=journal.RUNNING, due=self.now, takes=0)

    def refuse(self, run: RunRecord, session: str, why: str) -> None:
        """Fail a waiting run whose user has refused, if it waits for that session: a new call may have asked anew."""
        if run.state == journal.WAITING and journal.waits_for(journal.steps_of(self.connection, run.id)) == session:
            self.stop(run, FlowFailed("consentRefused", why))

    def approve(self, run: RunRecord) -> None:
        """Let a run go on that a policy has stopped."""
        self.change(run, state=journal.RUNNING, due=self.now, takes=0, message=None, origin=journal.BY_PERSON)

    def check_living(self, run: RunRecord) -> None:
        """Raise ValueError for a run that has ended, or is cancelled already."""
        if run.cancel is not None:
            raise ValueError(f"the run is cancelled already: {cancelled(run.cancel).message}")
        if run.due is None:
            raise ValueError("the run has ended")

    def cancel(self, run: RunRecord, by: str) -> None:
        """Cancel a living run. One on which a process works ends at its next step. Raises ValueError if another one has
        ended or cancelled it meanwhile."""
        living = sa.update(RUN).where(RUN.c.id == run.id, RUN.c.due.is_not(None), RUN.c.cancel.is_(None))
        if self.connection.execute(living.values(cancel=by)).rowcount != 1:
            raise ValueError("the run has ended, or another person has cancelled it: flow runs RUN tells")
        if run.state in {journal.WAITING, journal.ESCALATED}:
            self.stop(run.changed({"cancel": by}), cancelled(by))

    def retry(self, run: RunRecord, *, happened: bool | None) -> RunRecord:
        """Let a run that ended without success go on, in another generation: what certainly had no effect runs again,
        with another key. `happened` is what a person knows of a lost answer. Raises ValueError."""
        found = journal.step_lines(self.connection, run.id)
        unsure = any(each.state in {journal.SENT, journal.UNKNOWN} for each in found)
        if run.state not in {journal.FAILED, journal.UNKNOWN} or run.code == "declined":
            raise ValueError("only a run that failed, or whose answer was lost, can be tried again")
        if run.texts["input"] == "null":
            raise ValueError("its input is no longer kept")
        if not found:
            raise ValueError("it committed nothing: call the tool again")
        if run.failure.get("owed") or any("/" in each.node for each in found):
            raise ValueError("a payment of it was refunded or has to be: call the tool again")
        if unsure != (happened is not None):
            raise ValueError("say whether the effect happened if its answer was lost, and else do not")
        keys = journal.keys_of(self.connection, run.key)
        generation = max(run.generation + 1, journal.next_generation(self.connection, run.tool, keys))
        if run.freed and run.key is not None:
            others = sa.select(RUN.c.id).filter_by(tool=run.tool, key=run.key, freed=0)
            if self.connection.execute(others).first():
                raise ValueError("another call has its key: look at that run")
        kept = (journal.DONE, journal.SENT, journal.UNKNOWN) if happened else (journal.DONE,)
        mine = STEP.c.run == run.id
        again = {"state": journal.RETRY, "value": "null", "attempts": 0, "generation": generation}
        self.connection.execute(sa.update(STEP).where(mine, STEP.c.state.not_in(kept)).values(**again))
        self.connection.execute(sa.update(STEP).where(mine, STEP.c.state.in_(kept)).values(state=journal.DONE))
        notes = run.notes[: len(run.notes) - run.failure.get("asks", 0)]
        anew: dict[str, Any] = dict.fromkeys(("code", "message", "failure", "cancel", "ended"))
        anew |= {"state": journal.RUNNING, "due": self.now, "takes": 0, "taken": run.taken + 1, "freed": 0}
        anew |= {"generation": generation, "origin": journal.BY_PERSON, "notes": notes}
        return self.change(run, has_ended=True, **anew)


def cancelled(by: str) -> FlowFailed:
    return FlowFailed("cancelled", f"{by} has cancelled it")


class Tries:
    """The tries of one run by one process. `committed` tells whether it may have committed something."""

    def __init__(self, sleep: Callable[[float], object]) -> None:
        self._sleep, self._lost, self._until, self.committed = sleep, 0, 0.0, False

    def __call__(self, work: Callable[[], T], *, unique: bool = False) -> T:
        """Do work in transactions of its own, again while it loses races. `unique`: also against a row that another one
        inserted. Raises the last race that it lost."""
        while True:
            try:
                return work()
            except (DBAPIError, PoolTimeout) as error:
                if not (is_contention(error) or (unique and isinstance(error, IntegrityError))):
                    raise
                self._wait(error)

    def commit(self, connection: Connection) -> None:
        """Commit, and begin to count anew. One whose answer is lost may have committed."""
        self.committed = True
        connection.commit()
        self._lost = 0

    def _wait(self, error: Exception) -> None:
        now = _CLOCK.monotonic()
        self._until = self._until if self._lost else now + _SECONDS
        wait = _CLOCK.jitter(0.0, min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(self._lost, 20)))
        if now + wait > self._until:
            raise error
        self._lost += 1
        self._sleep(wait)


def again(work: Callable[P, T]) -> Callable[P, T]:
    """Do work in a transaction of its own, again while it loses races, also against rows that others inserted."""

    @wraps(work)
    def done(*args: P.args, **more: P.kwargs) -> T:
        return Tries(Event().wait)(lambda: work(*args, **more), unique=True)

    return done


@dataclass(frozen=True, kw_only=True)
class FlowRuntime:
    """What the runs of one database work with."""

    database: Database
    entities: Mapping[str, Entity]
    lease_seconds: float
    sleep: Callable[[float], object]
    audit: PluginAudit

    def transact(self, work: Callable[[Lifecycle], T], tries: Tries | None = None, *, unique: bool = False) -> T:
        """Do work in a transaction of its own, again while it loses races, as `tries` does."""

        def done() -> T:
            with Lifecycle.opened(self.database, self.audit) as ways:
                return work(ways)

        return (tries or Tries(self.sleep))(done, unique=unique)


def is_contention(error: BaseException) -> bool:
    """Tell whether others are in the way: a lost race, or no free connection in time."""
    return isinstance(error, PoolTimeout) or (isinstance(error, DBAPIError) and is_lost_race(error))


def is_away(error: BaseException) -> bool:
    """Tell whether the database, or the broker's log or store, cannot be reached, which says nothing about the run."""
    lost = isinstance(error, OperationalError | InterfaceError) and not is_contention(error)
    return lost or is_broker_away(error)


def is_broker_away(error: BaseException) -> bool:
    """Tell whether the broker's store does not answer, or its audit log takes no entry."""
    return isinstance(error, BrokerError) and error.code is Code.STORE_UNAVAILABLE
