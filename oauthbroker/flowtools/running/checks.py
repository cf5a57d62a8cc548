"""Steps 1, 2 and 9 of the contract: the input, the caller, the output. Policies at run time: block, warn, escalate."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from oauthbroker.flowtools.running.effects import whole
from oauthbroker.flowtools.running.flow import ReadyFlow, bound_at_start
from oauthbroker.flowtools.specification.expressions import EvaluationFailed
from oauthbroker.flowtools.specification.failures import Actor, FlowFailed, input_invalid, json_fault, pointer
from oauthbroker.flowtools.specification.policies import FACTS

Facts = Mapping[str, Any]  # what the condition of a policy reads


def validate_input(flow: ReadyFlow, data: Any) -> None:
    """Step 1: assess the input by its schema. The refusal names places and no values."""
    if (fault := json_fault(data)) is not None:
        raise input_invalid("the input has a value that no flow takes", [(pointer(fault[0]), fault[1])])
    if not isinstance(data, dict) or not flow.input.is_valid(data):
        raise input_invalid("the input breaks its schema", _broken(flow, data))


def _broken(flow: ReadyFlow, data: Any) -> Iterator[tuple[str, str]]:
    """Yield the places at which an input breaks its schema: a missing member, and one too much, by its name."""
    if not isinstance(data, dict):
        yield "", "type"
        return
    for error in flow.input.iter_errors(data):
        keyword, facts = error.kind.name, error.kind.as_dict()
        names = [facts["property"]] if keyword == "required" else facts.get("unexpected", [])
        yield from ((pointer([*error.instance_path, *each]), keyword) for each in ([[name] for name in names] or [[]]))


def authorise(flow: ReadyFlow, actor: Actor | None) -> None:
    """Step 2: demand an authenticated caller with an allowed role. An empty list allows each role."""
    if actor is None:
        if flow.tool.auth_required or flow.tool.allowed_roles:
            raise FlowFailed("unauthenticated", "the tool needs an authenticated caller")
    elif flow.tool.allowed_roles and not actor.roles & set(flow.tool.allowed_roles):
        roles = ", ".join(flow.tool.allowed_roles)
        raise FlowFailed("forbidden", f"the tool asks for one of the roles {roles}")


def who(actor: Actor | None) -> tuple[Any, ...]:
    """Return what makes two calls those of one caller: the id, the subjects and the accounts of its turn."""
    auth = actor.turn.auth if actor and actor.turn else None
    accounts = [dict(auth.accounts)] if auth and auth.accounts else []
    return (actor and actor.id, dict(auth.subjects) if auth else {}, *accounts)


def idempotency_key(flow: ReadyFlow, data: Any, actor: Actor | None, call: str | None) -> str | None:
    """Return the hash of a call's idempotency key; for a tool without one, of the call's id, if it has one. The key of
    a tool is one for all callers, unless its expression has `caller.id`; an id is the caller's own."""
    if flow.tool.idempotency_key is None:
        return None if call is None else own_key("call", actor, call)
    values, path = bound_at_start(data, actor), ("idempotencyKey",)
    with suppress(FlowFailed):
        if isinstance(value := flow.value(path, values), str):
            return hashlib.sha256(value.encode()).hexdigest()
    expression = flow.assessment.expressions[path]
    names = [name.split(".") for name in expression.nulls(values) or expression.reads]
    places = [pointer(steps) for root, *steps in names if root == "input"]
    raise input_invalid("the idempotency key is no text", [(each, path[0]) for each in places])


def own_key(kind: str, actor: Actor | None, text: str) -> str:
    """Return the key that a caller has chosen: another one for each caller, and for each of its subjects."""
    return f"{kind}:{hashlib.sha256(json.dumps([*who(actor), text], sort_keys=True).encode()).hexdigest()}"


def normalised(flow: ReadyFlow, value: Any) -> Any:
    """Step 9: return a result with the members of the output's schema alone, whole numbers where it asks for integers,
    and without nulls that it does not demand. Raises FlowFailed if it does not fit."""
    properties = flow.tool.output.get("properties")
    output = value if isinstance(value, dict) else {} if value is None else {"result": value}
    if properties is not None:
        required = flow.tool.output.get("required", ())
        output = {
            name: whole(output[name]) if isinstance(schema, dict) and schema.get("type") == "integer" else output[name]
            for name, schema in properties.items()
            if name in output and (output[name] is not None or name in required)
        }
    if not flow.output.is_valid(output):
        raise FlowFailed("outputInvalid", "the result does not fit the output's schema")
    return output


class Escalated(Exception):
    """A policy asks for a person's decision."""

    def __init__(self, policy: str, message: str) -> None:
        super().__init__(message)
        self.policy = policy


def facts_of(data: Any, payment: Facts | None = None, *, pays: bool = False, **counted: int) -> Facts:
    """Return what conditions read. `amount` is the member of a `payment`, else of the input; None if it is no number, 0
    where each payment is looked at by itself (`pays`). A flow with writes outside of transactions never runs."""
    amount = (data if payment is None else payment).get("amount")
    is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
    seen = amount if is_number else 0.0 if pays else None
    return {**dict.fromkeys(FACTS.types, 0), "amount": seen, "input": data, **counted}


def evaluate_policies(
    flow: ReadyFlow, facts: Facts, names: Iterable[str], *, may_stop: bool = True, approved: Collection[str] = ()
) -> list[str]:
    """Evaluate policies. Return notes of those that warn, and of those that a person has `approved`. Raises FlowFailed
    for one that blocks or has no value, and Escalated, unless the run has stopped already."""
    notes = []
    for name in names:
        policy, condition = flow.policies[name]
        if facts["amount"] is None and "amount" in condition.reads:
            raise FlowFailed("policyBlocked", f"{name}: it reads amount, and there is no number of this name")
        try:
            triggered = condition.value({**facts, "amount": facts["amount"] or 0.0, "parameters": policy.parameters})
        except EvaluationFailed:
            raise FlowFailed("policyBlocked", f"{name}: its condition has no value") from None
        if triggered is False:
            continue
        text = f"{name}: {policy.message or policy.description}"
        if policy.action == "block":
            raise FlowFailed("policyBlocked", text)
        if policy.action == "escalate" and may_stop and name not in approved:
            raise Escalated(name, text)
        notes.append(f"{'approved' if name in approved else policy.action} {text}")
    return notes
