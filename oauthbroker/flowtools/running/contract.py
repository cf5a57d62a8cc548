"""The execution contract: nine steps, in this order, for each call of a tool. No model takes part in any of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError

from oauthbroker import AuthorizationRequired
from oauthbroker.flowtools.entities.database import Database, is_lost_race
from oauthbroker.flowtools.entities.definition import Entity, entities_by_name
from oauthbroker.flowtools.entities.tables import plan
from oauthbroker.flowtools.failures import Actor, FlowFailed, RefusedConsent
from oauthbroker.flowtools.policies import Policy
from oauthbroker.flowtools.running import approvals, journal
from oauthbroker.flowtools.running.checks import authorise, idempotency_key, normalised, validate_input, who
from oauthbroker.flowtools.running.flow import ReadyFlow, ready
from oauthbroker.flowtools.running.journal import (
    ESCALATED,
    FAILED,
    PARKED,
    RUNNING,
    SUCCEEDED,
    UNKNOWN,
    LeaseLost,
    RunRecord,
)
from oauthbroker.flowtools.running.policing import Escalated, Facts, judge_policies
from oauthbroker.flowtools.running.ports import ConsentNeeded, Ports
from oauthbroker.flowtools.running.refunds import owed_notes, refund
from oauthbroker.flowtools.running.walk import MOST_TRIES, EffectUnknown, Walk
from oauthbroker.flowtools.spec import FlowTool

T = TypeVar("T")
Claim = Callable[[Connection], None]
_GRACE_SECONDS = 30.0  # in which the caller of a new run takes it


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The end of a call. `state` is succeeded, failed, escalated (a person has to decide), unknown (an answer was
    lost), parked (a user has to consent) or running (in another process). `authorization` has the link of a parked run,
    for its user alone; it is not stored. `errors` are those of FlowFailed."""

    run: str | None
    state: str
    output: Any = field(default=None, repr=False)
    code: str | None = None
    message: str | None = None
    notes: tuple[str, ...] = ()
    authorization: AuthorizationRequired | None = None
    errors: tuple[tuple[str, str], ...] = ()


