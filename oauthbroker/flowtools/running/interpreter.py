"""The walk of a run through its graph: step 5 of the contract, and the transactions around it. One transaction is open
at a time. A commit node and each external node end it, with the invariants checked and the steps journaled in it; so a
run that is killed goes on behind its last commit, and repeats nothing that was committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NoReturn

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from oauthbroker.flowtools.entities.database import iso
from oauthbroker.flowtools.entities.rows import Rows
from oauthbroker.flowtools.running import effects, journal
from oauthbroker.flowtools.running.approvals import approved
from oauthbroker.flowtools.running.auditing import effect_sent
from oauthbroker.flowtools.running.checks import evaluate_policies, facts_of
from oauthbroker.flowtools.running.flow import ReadyFlow, bound_at_start
from oauthbroker.flowtools.running.journal import LeaseLost, RunRecord, RunStep
from oauthbroker.flowtools.running.lifecycle import FlowRuntime, Lifecycle, Tries
from oauthbroker.flowtools.running.ports import ASK_SECONDS, AnswerLost, ConsentNeeded, Effect, EffectRefused, NotSent
from oauthbroker.flowtools.specification.failures import FlowFailed
from oauthbroker.flowtools.specification.spec import EXTERNAL, Node, lower_camel, read_name


class EffectUnknown(Exception):
    """The answer of an effect was lost: it may have happened, and is not sent again."""


@dataclass(kw_only=True)
class _Wrappers:
    """What retry and timeout nodes say about the next external node."""

    attempts: int = 1
    backoff: float = 0.0
    seconds: float = 30.0


@dataclass
class Interpreter:
    """One run, as far as this process takes it."""

    runtime: FlowRuntime
    flow: ReadyFlow
    run: RunRecord
    _: KW_ONLY
    connection: Connection
    locks: ExitStack
    tries: Tries
    output: Any = None
    notes: dict[str, None] = field(init=False)
    _rows: Rows = field(init=False)
    steps: dict[str, RunStep] = field(init=False)
    _approved: frozenset[str] = field(init=False)
    _values: dict[str, Any] = field(init=False)
    _fields: dict[str, Any] = field(default_factory=dict)  # that edges map into the next node
    _wrappers: _Wrappers = field(default_factory=_Wrappers)
    _progress: bool = False  # a step is done since the last commit

    def begin(self) -> None:
        """Open a transaction, and read the steps that are committed. Raises LeaseLost if the run is not ours any more:
        another one has it, or the answer of our last commit was lost."""
        self._values = bound_at_start(self.run.input, self.run.actor)
        if self.flow.is_pessimistic:  # a lock inside of a transaction comes behind its snapshot, and loses the race
            self.locks.enter_context(self.runtime.database.locked(effects.named_rows(self.flow, self._values)))
        run = self.run
        is_new = run.state == journal.RUNNING and run.taken == 1 and not (run.takes or self.tries.committed)
        now = run if is_new else journal.find_run(self.connection, id=run.id)
        if now is None or (now.taken, now.state) != (self.run.taken, self.run.state):
            raise LeaseLost(self.run.id)
        self.notes = dict.fromkeys(run.notes)
        self._rows = Rows(self.connection, self.runtime.entities, self.run.actor)
        self.steps = {} if is_new else journal.steps_of(self.connection, self.run.id)
        self._approved = frozenset() if is_new else approved(self.connection, self.run.id)

    def run_nodes(self) -> None:
        """Take the nodes one by one along the edges. A step that is done is not done again."""
        at: str | None = self.flow.tool.start
        while at is not None:
            node = self.flow.tool.nodes[at]
            step = self.steps.get(at)
            if step is None or step.state != journal.DONE:
                touched = self._rows.touched
                value = self._do(node)
                if node.type not in EXTERNAL:
                    self.write(node.id, RunStep(state=journal.DONE, value=value, rows=self._rows.touched - touched))
                if node.type == "transaction" and node.operation == "commit":
                    self.enforce()
                    self.commit()
            at = self._leave(node, self.steps[at].value)

    def enforce(self) -> None:
        """Check the invariants of the rows that were changed, then the policies against the touched rows."""
        self._rows.check_invariants()
        self._judge(self.facts(pays=True), self.flow.tool.policies)

    def commit(self, *, seconds: float = 0.0, cancellable: bool = True) -> None:
        """Commit rows and steps, if the run is still ours, with a lease for another call outside of `seconds`."""
        ways = self._ways()
        values: dict[str, Any] = {"due": ways.now + self.runtime.lease_seconds + seconds, "notes": list(self.notes)}
        values |= {"takes": 0} if self._progress else {}
        ways.change(self.run, cancellable=cancellable, **values)
        self.tries.commit(self.connection)
        self._progress = False

    def succeed(self, output: Any) -> None:
        """Commit rows and steps together with the end of the run and its audit entry."""
        self._ways().end(self.run, journal.SUCCEEDED, cancellable=True, output=output, notes=list(self.notes))
        self.tries.commit(self.connection)

    def _ways(self) -> Lifecycle:
        return Lifecycle(self.connection, self.runtime.database.now(self.connection), self.runtime.audit)

    def now(self) -> str:
        """Return the database's time, as rows and effects have it."""
        return iso(self.runtime.database.now(self.connection))

    def facts(self, **more: Any) -> Mapping[str, Any]:
        """Return what policies may read of the run so far."""
        return facts_of(self.run.input, rows=sum(step.rows for step in self.steps.values()), **more)

    def _judge(self, facts: Mapping[str, Any], names: Iterable[str]) -> None:
        """Evaluate policies, and keep their notes."""
        self.notes |= dict.fromkeys(evaluate_policies(self.flow, facts, names, approved=self._approved))

    def _leave(self, node: Node, value: Any) -> str | None:
        """Bind a node's value, and return the next node."""
        label = None
        match node.type:
            case "read":
                self._values |= dict.fromkeys((node.id, lower_camel(read_name(node))), value)
                self.output = value
            case "if" | "switch":
                label = value if (node.id, value) in self.flow.edges else "default"
            case "retry":
                self._wrappers.attempts = int(node.config.get("attempts", 3))
                self._wrappers.backoff = node.config.get("backoffSeconds", 1.0)
            case "timeout":
                self._wrappers.seconds = node.config["seconds"]
            case "transaction" | "assert" | "policyCheck":
                pass
            case _:
                self._values[node.id] = {"result": value}
                self.output = value
        if node.type not in {"retry", "timeout"}:
            self._wrappers = _Wrappers()
        edge = self.flow.edges.get((node.id, label))
        if edge is None:
            return None
        mapped = edge.data_mapping.items()
        self._fields = {there: value.get(here) if isinstance(value, dict) else None for here, there in mapped}
        return edge.target

    def _do(self, node: Node) -> Any:
        """Do what a node says, and return its value."""
        match node.type:
            case "read":
                filter_, lock = self._fields | self.flow.values(node, "filter", self._values), self.flow.is_pessimistic
                return effects.read_rows(self._rows, self.runtime.entities, node, filter_, lock=lock)
            case "write":
                return self._write(node)
            case "transform":
                return self._expression(node)
            case "if":
                return "true" if self._expression(node) else "false"
            case "switch":
                return effects.case_of(self._expression(node))
            case "assert":
                if self._expression(node) is not True:
                    raise FlowFailed("assertFailed", node.config.get("message", f"the assertion {node.id} failed"))
            case "policyCheck":
                self._judge(self.facts(), [node.config["policy"]])
            case "payment" | "email" | "sms" | "httpRequest":
                return self._external(node)
        return None

    def _expression(self, node: Node) -> Any:
        return self.flow.value((*node.path, "config", "expression"), self._values)

    def _write(self, node: Node) -> Any:
        fields = self._fields | self.flow.values(node, "fields", self._values)
        if node.operation == "create":
            return effects.create_row(self._rows, self.runtime.entities, self.run, node, fields)
        filter_ = self.flow.values(node, "filter", self._values)
        return effects.change_rows(self._rows, node, filter_, fields, self.now)

    def _external(self, node: Node) -> Any:
        """Send an effect behind the commit of all before it."""
        before, again = self.steps.get(node.id), effects.repeatable(self.flow, node)
        key = effects.effect_key(self.run, node.id, self.run.generation if before is None else before.generation)
        given: dict[str, Any] = {"values": self._values, "mapped": self._fields, "key": key, "at": self.now()}
        effect = effects.effect_of(self.flow, self.run, node, **given, seconds=float(self._wrappers.seconds))
        if before is not None and before.state in {journal.SENT, journal.UNKNOWN} and not again:
            self._unknown(node, before.attempts)
        if node.type == "payment":
            self._judge(self.facts(payment=effect.fields), self.flow.tool.policies)
        self.enforce()
        attempt, uncertain = before.attempts if before else 0, before is not None and before.state == journal.SENT
        while True:
            attempt += 1
            try:
                value = self._send(node, effect, attempt)
            except (NotSent, EffectRefused, AnswerLost) as error:
                refused = isinstance(error, EffectRefused) and not error.again
                uncertain = isinstance(error, AnswerLost) or (uncertain and not refused)
                self._failed_attempt(node, error, attempt, uncertain=uncertain, repeatable=again)
            except ConsentNeeded as pause:
                waits = {"session": pause.asked.auth_session_id, "app": effect.fields["app"]}
                self.record(node.id, RunStep(state=journal.WAITS, value=waits, attempts=attempt - 1))
                raise
            else:
                self.record(node.id, RunStep(state=journal.DONE, value=value, attempts=attempt))
                return value

    def _send(self, node: Node, effect: Effect, attempt: int) -> Any:
        """Write to journal and audit log that an effect is sent, and send it. A request looks for its token before,
        outside of any transaction: one that has to wait for a user was certainly not sent."""
        requests = self.flow.ports.requests if node.type == "httpRequest" else None
        if requests is not None:
            self.commit(seconds=ASK_SECONDS)
            self.locks.close()
            requests.ask(effect)
        self.write(node.id, RunStep(state=journal.SENT, value=None, attempts=attempt))
        self.runtime.audit(effect_sent(self.run, node, effect.operation, attempt))
        self.commit(seconds=effect.seconds)
        self.locks.close()
        way = requests if requests is not None else effects.adapter_of(self.flow, node)
        return effects.sent(way, effect, node)

    def _failed_attempt(self, node: Node, error: Exception, attempt: int, *, uncertain: bool, repeatable: bool) -> None:
        """Wait before another attempt, or raise. After a lost answer, the effect stays `uncertain` until the other side
        answers; it is an unknown end, unless it can be asked for again."""
        again = repeatable if uncertain else not isinstance(error, EffectRefused) or error.again
        if uncertain and (not repeatable or attempt >= self._wrappers.attempts):
            self._unknown(node, attempt)
        if not again or attempt >= self._wrappers.attempts:
            self.record(node.id, RunStep(state=journal.RETRY, value=None, attempts=0))
            raise FlowFailed("externalFailed", f"{node.id}: {error}")
        wait = min(self._wrappers.backoff * 2 ** (attempt - 1), 3600.0)
        state = journal.SENT if uncertain else journal.RETRY
        self.record(node.id, RunStep(state=state, value=None, attempts=attempt), wait)
        self.runtime.sleep(wait)

    def _unknown(self, node: Node, attempts: int) -> NoReturn:
        self.record(node.id, RunStep(state=journal.UNKNOWN, value=None, attempts=attempts))
        raise EffectUnknown(f"{node.id}: the answer was lost, and the effect may have happened")

    def record(self, name: str, step: RunStep, seconds: float = 0.0) -> None:
        """Journal the outcome of an attempt at once. It is tried again by itself if it loses a race: the answer of an
        effect must not be lost by another transaction, nor by a person who cancels."""

        def recorded() -> None:
            try:
                self.write(name, step)
                self.commit(seconds=seconds, cancellable=False)
            except SQLAlchemyError:
                self.connection.rollback()
                raise

        self.tries(recorded)

    def write(self, name: str, step: RunStep) -> None:
        """Journal a step in the open transaction."""
        before = self.steps.get(name)
        step = replace(step, generation=self.run.generation if before is None else before.generation)
        journal.write_step(self.connection, self.run.id, name, step, new=before is None)
        self._progress |= step.state == journal.DONE
        self.steps[name] = step
