"""Steps 1 to 3 of the contract: a call is checked, and its run is stored, or the stored one is found."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.running import approvals, journal
from oauthbroker.flowtools.running.auditing import FlowCalled, FlowCallRefused, RunStopped, of_caller, of_run
from oauthbroker.flowtools.running.checks import authorise, idempotency_key, validate_input, who
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.journal import RunRecord
from oauthbroker.flowtools.running.lifecycle import DECIDES_SECONDS
from oauthbroker.flowtools.running.policy_enforcement import Escalated, evaluate_policies, facts_of
from oauthbroker.flowtools.running.tries import Tries
from oauthbroker.flowtools.specification.failures import Actor, FlowFailed
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


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Accepts calls on one database."""

    database: Database
    lease_seconds: float
    sleep: Callable[[float], object]
    audit: PluginAudit

    def checked(self, flow: ReadyFlow, call: Call) -> tuple[RunRecord, bool]:
        """Return the stored run, and whether it is new and taken here. Raises FlowFailed, after its audit entry."""
        try:
            validate_input(flow, call.data)  # 1
            authorise(flow, call.actor)  # 2, and the row policy in each read and write
            return self._stored(flow, call)  # 3
        except FlowFailed as error:
            about: dict[str, Any] = {"tool": flow.tool.name, "version": flow.tool.version, "code": error.code}
            self.audit(FlowCallRefused(**about, **of_caller(call.actor)))
            raise

    def _stored(self, flow: ReadyFlow, call: Call) -> tuple[RunRecord, bool]:
        """Store the run. If the answer of the commit is lost, its id tells whether it is there."""
        ids = list[str]()
        try:
            return Tries(self.sleep)(lambda: self._accept(flow, call, ids), unique=True)
        except SQLAlchemyError:
            with self.database.reading() as connection:
                found = journal.find_run(connection, id=ids[-1]) if ids else None
            if found is None:
                raise
            return found, bool(found.taken)

    def _accept(self, flow: ReadyFlow, call: Call, ids: list[str]) -> tuple[RunRecord, bool]:
        """Step 3: evaluate the policies, and store the run, or find that of a repeated event or key."""
        tool, key = flow.tool, idempotency_key(flow, call.data, call.actor, call.call) or call.key
        with self.database.transaction() as connection:
            if call.claim is not None:
                call.claim(connection)
            keys = journal.keys_of(connection, key)
            if known := self._known_run(connection, flow, call, keys):
                self.audit(FlowCalled(**of_run(known), **of_caller(call.actor)))
                return known, False
            if flow.withdrawn:
                raise FlowFailed("versionWithdrawn", f"version {tool.version} is withdrawn; call another one")
            now, state, message, stop = self.database.now(connection), journal.RUNNING, None, None
            minute = journal.runs_since(connection, tool.name, now - 60) if tool.policies else 0
            notes = list[str]()
            try:
                notes = evaluate_policies(flow, facts_of(call.data, requests_per_minute=minute + 1), tool.policies)
            except Escalated as error:
                state, message, stop = journal.ESCALATED, str(error), error.policy
            ids.append(self.database.random_id(connection))
            takes = call.takes and stop is None
            wait = self.lease_seconds if takes else 0.0 if stop is None else DECIDES_SECONDS
            values: dict[str, Any] = {"id": ids[-1], "tool": tool.name, "version": tool.version, "key": key}
            values |= {"digest": tool.source.digest, "input": call.data, "origin": _origin(call, key)}
            values |= {"state": state, "message": message, "notes": notes, "started": now, "due": now + wait}
            values |= {"taken": int(takes), "generation": journal.next_generation(connection, tool.name, keys)}
            found = journal.insert_run(connection, values, call.actor)
            if call.event is not None:
                journal.take_event(connection, tool.name, call.event, found.id)
            self.audit(FlowCalled(**of_run(found), **of_caller(call.actor)))
            if stop is not None:
                approvals.ask(connection, found.id, stop)
                self.audit(RunStopped(**of_run(found), state=state, code=None))
        return found, takes

    def _known_run(
        self, connection: Connection, flow: ReadyFlow, call: Call, keys: Collection[str]
    ) -> RunRecord | None:
        """Return the run that a call goes on with: a waiting one of this input and caller, or that of the event or key.
        Raises FlowFailed for the key of another call."""
        name, caller = flow.tool.name, who(call.actor)
        if call.call is not None and flow.tool.idempotency_key is None:
            for waiting in journal.waiting_runs(connection, flow.tool.source.digest, call.data):
                if who(waiting.actor) == caller:
                    return waiting
        if call.event is not None and (taken := journal.run_of_event(connection, name, call.event)):
            return taken
        first = journal.run_of_key(connection, name, keys)
        if first is not None:
            if first.input is None:
                raise FlowFailed("answerGone", "the call was made before, and its answer is no longer kept")
            if (first.input, who(first.actor)) != (call.data, caller):
                raise FlowFailed("idempotencyConflict", "the key belongs to another call")
            if call.event is not None:
                journal.take_event(connection, name, call.event, first.id)
        return first


def _origin(call: Call, key: str | None) -> str:
    """Return who asks for the end of a run. The caller of a `call` without a key does not ask again."""
    if call.event is not None or not call.takes:
        return journal.BY_EVENT
    return journal.BY_AGENT if call.call is not None else journal.BY_CALL if key is None else journal.BY_KEY
