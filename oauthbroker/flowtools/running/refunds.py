"""Refunds: the compensation of a run's charges when a later step fails. The policy `paymentRollback` stands for it.

A run is `failing` before the first refund is sent, so one that is killed refunds on and does not run again.
"""

from __future__ import annotations

from typing import Final

from oauthbroker.flowtools.running.auditing import effect_sent
from oauthbroker.flowtools.running.effects import adapter_of, effect_key, sent
from oauthbroker.flowtools.running.interpreter import Interpreter
from oauthbroker.flowtools.running.journal import DONE, RETRY, SENT, UNKNOWN, RunStep
from oauthbroker.flowtools.running.payments import REFUND, payments, unrefunded
from oauthbroker.flowtools.running.policy_enforcement import evaluate_policies
from oauthbroker.flowtools.running.ports import AnswerLost, Effect, EffectRefused, NotSent
from oauthbroker.flowtools.specification.failures import FlowFailed
from oauthbroker.flowtools.specification.spec import Node

_ATTEMPTS: Final = 3
_SECONDS: Final = 30.0


def refund(interpreter: Interpreter) -> list[str]:
    """Refund the charges of a failed run, the last one first. Return a note for each that is refunded. A charge whose
    answer was lost is not refunded: it may not have happened."""
    owed = [
        node
        for node in unrefunded(interpreter.flow.tool, interpreter.steps)
        if interpreter.steps[node.id].state == DONE
    ]
    for node in owed:
        _refund(interpreter, node)
    steps = {node.id: interpreter.steps.get(node.id + REFUND) for node in payments(interpreter.flow.tool)}
    return [f"{name}: the charge was refunded" for name, step in steps.items() if step and step.state == DONE]


def owed_notes(interpreter: Interpreter) -> list[str]:
    """Return what the policies say about the payments that a run without success still owes."""
    owed = len(unrefunded(interpreter.flow.tool, interpreter.steps))
    if not owed:
        return []
    try:
        facts = interpreter.facts(payments_to_roll_back=owed)
        return evaluate_policies(interpreter.flow, facts, interpreter.flow.tool.policies, may_stop=False)
    except FlowFailed as error:
        return [error.message]


def _refund(interpreter: Interpreter, node: Node) -> None:
    """Send a refund until it is answered. After a lost answer, only a provider that takes keys gets it again."""
    adapter, name = adapter_of(interpreter.flow, node), node.id + REFUND
    before, generation = (
        interpreter.steps.get(name, RunStep(state=RETRY, value=None)),
        interpreter.steps[node.id].generation,
    )
    if before.state == UNKNOWN or (before.state == SENT and not adapter.takes_keys):
        return interpreter.record(name, RunStep(state=UNKNOWN, value=None, attempts=before.attempts))
    effect = Effect(
        kind="payment",
        operation="refund",
        fields={
            "charge": interpreter.steps[node.id].value,
            "chargeKey": effect_key(interpreter.run, node.id, generation),
        },
        key=effect_key(interpreter.run, name, generation),
        seconds=_SECONDS,
        at=interpreter.now(),
    )
    for attempt in range(1, _ATTEMPTS + 1):
        interpreter.audit(effect_sent(interpreter.run, node, effect.operation, attempt))
        interpreter.record(name, RunStep(state=SENT, value=None, attempts=attempt), _SECONDS)
        try:
            sent(adapter, effect)
            state, again = DONE, False
        except AnswerLost:
            state, again = (SENT, True) if adapter.takes_keys else (UNKNOWN, False)
        except NotSent:
            state, again = RETRY, True
        except EffectRefused as error:
            state, again = RETRY, error.again
        wait = 2.0 ** (attempt - 1) if again and attempt < _ATTEMPTS else 0.0
        interpreter.record(name, RunStep(state=state, value=None, attempts=attempt), wait)
        if not wait:
            return None
        interpreter.sleep(wait)
    return None
