"""Steps 4 to 9 of the contract: a process takes a run, and brings it to its end or to a wait. What a caller gets is a
function of the stored run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from oauthbroker import AuthorizationRequired, BrokerError
from oauthbroker.flowtools.running import approvals, journal, lifecycle
from oauthbroker.flowtools.running.checks import Escalated, normalised
from oauthbroker.flowtools.running.effects import repeatable
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.interpreter import EffectUnknown, Interpreter
from oauthbroker.flowtools.running.journal import FAILED, LeaseLost, RunRecord
from oauthbroker.flowtools.running.lifecycle import (
    FlowRuntime,
    Lifecycle,
    Tries,
    is_away,
    is_broker_away,
    is_contention,
)
from oauthbroker.flowtools.running.ports import ConsentNeeded
from oauthbroker.flowtools.running.refunds import frees_key, owed_notes, refund
from oauthbroker.flowtools.specification.failures import FlowFailed

_LOG: Final = logging.getLogger("oauthbroker.flowtools")
T = TypeVar("T")
FlowOf = Callable[[RunRecord], ReadyFlow | None]
_LATE_SECONDS: Final = 60.0  # behind the end of a link: the consent of the last second is on its way
_REPEATS_SECONDS: Final = 3600.0  # in which an agent repeats its call


class NotLoaded(Exception):
    """The version or a text of a run cannot be read now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The end of a call. `state` is succeeded, failed, escalated (a person has to decide), unknown (an answer was
    lost), waiting (a user has to consent) or running (in another process). `authorization` has the link of a waiting
    run, for its user alone; it is not stored. `errors` are those of FlowFailed."""

    run: str | None
    state: str
    output: Any = field(default=None, repr=False)
    code: str | None = None
    message: str | None = None
    notes: tuple[str, ...] = ()
    authorization: AuthorizationRequired | None = None
    errors: tuple[tuple[str, str], ...] = ()


def refusal(error: FlowFailed) -> RunResult:
    """Return the end of a call that was refused before it became a run."""
    return RunResult(run=None, state=FAILED, code=error.code, message=error.message, errors=error.errors)


def result_of(run: RunRecord) -> RunResult:
    shown = {"output": run.output, "code": run.code, "message": run.message, "notes": run.notes}
    return RunResult(run=run.id, state=run.state, **shown)


class Worker:
    def __init__(self, runtime: FlowRuntime) -> None:
        self._runtime = runtime

    def find(self, run: str) -> RunRecord:
        """Return a run. Raises ValueError for an unknown id."""
        with self._runtime.database.reading() as connection:
            found = journal.find_run(connection, id=run)
        if found is None:
            raise ValueError("no run with this id")
        return found

    def work(self, run: str, flow_of: FlowOf, *, wakes: bool = False) -> RunResult:
        """Take a run that is due, and bring it to its end or to a wait. `flow_of` returns its flow. `wakes`: go on with
        a waiting run, too. Raises an error of the database only if this process has committed nothing."""

        def take(ways: Lifecycle) -> RunRecord | None:
            found = journal.find_run(ways.connection, id=run)
            return found and ways.take(found, self._runtime.lease_seconds, wakes=wakes)

        taken = self._runtime.transact(take)
        return self.go(taken, flow_of) if taken is not None else result_of(self.find(run))

    def go(self, run: RunRecord, flow_of: FlowOf) -> RunResult:
        """Work on a run that this process has taken. The one place at which each error ends."""
        tries, failing = Tries(self._runtime.sleep), None
        try:
            return tries(lambda: self._attempt(run, flow_of, tries))
        except (LeaseLost, NotLoaded) as error:
            _LOG.debug("the run %s is left: %s", run.id, type(error).__name__)
        except BaseException as error:
            self._give_back(run, error)
            if is_away(error) and not tries.committed:
                raise
            failing = self._failing(run, flow_of, error)
            if not isinstance(error, Exception):
                raise
        try:
            return self.go(failing, flow_of) if failing is not None else result_of(self.find(run.id))
        except (SQLAlchemyError, BrokerError):
            return RunResult(run=run.id, state=run.state)  # it may have committed: its row will say more

    def _failing(self, run: RunRecord, flow_of: FlowOf, error: BaseException) -> RunRecord | None:
        """Write that a run fails after any exception, and return it if it owes something. If that cannot be written,
        or it fails already, or the answer of an effect can be asked for again, the run stays due."""
        failure = _failure_of(error)
        if not isinstance(error, FlowFailed) and not is_broker_away(error):
            _LOG.error("the run %s has failed: %s, %s", run.id, failure.code, type(error).__name__)
        if run.state == journal.FAILING or is_away(error):
            return None

        def stopped(ways: Lifecycle) -> RunRecord | None:
            sent = [step.node for step in journal.step_lines(ways.connection, run.id) if step.state == journal.SENT]
            if sent and not isinstance(error, FlowFailed) and _may_ask_again(flow_of(run), sent):
                return None
            return ways.stop(run, failure, self._runtime.lease_seconds)

        try:
            found = self._runtime.transact(stopped)
        except Exception as unforeseen:  # noqa: BLE001  (the next take comes, and there are not many)
            self._give_back(run, unforeseen)
            _LOG.error("the run %s stays due: %s", run.id, type(unforeseen).__name__)
            return None
        return found if found is not None and found.state == journal.FAILING else None

    def _give_back(self, run: RunRecord, error: BaseException) -> None:
        """Leave a run without counting this take if the audit log took no entry: there may be many before it does."""
        if is_broker_away(error):
            runtime = self._runtime
            with suppress(Exception), Lifecycle.opened(runtime.database, runtime.audit) as ways:
                ways.give_back(run, runtime.lease_seconds)
            _LOG.error("the run %s waits for the broker's store or audit log", run.id)

    def _attempt(self, run: RunRecord, flow_of: FlowOf, tries: Tries) -> RunResult:
        flow = _loaded(run, flow_of)
        with ExitStack() as locks, self._runtime.database.engine.connect() as connection:
            interpreter = Interpreter(self._runtime, flow, run, connection=connection, locks=locks, tries=tries)
            interpreter.begin()  # 4
            if run.state == journal.FAILING:
                return self._settle(interpreter)
            try:
                interpreter.run_nodes()  # 5: a commit node, and an external one, do 6 and 7 for the nodes before them
                interpreter.enforce()  # 6
                output = normalised(flow, interpreter.output)  # 9, first half: no commit without a valid answer
                interpreter.succeed(output)  # 7, 8, 9
            except (EffectUnknown, Escalated, ConsentNeeded) as pause:
                connection.rollback()
                return self._pause(interpreter, pause)
        return RunResult(run=run.id, state=journal.SUCCEEDED, output=output, notes=tuple(interpreter.notes))

    def _settle(self, interpreter: Interpreter) -> RunResult:
        """Step 8 of a run that fails: refund its charges, and write how it ended. The event that started it stays
        taken, also if its key is free: a captured one could be sent again."""
        run, lost = interpreter.run, _lost_answers(interpreter)
        interpreter.notes |= dict.fromkeys(refund(interpreter))
        owed = owed_notes(interpreter)
        why = {"code": run.failure["code"], "message": run.failure["message"]}
        state = journal.UNKNOWN if lost else journal.FAILED
        end = {**why, "failure": {**why, "owed": bool(owed)}, "notes": [*interpreter.notes, *owed], "output": None}
        end["freed"] = int(frees_key(interpreter.flow.tool, interpreter.steps))
        interpreter.connection.rollback()
        return self._end(run, state, end)

    def _pause(self, interpreter: Interpreter, pause: EffectUnknown | Escalated | ConsentNeeded) -> RunResult:
        """Write why a run stops here. One whose answer was lost has ended, and its key stays taken. A waiting one goes
        on: after the consent, or with the repeated call. Both waits have a deadline."""
        notes, run = [*interpreter.notes], interpreter.run
        if isinstance(pause, EffectUnknown):
            asks = owed_notes(interpreter)
            end = {"message": str(pause), "notes": [*notes, *asks], "failure": {"asks": len(asks)}}
            return self._end(run, journal.UNKNOWN, end)

        asked = pause.asked if isinstance(pause, ConsentNeeded) else None
        state = journal.ESCALATED if asked is None else journal.WAITING

        def paused(ways: Lifecycle) -> None:
            due = ways.now + lifecycle.DECIDES_SECONDS
            if isinstance(pause, ConsentNeeded):
                more = _REPEATS_SECONDS if run.actor and run.actor.repeats else _LATE_SECONDS
                due = pause.asked.expires_at.timestamp() + more
            else:
                approvals.ask(ways.connection, run.id, pause.policy)
            ways.pause(run, state, message=str(pause), notes=notes, due=due)

        self._runtime.transact(paused, interpreter.tries)
        return RunResult(run=run.id, state=state, message=str(pause), notes=tuple(notes), authorization=asked)

    def _end(self, run: RunRecord, state: str, end: Mapping[str, Any]) -> RunResult:
        return result_of(self._runtime.transact(lambda ways: ways.end(run, state, **end)))

    def change(self, run: str, change: Callable[[Lifecycle, RunRecord], object]) -> RunRecord | None:
        """Change a run in a transaction of its own. Return it as it was; None if there is none."""

        def changed(ways: Lifecycle) -> RunRecord | None:
            found = journal.find_run(ways.connection, id=run)
            if found is not None:
                change(ways, found)
            return found

        return self._runtime.transact(changed)


def is_of(run: RunRecord, flow: ReadyFlow) -> bool:
    return run.digest == flow.tool.source.digest


def _loaded(run: RunRecord, flow_of: FlowOf) -> ReadyFlow:
    """Return the flow of a run whose texts can be read. Raises NotLoaded."""
    try:
        flow, _ = flow_of(run), (run.input, run.actor, run.notes, run.failure)
    except Exception as error:  # noqa: BLE001  (of files and stored texts, which others may have changed)
        flow, word = None, type(error).__name__
    else:
        word = "no version"
    if flow is None or not is_of(run, flow):
        raise NotLoaded(word)
    return flow


def _lost_answers(interpreter: Interpreter) -> list[str]:
    """Return the nodes whose effect was sent, without an answer, and cannot be asked for again."""
    lost = [name for name, step in interpreter.steps.items() if step.state == journal.SENT and "/" not in name]
    return [name for name in lost if not repeatable(interpreter.flow, interpreter.flow.tool.nodes[name])]


def _may_ask_again(flow: ReadyFlow | None, sent: Iterable[str]) -> bool:
    """Tell whether the answers of the effects that were sent can be asked for again, under their keys."""
    nodes = flow.tool.nodes if flow else {}
    return flow is not None and all(name in nodes and repeatable(flow, nodes[name]) for name in sent)


def _failure_of(error: BaseException) -> FlowFailed:
    if isinstance(error, FlowFailed):
        return error
    if is_contention(error):
        return FlowFailed("contention", "other calls change the same rows all the time; call again")
    return FlowFailed("internal", f"an error that the flow does not foresee: {type(error).__name__}")
