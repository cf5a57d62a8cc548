"""The execution contract: nine steps, in this order, for each call of a tool. No model takes part in any of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from oauthbroker.flowtools.entities.database import Database, plan
from oauthbroker.flowtools.entities.definition import Entity, entities_by_name
from oauthbroker.flowtools.risk.audit_types import FlowCalled, FlowCallRefused, RunStopped
from oauthbroker.flowtools.running import approvals, checks, journal
from oauthbroker.flowtools.running.auditing import of_caller, of_run
from oauthbroker.flowtools.running.flow import ReadyFlow, ready
from oauthbroker.flowtools.running.journal import RUN, RUNNING, WAITING, RunRecord
from oauthbroker.flowtools.running.lifecycle import DECIDES_SECONDS, FlowRuntime, Lifecycle, Tries
from oauthbroker.flowtools.running.ports import Ports
from oauthbroker.flowtools.running.working import RunResult, Worker, is_of, refusal, result_of
from oauthbroker.flowtools.specification.failures import Actor, FlowFailed
from oauthbroker.flowtools.specification.policies import Policy
from oauthbroker.flowtools.specification.spec import FlowTool
from oauthbroker.plugins import PluginAudit

Claim = Callable[[Connection], None]


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a tool, with its caller's id or key, or the event that starts it. `claim` works in the transaction that
    stores the run. `takes`: this process works on it at once."""

    data: Any = field(repr=False)
    actor: Actor | None
    call: str | None = None
    key: str | None = None
    event: str | None = None
    claim: Claim | None = None
    takes: bool = False


