"""The execution contract: nine steps, in this order, for each call of a tool. No model takes part in any of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.entities.definition import Entity, entities_by_name
from oauthbroker.flowtools.entities.tables import plan
from oauthbroker.flowtools.running import journal, lifecycle
from oauthbroker.flowtools.running.accepting import Acceptance, Call, Claim
from oauthbroker.flowtools.running.flow import ReadyFlow, ready
from oauthbroker.flowtools.running.journal import RUNNING, WAITING, RunRecord
from oauthbroker.flowtools.running.ports import Ports
from oauthbroker.flowtools.running.result import RunResult, refusal, result_of
from oauthbroker.flowtools.running.working import FlowOf, Worker, is_of
from oauthbroker.flowtools.specification.failures import Actor, FlowFailed
from oauthbroker.flowtools.specification.policies import Policy
from oauthbroker.flowtools.specification.spec import FlowTool
from oauthbroker.plugins import PluginAudit


class FlowRuns:
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
        self._database, self._entities = database, entities_by_name(entities)
        if changes := plan(database, self._entities.values()):
            raise ValueError(f"the tables do not fit the entities: {changes[0]}")
        self._ports = ports or Ports()
        given: dict[str, Any] = {"database": database, "lease_seconds": lease_seconds, "audit": audit}
        given["sleep"] = sleep or threading.Event().wait
        self._acceptance, self._worker = Acceptance(**given), Worker(**given, entities=self._entities)
        with database.transaction() as connection:
            journal.prepare(connection)

    def ready(self, tool: FlowTool, policies: Iterable[Policy] = ()) -> ReadyFlow:
        """Check a tool against entities, ports and policies. Raises FlowRefused with every problem."""
        return ready(tool, entities=self._entities, ports=self._ports, policies=policies)

    def call(
        self, flow: ReadyFlow, data: Any, actor: Actor | None, *, call: str | None = None, key: str | None = None
    ) -> RunResult:
        """Run a tool. A repeated call with the same idempotency key gets the first answer, or goes on with its run. For
        a tool without a key, `call` is the caller's id of the call: another id goes on with a waiting run of the same
        caller and input. `key` is a key for such a tool. Raises an error of the database, and `storeUnavailable` of the
        audit log, only if the call may be repeated: nothing of it is committed, nor will be."""
        given = Call(data=data, actor=actor, call=call, key=key, takes=True)
        try:
            run, is_taken = self._acceptance.checked(flow, given)
        except FlowFailed as error:
            return refusal(error)
        return self._worker.go(run, lambda _: flow) if is_taken else self.go_on(flow, run)

    def accept(
        self,
        flow: ReadyFlow,
        data: Any,
        actor: Actor | None,
        *,
        event: str | None = None,
        claim: Claim | None = None,
    ) -> RunRecord:
        """Take steps 1 to 3. Return the stored run, which goes on by `go_on`, or in each process that resumes. An
        `event` is one run of the tool, however that run ends. `claim` works in the transaction that stores the run: if
        it raises, there is no run. Raises FlowFailed for a call that is refused, after its audit entry."""
        return self._acceptance.checked(flow, Call(data=data, actor=actor, event=event, claim=claim))[0]

    def go_on(self, flow: ReadyFlow, run: RunRecord) -> RunResult:
        """Take steps 4 to 9, behind the last commit of the run."""
        return self.work(run.id, lambda _: flow, wakes=True) if is_of(run, flow) else result_of(self.find(run.id))

    def resume(self, flow: ReadyFlow, run: str) -> RunResult:
        """Go on with a run that waits for a consent, or was left by its process. Its version must be the same."""
        found = self.find(run)
        if not is_of(found, flow):
            raise ValueError("the run is of another tool or version")
        return self.go_on(flow, found)

    def work(self, run: str, flow_of: FlowOf, *, wakes: bool = False) -> RunResult:
        """Take a run that is due, and bring it to its end or to a wait. `wakes`: a waiting one, too."""
        return self._worker.work(run, flow_of, wakes=wakes)

    def find(self, run: str) -> RunRecord:
        return self._worker.find(run)

    def due(self, most: int) -> list[tuple[str, str]]:
        """Return the id and state of the runs at which a process has to look, by `work`."""
        with self._database.reading() as connection:
            found = journal.due_runs(connection, self._database.now(connection), most)
        return [(each.id, each.state) for each in found]

    def session(self, run: str) -> str:
        """Return the auth session that a waiting run waits for; empty if it waits for none, or its caller repeats the
        call: then no other process goes on with it."""
        found = self.find(run)
        if found.state != WAITING or (found.actor and found.actor.repeats):
            return ""
        with self._database.reading() as connection:
            return journal.waits_for(journal.steps_of(connection, run))

    def consented(self, run: str) -> bool:
        """Let a waiting run go on. Return whether a process works on it, which may be about to make it wait."""
        found = self._worker.change(run, lifecycle.wake)
        return found is not None and found.state == RUNNING

    def refused(self, run: str, session: str, why: str) -> None:
        """Fail a waiting run whose user has refused, if it waits for that session."""
        given: dict[str, Any] = {"session": session, "why": why, "audit": self._worker.audit}
        self._worker.change(run, lambda each, found, now: lifecycle.refuse(each, found, now=now, **given))
