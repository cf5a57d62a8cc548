"""The journal of a turn, as its agent process asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oauthbroker.tools.calling.journal import COMPLETED, DurableJournal
from oauthbroker.tools.orchestration.ipc import IpcRefused
from oauthbroker.tools.types.agent_event import UnifiedEvent


async def with_output(event: UnifiedEvent, journal: DurableJournal) -> UnifiedEvent:
    """Return an event with the output of work that has ended, where that was too large for the queue."""
    handle = str(event.payload.get("handle"))
    found = await journal.look(handle) if event.type == COMPLETED else None
    if found is None or "toolName" not in found:
        return event
    return replace(event, payload={"handle": handle, **found})


async def journaled(journal: DurableJournal, kind: str, asked: Mapping[str, Any]) -> Any:
    """Answer one call. Raises IpcRefused, and what the journal raises."""
    match kind, asked:
        case "journal.begin", {"call": str(call)}:
            return await journal.begin(call)
        case "journal.end", {"call": str(call), "result": dict(result)}:
            return await journal.end(call, result)
        case "journal.submit", {"handle": str(handle), "call": dict(facts)}:
            return await journal.submit(handle, facts)
        case "journal.complete", {"handle": str(handle), "result": dict(result)}:
            return await journal.complete(handle, result)
    raise IpcRefused("E_IPC", "the journal does not know this call")
