"""Make events of other programs, such as `tool.completed`: checked, and recognisable when they come again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from oauthbroker.core.clock import Clock, random_text
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.json_values import MOST_VALUES
from oauthbroker.core.plain_json import JsonLimits, NotPlainJson, plain_json
from oauthbroker.core.strict_json import MAX_DEPTH
from oauthbroker.model.identities import check_agent
from oauthbroker.model.turn import ResumeTarget, TurnLike, checked_target, whole_turn
from oauthbroker.records import AgentEvent

RESERVED = frozenset({"auth", "oauth", "oauthbroker"})  # namespaces of the broker's own types
MAX_PAYLOAD_BYTES = 64 * 1024
PAYLOAD: Final = JsonLimits(MAX_PAYLOAD_BYTES, MAX_DEPTH, MOST_VALUES)
MAX_KEY = 200
_TYPE = re.compile(r"[a-z][A-Za-z0-9_-]{0,63}(\.[A-Za-z0-9_-]{1,64}){1,4}")


def namespaced_event(
    agent: str,
    kind: str,
    payload: Mapping[str, Any],
    *,
    turn: TurnLike,
    instance_key: str | None,
    idempotency_key: str | None,
    clock: Clock,
) -> AgentEvent:
    """Return the event, whose id follows from conversation, type and idempotency key. Raises `requestInvalid`."""
    if not isinstance(kind, str) or not _TYPE.fullmatch(kind) or kind.partition(".")[0] in RESERVED:
        raise _refused("type: namespace.word, outside of the broker's own namespaces")
    if idempotency_key is not None and not (isinstance(idempotency_key, str) and 0 < len(idempotency_key) <= MAX_KEY):
        raise _refused(f"idempotency_key: a text of at most {MAX_KEY} characters")
    check_agent(agent)
    asking = whole_turn(turn).resume_target
    target = checked_target(replace(asking, agent_name=agent, instance_key=instance_key or asking.instance_key))
    event_id = f"evt-{random_text(clock, 128)}" if idempotency_key is None else _id_of(target, kind, idempotency_key)
    return AgentEvent(id=event_id, type=kind, target=target, payload=_checked(payload), created_at=clock.now())


def _checked(payload: object) -> dict[str, Any]:
    """Return a copy of the payload as strict JSON. A `Secret` is no JSON, at any depth."""
    problem = "it is not a JSON object"
    try:
        copy = plain_json(payload, PAYLOAD)
        if type(copy) is dict:
            return copy
    except NotPlainJson as refused:
        problem = refused.problem
    raise _refused(f"payload: {problem}")


def _id_of(target: ResumeTarget, kind: str, key: str) -> str:
    """Return the same id for the same event, without a trace of the key."""
    parts = json.dumps([*target.address, kind, key]).encode()
    return f"evt-{hashlib.sha256(parts).hexdigest()[:32]}"


def _refused(note: str) -> BrokerError:
    return BrokerError(Code.REQUEST_INVALID, note=note)
