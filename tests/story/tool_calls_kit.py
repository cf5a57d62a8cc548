"""Tool calls in a running broker."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from oauthbroker import Broker
from oauthbroker.tools.calling.broker_turn import oauth_of
from oauthbroker.tools.calling.calls import ToolCalls
from oauthbroker.tools.calling.context import CallScope
from oauthbroker.tools.calling.journal import DurableJournal
from oauthbroker.tools.calling.registry import Handler, Registry
from oauthbroker.tools.types.catalog import ToolCatalogItem
from oauthbroker.tools.types.results import Message, ToolCall, ToolCallResult
from tests.kit.running_broker import ALICE, turn

CALL = ToolCall("turn-1.0.0", "mail__send", {})


TURN = turn(ALICE)


def registry_of(**handlers: Handler) -> Registry:
    registry = Registry()
    for name, handler in handlers.items():
        registry.register(ToolCatalogItem(name=name), handler, owner=f"Tool/{name.partition('__')[0]}")
    return registry


def scope_of(broker: Broker, registry: Registry, of: Any = TURN, **more: Any) -> CallScope:
    facts: dict[str, Any] = {
        "agent_name": of.agent_name,
        "instance_key": of.instance_key,
        "turn_id": "turn-1",
        "trace_id": "trace-1",
        "message": Message(id="m", role="assistant"),
        "workdir": Path("/work"),
        "logger": logging.getLogger("tools"),
        "catalog": registry.catalog(["mail", "plain"]),
        "oauth_of": oauth_of(broker, of),
        "journal": DurableJournal(broker, of),
    }
    return CallScope(**facts | more)


async def performed(broker: Broker, registry: Registry, call: ToolCall = CALL, **more: Any) -> ToolCallResult:
    """Perform a call as a process that has just begun."""
    scope = scope_of(broker, registry, **more)
    return await ToolCalls(registry, broker.scrubber.json).perform(call, scope)
