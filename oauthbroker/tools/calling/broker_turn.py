"""The way of a turn to the broker, in a runtime that embeds it: `ctx.oauth` of tools, and blocks for the model."""

from __future__ import annotations

from typing import Any

from oauthbroker import Broker, Turn
from oauthbroker.capability import OAuthCapability, SyncOAuthCapability
from oauthbroker.tools.calling.context import OAuthOf
from oauthbroker.tools.types.audit_types import ToolCalled


def oauth_of(broker: Broker, turn: Turn) -> OAuthOf:
    """Return what gives tools their `ctx.oauth` in a turn. It raises BrokerError if the audit log takes no entry."""

    async def of(asks_as: str, call_id: str, *, blocking: bool) -> OAuthCapability | SyncOAuthCapability | None:
        if asks_as not in broker.bundle.tools:
            return None
        await note_call(broker, turn, asks_as, call_id)
        capability = broker.oauth(turn, tool=asks_as)
        return capability.sync if blocking else capability

    return of


async def note_call(broker: Broker, turn: Turn, asks_as: str, call_id: str) -> None:
    """Write a call to the audit log before it is made. Raises BrokerError: then it must not be made."""
    broker.audit(ToolCalled(tool=asks_as, call=call_id, agent=turn.agent_name, instance=turn.instance_key))


async def blocks_of(broker: Broker, turn: Turn) -> list[dict[str, Any]]:
    """Return the blocks that `step.blocks` begins with: `auth.pending`, if something waits for the user."""
    pending = await broker.pending(turn)
    return [] if pending is None else [pending]
