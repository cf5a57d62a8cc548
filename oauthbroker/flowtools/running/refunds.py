"""Refunds: the compensation of a run's charges when a later step fails, for which the policy `paymentRollback` stands.
A run is `failing` before the first refund is sent, so one that is killed refunds on and does not run again. The step of
a refund has the name of its charge's node with `/refund`; no id of a node has a slash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oauthbroker.flowtools.risk.rules import order
from oauthbroker.flowtools.running.auditing import effect_sent
from oauthbroker.flowtools.running.checks import evaluate_policies
from oauthbroker.flowtools.running.effects import adapter_of, effect_key, sent
from oauthbroker.flowtools.running.interpreter import Interpreter
from oauthbroker.flowtools.running.journal import DONE, RETRY, SENT, UNKNOWN, RunStep
from oauthbroker.flowtools.running.ports import AnswerLost, Effect, EffectRefused, NotSent
from oauthbroker.flowtools.specification.failures import FlowFailed
from oauthbroker.flowtools.specification.spec import EXTERNAL, FlowTool, Node, has_effect

REFUND: Final = "/refund"
_ATTEMPTS: Final = 3
_SECONDS: Final = 30.0


def refund(interpreter: Interpreter) -> list[str]:
    """Refund the charges of a failed run, the last one first. Return a note for each that is refunded. A charge whose
    answer was lost is not refunded: it may not have happened."""
    tool, steps = interpreter.flow.tool, interpreter.steps
    for node in [each for each in unrefunded(tool, steps) if steps[each.id].state == DONE]:
        _refund(interpreter, node)
    refunds = {node.id: steps.get(node.id + REFUND) for node in payments(tool)}
    return [f"{name}: the charge was refunded" for name, step in refunds.items() if step and step.state == DONE]


def owed_notes(interpreter: Interpreter) -> list[str]:
    """Return what the policies say about the payments that a run without success still owes."""
    owed = len(unrefunded(interpreter.flow.tool, interpreter.steps))
    if not owed:
        return []
    try:
        facts = interpreter.facts(pays=True, paymentsToRollBack=owed)
        return evaluate_policies(interpreter.flow, facts, interpreter.flow.tool.policies, may_stop=False)
    except FlowFailed as error:
        return [error.message]


def _refund(interpreter: Interpreter, node: Node) -> None:
    """Send a refund until it is answered. After a lost answer, only a provider that takes keys gets it again."""
    adapter, name, charge = adapter_of(interpreter.flow, node), node.id + REFUND, interpreter.steps[node.id]
    before = interpreter.steps.get(name, RunStep(state=RETRY, value=None))
    if before.state == UNKNOWN or (before.state == SENT and not adapter.takes_keys):
        return interpreter.record(name, RunStep(state=UNKNOWN, value=None, attempts=before.attempts))
    effect = Effect(
        kind="payment",
        operation="refund",
        fields={"charge": charge.value, "chargeKey": effect_key(interpreter.run, node.id, charge.generation)},
        key=effect_key(interpreter.run, name, charge.generation),
        seconds=_SECONDS,
        at=interpreter.now(),
    )
    for attempt in range(1, _ATTEMPTS + 1):
        interpreter.runtime.audit(effect_sent(interpreter.run, node, effect.operation, attempt))
        interpreter.record(name, RunStep(state=SENT, value=None, attempts=attempt), _SECONDS)
        try:
            sent(adapter, effect, node)
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
        interpreter.runtime.sleep(wait)
    return None


def payments(tool: FlowTool) -> list[Node]:
    """Return the payments that are no refunds, the last one of a path first."""
    nodes = [tool.nodes[name] for name in reversed(order(tool))]
    return [node for node in nodes if node.type == "payment" and node.operation != "refund"]


def unrefunded(tool: FlowTool, steps: Mapping[str, RunStep]) -> list[Node]:
    """Return the charges that happened, or may have, without those that are refunded."""
    states = {name: step.state for name, step in steps.items()}
    return [
        node
        for node in payments(tool)
        if states.get(node.id) in {DONE, SENT, UNKNOWN} and states.get(node.id + REFUND) != DONE
    ]


def frees_key(tool: FlowTool, steps: Mapping[str, RunStep]) -> bool:
    """Tell whether a failed run gives its key free: it committed nothing, or a charge of it certainly did not happen
    and nothing else outside did, so that the caller may come again with another card."""
    inside = {node.id for node in tool.nodes.values() if node.type not in EXTERNAL or not has_effect(node)}
    outside = [step.state for name, step in steps.items() if name not in inside]
    refused = any(node.id in steps and steps[node.id].state == RETRY for node in payments(tool))
    return not steps or (refused and not {DONE, SENT, UNKNOWN} & set(outside))