class FlowRuns(Worker):
    """Runs flows on one database. Its calls block: call them from a thread, where an event loop runs."""

    def __init__(
        self,
        database: Database,
        entities: Iterable[Entity],
        ports: Ports | None = None,
        *,
        audit: PluginAudit,
        lease_seconds: float = 60.0,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        """`audit` is `audit_from_threads(broker.audit)`: an act whose entry it refuses does not happen. Raises
        ValueError if the tables do not fit the entities, or are those of a development version."""
        named = entities_by_name(entities)
        if changes := plan(database, named.values()):
            raise ValueError(f"the tables do not fit the entities: {changes[0]}")
        self._ports, wait = ports or Ports(), sleep or threading.Event().wait
        given: dict[str, Any] = {"database": database, "lease_seconds": lease_seconds, "audit": audit}
        super().__init__(FlowRuntime(**given, entities=named, sleep=wait))
        self._runtime.transact(lambda ways: journal.prepare(ways.connection), unique=True)

    def ready(self, tool: FlowTool, policies: Iterable[Policy] = ()) -> ReadyFlow:
        """Check a tool against entities, ports and policies. Raises FlowRefused with every problem."""
        return ready(tool, entities=self._runtime.entities, ports=self._ports, policies=policies)

    def call(
        self, flow: ReadyFlow, data: Any, actor: Actor | None, *, call: str | None = None, key: str | None = None
    ) -> RunResult:
        """Run a tool. A repeated call with the same idempotency key gets the first answer, or goes on with its run. For
        a tool without a key, `call` is the caller's id of the call: another id goes on with a waiting run of the same
        caller and input. `key` is a key for such a tool. Raises an error of the database, and `storeUnavailable` of the
        audit log, only if the call may be repeated: nothing of it is committed, nor will be."""
        given = Call(data=data, actor=actor, call=call, key=key, takes=True)
        try:
            run, is_taken = self._checked(flow, given)
        except FlowFailed as error:
            return refusal(error)
        return self.go(run, lambda _: flow) if is_taken else self.go_on(flow, run)

    def accept(
        self, flow: ReadyFlow, data: Any, actor: Actor | None, *, event: str | None = None, claim: Claim | None = None
    ) -> RunRecord:
        """Take steps 1 to 3. Return the stored run, which goes on by `go_on`, or in each process that resumes. An
        `event` is one run of the tool, however that run ends. `claim` works in the transaction that stores the run: if
        it raises, there is no run. Raises FlowFailed for a call that is refused, after its audit entry."""
        return self._checked(flow, Call(data=data, actor=actor, event=event, claim=claim))[0]

    def go_on(self, flow: ReadyFlow, run: RunRecord) -> RunResult:
        """Take steps 4 to 9, behind the last commit of the run."""
        return self.work(run.id, lambda _: flow, wakes=True) if is_of(run, flow) else result_of(self.find(run.id))

    def resume(self, flow: ReadyFlow, run: str) -> RunResult:
        """Go on with a run that waits for a consent, or was left by its process. Its version must be the same."""
        found = self.find(run)
        if not is_of(found, flow):
            raise ValueError("the run is of another tool or version")
        return self.go_on(flow, found)

    def due(self, most: int) -> list[tuple[str, str]]:
        """Return the id and state of the runs at which a process has to look, by `work`."""
        with self._runtime.database.reading() as connection:
            found = journal.due_runs(connection, self._runtime.database.now(connection), most)
        return [(each.id, each.state) for each in found]

    def session(self, run: str) -> str:
        """Return the auth session that a waiting run waits for; empty if it waits for none, or its caller repeats the
        call: then no other process goes on with it."""
        found = self.find(run)
        if found.state != WAITING or (found.actor and found.actor.repeats):
            return ""
        with self._runtime.database.reading() as connection:
            return journal.waits_for(journal.steps_of(connection, run))

    def consented(self, run: str) -> bool:
        """Let a waiting run go on. Return whether a process works on it, which may be about to make it wait."""
        found = self.change(run, Lifecycle.wake)
        return found is not None and found.state == RUNNING

    def refused(self, run: str, session: str, why: str) -> None:
        """Fail a waiting run whose user has refused, if it waits for that session."""
        self.change(run, lambda ways, found: ways.refuse(found, session, why))

    def _checked(self, flow: ReadyFlow, call: Call) -> tuple[RunRecord, bool]:
        """Take steps 1 to 3. Return the stored run, and whether it is new and taken here. Raises FlowFailed, after its
        audit entry."""
        try:
            checks.validate_input(flow, call.data)  # 1
            checks.authorise(flow, call.actor)  # 2, and the row policy in each read and write
            return self._stored(flow, call)  # 3
        except FlowFailed as error:
            about: dict[str, Any] = {"tool": flow.tool.name, "version": flow.tool.version, **of_caller(call.actor)}
            self._runtime.audit(FlowCallRefused(**about, code=error.code))
            raise

    def _stored(self, flow: ReadyFlow, call: Call) -> tuple[RunRecord, bool]:
        """Store the run. If the answer of the commit is lost, its id tells whether it is there."""
        ids = list[str]()
        try:
            return Tries(self._runtime.sleep)(lambda: self._accept(flow, call, ids), unique=True)
        except SQLAlchemyError:
            with self._runtime.database.reading() as connection:
                found = journal.find_run(connection, id=ids[-1]) if ids else None
            if found is None:
                raise
            return found, bool(found.taken)

    def _accept(self, flow: ReadyFlow, call: Call, ids: list[str]) -> tuple[RunRecord, bool]:
        """Step 3: evaluate the policies, and store the run, or find that of a repeated event or key."""
        tool, key = flow.tool, checks.idempotency_key(flow, call.data, call.actor, call.call) or call.key
        with self._runtime.database.transaction() as connection:
            if call.claim is not None:
                call.claim(connection)
            keys = journal.keys_of(connection, key)
            if known := self._known_run(connection, flow, call, keys):
                self._runtime.audit(FlowCalled(**of_run(known), **of_caller(call.actor)))
                return known, False
            if flow.withdrawn:
                raise FlowFailed("versionWithdrawn", f"version {tool.version} is withdrawn; call another one")
            now, state, message, stop = self._runtime.database.now(connection), journal.RUNNING, None, None
            minute = journal.runs_since(connection, tool.name, now - 60) if tool.policies else 0
            notes = list[str]()
            try:
                pays = any(node.type == "payment" for node in tool.nodes.values())
                facts = checks.facts_of(call.data, pays=pays, requestsPerMinute=minute + 1)
                notes = checks.evaluate_policies(flow, facts, tool.policies)
            except checks.Escalated as error:
                state, message, stop = journal.ESCALATED, str(error), error.policy
            ids.append(self._runtime.database.random_id(connection))
            takes = call.takes and stop is None
            wait = self._runtime.lease_seconds if takes else 0.0 if stop is None else DECIDES_SECONDS
            values: dict[str, Any] = {"id": ids[-1], "tool": tool.name, "version": tool.version, "key": key}
            values |= {"digest": tool.source.digest, "input": call.data, "origin": _origin(call, key)}
            values |= {"state": state, "message": message, "notes": notes, "started": now, "due": now + wait}
            values |= {"taken": int(takes), "generation": journal.next_generation(connection, tool.name, keys)}
            found = journal.insert_run(connection, values, call.actor)
            if call.event is not None:
                journal.take_event(connection, tool.name, call.event, found.id)
            self._runtime.audit(FlowCalled(**of_run(found), **of_caller(call.actor)))
            if stop is not None:
                approvals.ask(connection, found.id, stop)
                self._runtime.audit(RunStopped(**of_run(found), state=state, code=None))
        return found, takes

    def _known_run(
        self, connection: Connection, flow: ReadyFlow, call: Call, keys: Collection[str]
    ) -> RunRecord | None:
        """Return the run that a call goes on with: a waiting one of this input and caller, or that of the event or key.
        Raises FlowFailed for the key of another call."""
        name, caller = flow.tool.name, checks.who(call.actor)
        if call.call is not None and flow.tool.idempotency_key is None:
            same = {"digest": flow.tool.source.digest, "state": WAITING, "input": json.dumps(call.data)}
            for waiting in journal.find_runs(connection, **same):
                if checks.who(waiting.actor) == caller:
                    return waiting
        if call.event is not None and (taken := journal.run_of_event(connection, name, call.event)):
            return taken
        first = journal.find_run(connection, RUN.c.key.in_(keys), tool=name, freed=0) if keys else None
        if first is not None:
            if first.input is None:
                raise FlowFailed("answerGone", "the call was made before, and its answer is no longer kept")
            if (first.input, checks.who(first.actor)) != (call.data, caller):
                raise FlowFailed("idempotencyConflict", "the key belongs to another call")
            if call.event is not None:
                journal.take_event(connection, name, call.event, first.id)
        return first


def _origin(call: Call, key: str | None) -> str:
    """Return who asks for the end of a run. The caller of a `call` without a key does not ask again."""
    if call.event is not None or not call.takes:
        return journal.BY_EVENT
    return journal.BY_AGENT if call.call is not None else journal.BY_CALL if key is None else journal.BY_KEY
