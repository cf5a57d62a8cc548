"""The journal of calls, which outlives the process that performs them: no call is performed twice, and no work that
goes on after its call ends in silence (specification 004, section 12.3)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from oauthbroker.plugins import NotPlainJson, plain_json
from oauthbroker.tools.types.failures import ToolCode, ToolFailure, usual_error
from oauthbroker.tools.types.results import IN_EVENT, ToolCall, ToolCallResult

if TYPE_CHECKING:  # an agent's process passes its calls on, and starts without a broker
    from oauthbroker import Broker, Turn

COMPLETED: Final = "tool.completed"  # the event that ends submitted work
RUNNING: Final[Mapping[str, Any]] = {"status": "running"}  # the answer for work that has not ended
MOST_OPEN: Final = 1000  # handles of one agent instance


class CallJournal(Protocol):
    """The journal of one turn, as `ToolCalls` uses it. A process without a store passes these calls on."""

    async def begin(self, call_id: str) -> Mapping[str, Any] | None:
        """Note durably that a call begins. Return its result as JSON; None if it is new, empty if it did not end."""
        ...

    async def end(self, call_id: str, result: Mapping[str, Any]) -> None:
        """Note durably how a call ended: its result as JSON."""
        ...

    async def submit(self, handle: str, call: Mapping[str, Any]) -> None:
        """Note durably that the work of a call goes on. Raises ToolFailure if too much does."""
        ...

    async def complete(self, handle: str, result: Mapping[str, Any]) -> None:
        """Tell the agent, by an event, how submitted work ended."""
        ...


class DurableJournal:
    """The journal of one turn in the broker's store, sealed. Results are removed with the subjects of the turn."""

    def __init__(self, broker: Broker, turn: Turn) -> None:
        self._state, self._events, self._turn = broker.plugin_state("tools"), broker.events, turn
        self._handles, self._subjects = self._key("handles", ""), about(turn)

    def _key(self, kind: str, name: str) -> str:
        words = [self._turn.swarm_ref, self._turn.agent_name, self._turn.instance_key, name]
        return f"{kind}/{hashlib.sha256(json.dumps(words).encode()).hexdigest()}"

    async def begin(self, call_id: str) -> Mapping[str, Any] | None:
        """Do as `CallJournal.begin` says. Raises BrokerError with a store code, as the others do."""
        before: Any = None

        def note(there: Any) -> Any:
            nonlocal before
            before = there
            return {} if there is None else there

        await self._state.change(self._key("call", call_id), note, subjects=self._subjects)
        return before  # type: ignore[no-any-return]

    async def end(self, call_id: str, result: Mapping[str, Any]) -> None:
        """Do as `CallJournal.end` says."""
        await self._state.change(self._key("call", call_id), lambda _: dict(result))

    async def forget(self, call_ids: Iterable[str]) -> None:
        """Remove the results of a turn that is over: its calls do not come again."""
        for call_id in call_ids:
            await self._state.remove(self._key("call", call_id))

    async def submit(self, handle: str, call: Mapping[str, Any]) -> None:
        """Do as `CallJournal.submit` says: at most MOST_OPEN handles of one instance."""

        def add(there: Any) -> Any:
            handles = {**(there or {}), handle: dict(call)}
            if len(handles) > MOST_OPEN:
                raise ToolFailure("Too much work of this agent goes on. Wait until some of it has ended.")
            return handles

        await self._state.change(self._handles, add)

    async def complete(self, handle: str, result: Mapping[str, Any]) -> None:
        """Do as `CallJournal.complete` says. An output that is too large for an event is kept beside it."""
        payload = {"handle": handle, **result}
        if not _fits(payload):
            await self._state.change(self._key("result", handle), lambda _: dict(result), subjects=self._subjects)
            payload.pop("output", None)
        key = self._key("completed", handle)
        await self._events.enqueue(self._turn.agent_name, COMPLETED, payload, turn=self._turn, idempotency_key=key)

        def remove(there: Any) -> Any:
            return {name: facts for name, facts in (there or {}).items() if name != handle} or None

        await self._state.change(self._handles, remove)

    async def look(self, handle: str) -> Mapping[str, Any] | None:
        """Return `{status: running}`, or a result too large for its event; None if unknown, or if the event had it."""
        is_open = handle in (await self._state.get(self._handles) or {})
        found: Mapping[str, Any] | None = await self._state.get(self._key("result", handle))
        return RUNNING if found is None and is_open else found  # the event comes before the handle is removed

    async def take(self, handle: str) -> Mapping[str, Any] | None:
        """Return what `look` returns, and remove a result."""
        found = await self.look(handle)
        if found != RUNNING:  # the work may have ended since
            await self._state.remove(self._key("result", handle))
        return found

    async def recover(self) -> int:
        """End the work that an earlier process left, and return its amount. Call it before the first turn."""
        left = await self._state.get(self._handles) or {}
        for handle, facts in left.items():
            call = ToolCall(facts["toolCallId"], facts["toolName"])
            await self.complete(handle, interrupted(call).to_json())
        return len(left)


def about(turn: Turn) -> Callable[[Any], list[str]]:
    """Return what says whom a durable value of a turn is about."""
    subjects = [] if turn.auth is None else list(turn.auth.subjects.values())
    return lambda _value: subjects


def _fits(payload: Mapping[str, Any]) -> bool:
    """Return whether an event takes the end of a work whole."""
    try:
        plain_json(payload, IN_EVENT)
    except NotPlainJson:
        return False
    return True


def interrupted(call: ToolCall) -> ToolCallResult:
    """Return the result of a call whose process ended before it."""
    return ToolCallResult.failed(call, usual_error(ToolCode.INTERRUPTED))