class FlowRuns:
    """Runs flows on one database. Its calls block: call them from a thread, where an event loop runs."""

    def __init__(
        self,
        database: Database,
        entities: Iterable[Entity],
        ports: Ports | None = None,
        *,
        policies: Iterable[Policy] = (),
        lease_seconds: float = 60.0,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        """Raises ValueError if the tables do not fit the entities."""
        self._database, self._entities = database, entities_by_name(entities)
        if changes := plan(database, self._entities.values()):
            raise ValueError(f"the tables do not fit the entities: {changes[0]}")
        self._ports, self._policies = ports or Ports(), tuple(policies)
        self._lease_seconds, self._sleep = lease_seconds, sleep or threading.Event().wait
        with database.transaction() as connection:
            journal.META.create_all(connection)

    def ready(self, tool: FlowTool, policies: Iterable[Policy] = ()) -> ReadyFlow:
        """Check a tool against entities, policies and ports. `policies` are more of them, such as those that a version
        was deployed with. Raises FlowRefused with every flaw."""
        return ready(tool, entities=self._entities, ports=self._ports, policies=(*self._policies, *policies))

    def call(
        self, flow: ReadyFlow, data: Any, actor: Actor | None, *, call: str | None = None, key: str | None = None
    ) -> RunResult:
        """Run a tool. A repeated call with the same idempotency key gets the first answer, or goes on with its run.

        `call` is the id that a caller gives to its call. For a tool without an idempotency key, the same id is the same
        call, and another id goes on with a parked run of the same caller and input. `key` is a key for such a tool.
        """
        try:
            run, is_taken = self._checked(flow, data, actor, call=call, key=key, takes=True)
        except FlowFailed as error:
            return refusal(error)
        return self._work(flow, run, None) if is_taken else self.go_on(flow, run)

    def accept(
        self,
        flow: ReadyFlow,
        data: Any,
        actor: Actor | None,
        *,
        event: str | None = None,
        claim: Claim | None = None,
    ) -> RunRecord:
        """Take steps 1 to 3. Return the stored run, which goes on by `go_on`, or in each process that resumes.

        An `event` is one run of the tool, however that run ends: a repeated event gets it. `claim` works in the
        transaction that stores the run: if it raises, there is no run. Raises FlowFailed for a call that is refused,
        after its audit entry.
        """
        return self._checked(flow, data, actor, event=event, claim=claim)[0]

    def resume(self, flow: ReadyFlow, run: str, *, refused: RefusedConsent | None = None) -> RunResult:
        """Go on with a run that is parked, or was abandoned by its process. Its version must be the same. It
        fails if it waits for the session that was `refused`; a repeated call may have asked for another one since."""
        found = self.find(run)
        if found.digest != flow.tool.source.digest:
            raise ValueError("the run is of another tool or version")
        return self.go_on(flow, found, refused=refused)

    def left(self) -> list[tuple[RunRecord, str]]:
        """Return runs that no process works on, each with the auth session that it waits for, or an empty text."""
        with self._database.transaction() as connection:
            return journal.left_runs(connection, self._database.now(connection) - _GRACE_SECONDS)

    def find(self, run: str) -> RunRecord:
        with self._database.transaction() as connection:
            found = journal.find_run(connection, id=run)
        if found is None:
            raise ValueError("no run with this id")
        return found

    def _checked(self, flow: ReadyFlow, data: Any, actor: Actor | None, **of_call: Any) -> tuple[RunRecord, bool]:
        try:
            validate_input(flow, data)  # 1
            authorise(flow, actor)  # 2, and the row policy in each read and write
            return self._serially(lambda: self._accept(flow, data, actor, **of_call))  # 3
        except FlowFailed as error:
            self._refuse(flow, actor, error)
            raise

    def _accept(
        self,
        flow: ReadyFlow,
        data: Any,
        actor: Actor | None,
        *,
        call: str | None = None,
        key: str | None = None,
        event: str | None = None,
        claim: Claim | None = None,
        takes: bool = False,
    ) -> tuple[RunRecord, bool]:
        """Step 3: evaluate the policies, and store the run. Return it, or the stored one for a repeated event or key,
        and whether it is new and this process has taken it: with `takes`, unless a policy stops it."""
        tool, key = flow.tool, idempotency_key(flow, data, actor, call) or key
        with self._database.transaction() as connection:
            if claim is not None:
                claim(connection)
            if known := self._known_run(connection, flow, (data, who(actor)), call=call, key=key, event=event):
                return known, False
            if flow.withdrawn:
                raise FlowFailed("versionWithdrawn", f"version {tool.version} is withdrawn; call another one")
            now = self._database.now(connection)
            facts = Facts(input=data, requests_per_minute=journal.runs_since(connection, tool.name, now - 60) + 1)
            state, message, notes, stop = RUNNING, None, list[str](), None
            try:
                notes = judge_policies(flow, facts, tool.policies)
            except Escalated as error:
                state, message, stop = ESCALATED, str(error), error.policy
            values: dict[str, Any] = {
                "id": self._database.random_id(connection),
                "tool": tool.name,
                "version": tool.version,
            }
            values |= {"digest": tool.source.digest, "key": key, "input": data, "started": now}
            values |= {"state": state, "message": message, "notes": notes}
            if is_taken := takes and stop is None:
                values |= {"taken": 1, "lease_until": now + self._lease_seconds}
            journal.insert_run(connection, values, actor)
            if event is not None:
                journal.take_event(connection, tool.name, event, values["id"])
            if stop is not None:
                approvals.ask(connection, values["id"], stop)
                self._audit(connection, flow, actor, (values["id"], state, None))
            found = journal.find_run(connection, id=values["id"])
        assert found is not None  # noqa: S101  (just written)
        return found, is_taken

    def _known_run(
        self,
        connection: Connection,
        flow: ReadyFlow,
        of: tuple[Any, Any],
        *,
        call: str | None,
        key: str | None,
        event: str | None,
    ) -> RunRecord | None:
        """Return the run that a call goes on with: a parked one of this input and caller, or that of the event or key.
        Raises FlowFailed for the key of another call."""
        name = flow.tool.name
        if call is not None and flow.tool.idempotency_key is None:
            for parked in journal.parked_runs(connection, flow.tool.source.digest, of[0]):
                if who(parked.actor) == of[1]:
                    return parked
        if event is not None and (taken := journal.run_of_event(connection, name, event)):
            return taken
        first = None if key is None else journal.find_run(connection, tool=name, key=key)
        if first is not None:
            if (first.input, who(first.actor)) != of:
                raise FlowFailed("idempotencyConflict", "the key belongs to another call")
            if event is not None:
                journal.take_event(connection, name, event, first.id)
        return first

    def go_on(self, flow: ReadyFlow, run: RunRecord, *, refused: RefusedConsent | None = None) -> RunResult:
        """Take steps 4 to 9, behind the last commit of the run. A transaction that lost a race starts again there."""
        taken = self._serially(lambda: self._take(run.id)) if run.digest == flow.tool.source.digest else None
        return self._work(flow, taken, refused) if taken is not None else _told(self.find(run.id))

    def _work(self, flow: ReadyFlow, run: RunRecord, refused: RefusedConsent | None) -> RunResult:
        """Work on a run that this process has taken."""
        with suppress(LeaseLost):
            return self._serially(lambda: self._attempt(flow, run, refused))
        return _told(self.find(run.id))

    def _attempt(self, flow: ReadyFlow, run: RunRecord, refused: RefusedConsent | None) -> RunResult:
        walk = Walk(
            database=self._database,
            entities=self._entities,
            flow=flow,
            run=run,
            lease_seconds=self._lease_seconds,
            sleep=self._sleep,
            notes=dict.fromkeys(run.notes),
            refused=refused,
        )
        try:
            walk.begin()  # 4
            walk.run_nodes()  # 5: a commit node, and an external one, do 6 and 7 for the nodes before them
            walk.enforce()  # 6
            output = normalised(flow, walk.output)  # 9, first half: nothing is committed whose answer is not valid
            return self._succeed(walk, output)  # 7, 8, 9
        except (EffectUnknown, Escalated, ConsentNeeded) as pause:
            walk.close()
            return self._pause(walk, pause)
        except FlowFailed as error:
            walk.connection.rollback()
            walk.notes |= dict.fromkeys(refund(walk, error))
            walk.close()
            return self._fail(walk, error)  # 8
        finally:
            walk.close()

    def _take(self, run: str) -> RunRecord | None:
        """Take a run for this process. None if it ended, or another process has its lease."""
        with self._database.transaction() as connection:
            found = journal.find_run(connection, id=run)
            now = self._database.now(connection)
            if found is None or found.state in journal.ENDED or found.lease_until > now:
                return None
            mine: dict[str, Any] = {
                "taken": found.taken + 1,
                "lease_until": now + self._lease_seconds,
                "state": RUNNING,
            }
            journal.change_run(connection, found, **mine)
            return replace(found, **mine)

    def _succeed(self, walk: Walk, output: Any) -> RunResult:
        """Steps 7 to 9: commit the rows together with the end of the run and its audit entry, and return the answer."""
        end: dict[str, Any] = {"state": SUCCEEDED, "output": output, "notes": list(walk.notes), "lease_until": 0.0}
        end |= {"code": None, "message": None}
        self._audit(walk.connection, walk.flow, walk.run.actor, (walk.run.id, SUCCEEDED, None))
        walk.commit(end)
        return _told(replace(walk.run, **end))

    def _fail(self, walk: Walk, error: FlowFailed) -> RunResult:
        """Step 8: write how the run ended, and the audit entry with it.

        A failed run of which nothing was committed gives its key free, so that the call can be made again. The event
        that started it stays taken: a captured one could be sent again.
        """
        notes = [*walk.notes, *owed_notes(walk)]
        end: dict[str, Any] = {"state": FAILED, "output": None, "notes": notes, "lease_until": 0.0}
        end |= {"code": error.code, "message": error.message, "key": walk.run.key if walk.committed else None}
        return self._end(walk, end)

    def _pause(self, walk: Walk, pause: EffectUnknown | Escalated | ConsentNeeded) -> RunResult:
        """Write why a run stops here. One whose answer was lost has ended, and its key stays taken. A parked one goes
        on: after the consent, or with the repeated call."""
        asked = pause.asked if isinstance(pause, ConsentNeeded) else None
        state = PARKED if asked else UNKNOWN if isinstance(pause, EffectUnknown) else ESCALATED
        notes = [*walk.notes, *(owed_notes(walk) if state == UNKNOWN else ())]
        lease = journal.PARKED_LEASE if asked else 0.0
        end: dict[str, Any] = {"state": state, "message": str(pause), "notes": notes, "lease_until": lease}
        stop = pause.policy if isinstance(pause, Escalated) else None
        return replace(self._end(walk, end, stop), authorization=asked)

    def _end(self, walk: Walk, end: dict[str, Any], stop: str | None = None) -> RunResult:
        """Write how a run ends or pauses, with the audit entry. `stop` is the policy that asks for a decision."""

        def ended() -> None:
            with self._database.transaction() as connection:
                journal.change_run(connection, walk.run, **end)
                if stop is not None:
                    approvals.ask(connection, walk.run.id, stop)
                self._audit(connection, walk.flow, walk.run.actor, (walk.run.id, end["state"], end.get("code")))

        self._serially(ended)
        return _told(replace(walk.run, **end))

    def _refuse(self, flow: ReadyFlow, actor: Actor | None, error: FlowFailed) -> None:
        """Write the audit entry of a call that was refused before it began."""

        def refused() -> None:
            with self._database.transaction() as connection:
                self._audit(connection, flow, actor, (None, "refused", error.code))

        self._serially(refused)

    def _audit(self, connection: Connection, flow: ReadyFlow, actor: Actor | None, end: tuple[Any, str, Any]) -> None:
        who = {"tool": flow.tool.name, "version": flow.tool.version, "actor": actor.id if actor else None}
        at = self._database.now(connection)
        journal.write_audit(connection, **who, run=end[0], outcome=end[1], code=end[2], at=at)

    def _serially(self, work: Callable[[], T]) -> T:
        """Do work in transactions of its own, again while it loses races against others."""
        for tries in range(MOST_TRIES):
            try:
                return work()
            except DBAPIError as error:
                if tries + 1 == MOST_TRIES or not (is_lost_race(error) or isinstance(error, IntegrityError)):
                    raise
                self._sleep(0.005 * 2**tries)
        raise AssertionError


def refusal(error: FlowFailed) -> RunResult:
    """Return the end of a call that was refused before it became a run."""
    return RunResult(run=None, state=FAILED, code=error.code, message=error.message, errors=error.errors)


def _told(run: RunRecord) -> RunResult:
    shown = {"output": run.output, "code": run.code, "message": run.message, "notes": tuple(run.notes)}
    return RunResult(run=run.id, state=run.state, **shown)
