"""The ends of turns that failed. Each has an outcome, so no channel and no request of an agent waits for it for ever. A
turn fails when its event is a dead letter. Then the event `turn.failed` tells the agent that sent the message, or the
one whose turn it was. Dead letters from before the start of the orchestrator get their outcome alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from oauthbroker import Broker, BrokerError, Turn
from oauthbroker.plugins import EventLease
from oauthbroker.tools.orchestration.agent_calls import addressed
from oauthbroker.tools.orchestration.instances import Instance, Instances, Outcome
from oauthbroker.tools.types.agent_event import CHAT, FAILED, MESSAGE, REQUEST, UnifiedEvent, normalised
from oauthbroker.tools.types.results import ToolError

DEAD: Final = "E_TURN_FAILED"
REFUSED: Final = "E_TURN_REFUSED"
UNKNOWN: Final = "its process or its orchestrator was ended, or its event is damaged"
_MESSAGES: Final = {CHAT, MESSAGE, REQUEST}
LOG: Final = logging.getLogger("oauthbroker.tools.orchestrator")


async def failed_outcome(instances: Instances, event_id: str, code: str, text: str) -> dict[str, Any]:
    """Return the outcome of a turn that has no answer of its model, with the steps that it ran."""
    error, messages = ToolError(message=text, name="TurnError", code=code), await instances.messages(event_id)
    steps = sum(each["role"] == "assistant" for each in messages)
    return {"status": "error", "answer": text, "steps": steps, "error": error.to_json()}


def is_final(outcome: Outcome | None) -> bool:
    """Return whether a turn has ended. The turn of a dead letter runs when an operator retries its event."""
    return outcome is not None and outcome.get("error", {}).get("code") != DEAD


class FailedTurns:
    """Ends the turns of an orchestrator's dead letters. `requests` are the agents by the events whose outcome a call
    waits for; `serves` says whether a swarm has an agent."""

    def __init__(
        self, broker: Broker, instances: Instances, *, requests: Mapping[str, str], serves: Callable[[str, str], bool]
    ) -> None:
        self._broker, self._instances = broker, instances
        self._requests, self._serves = requests, serves
        self._known: dict[str, set[str]] = {}  # by agent, the dead letters that have been looked at
        self._faults: dict[str, str] = {}  # of last attempts, by event
        self._looking = asyncio.Lock()

    def taken(self, queued: Mapping[str, Any]) -> None:
        """Forget an event that is delivered: an operator may have retried it."""
        self._known.get(queued["agentName"], set()).discard(queued["eventId"])

    def has_agent(self, turn: Turn) -> bool:
        """Return whether the swarm of a turn has its agent. An unknown swarm may be that of another runtime."""
        return (agents := self._agents_of(turn)) is None or turn.agent_name in agents

    def _agents_of(self, turn: Turn) -> list[str] | None:
        swarm = self._broker.bundle.plugins["tools"].of("Swarm").get(turn.swarm_ref.removeprefix("Swarm/"))
        return None if swarm is None else [each.name for each in swarm.spec.agents]

    async def addressed(self, event: UnifiedEvent) -> Instance | None:
        """Return the instance of an event. End the turn of one that must not reach its instance, and return None."""
        try:
            if not self.has_agent(turn := event.turn):
                has = ", ".join(self._agents_of(turn) or ())
                raise ValueError(f"{turn.swarm_ref} has no agent {turn.agent_name!r}, its agents are {has}")  # noqa: TRY301
            return addressed(event)
        except ValueError as refused:
            text = f"The event is refused: {refused}."
        LOG.warning("event %s: %s", event.id, text)
        outcome = await failed_outcome(self._instances, event.id, REFUSED, text)
        await self._instances.end_turn(event.id, outcome, event.turn)
        return None

    async def settle(self, delivery: EventLease, queued: Mapping[str, Any], fault: str) -> None:
        """Settle an event whose turn failed: it comes again, unless this was its last attempt. `turn.failed` has
        one."""
        event_id, is_news = queued["eventId"], queued["type"] == FAILED
        scrubbed = self._broker.scrub(fault)
        LOG.warning("the turn of event %s failed, attempt %d: %s", event_id, delivery.attempt, scrubbed)
        self._faults[event_id] = scrubbed
        try:
            settled = await (delivery.ack() if is_news else delivery.nack())
            if is_news and settled:
                await self._end(event_id, _readable(queued), tell=False)
            elif delivery.attempt >= self._broker.bundle.settings.limits.queue_attempts:
                await self.look(queued["agentName"])
        finally:
            self._faults.pop(event_id, None)

    async def look(self, agent: str) -> None:
        """End the turns of the agent's dead letters. Cheap while there is no new one."""
        async with self._looking:
            known = self._known.get(agent)
            newest = await self._broker.dead_letters.dead(agent, 1)
            if known is not None and (not newest or newest[0].id in known):
                return
            events = {each["eventId"]: each for each in await self._broker.events.dead(agent)}
            ids = {each.id for each in await self._broker.dead_letters.dead(agent)}
            for event_id in [each for each, of in self._requests.items() if of == agent]:
                if await self._broker.dead_letters.has(agent, event_id):  # damaged: the store may know no id
                    ids.add(event_id)
            for event_id in ids - (known or set()):
                await self._end(event_id, _readable(events.get(event_id)), tell=known is not None)
            self._known[agent] = ids

    async def _end(self, event_id: str, event: UnifiedEvent | None, *, tell: bool) -> None:
        """Keep the outcome of a dead letter's turn. `event` is None for a damaged one."""
        fault = self._faults.get(event_id, UNKNOWN)
        text = f"The turn failed and is not tried again: {fault}."
        outcome = await failed_outcome(self._instances, event_id, DEAD, text)
        if not await self._instances.fail(event_id, outcome, None if event is None else event.turn):
            return
        LOG.warning("the turn of event %s failed and is not tried again: %s", event_id, fault)
        if tell and event is not None and event.type not in {FAILED, REQUEST}:  # a request is answered by the outcome
            await self._tell(event, outcome)

    async def _tell(self, event: UnifiedEvent, outcome: Outcome) -> None:
        turn, source = event.turn, event.source
        agent, key = turn.agent_name, turn.instance_key
        if event.type == MESSAGE and source.get("kind") == "agent":
            agent, key = str(source.get("name")), str(source.get("instanceKey"))
        if self._serves(turn.swarm_ref, agent):
            payload = {"eventId": event.id, "agentName": turn.agent_name, "error": outcome["error"]}
            names = {"instance_key": key, "idempotency_key": event.id}
            await self._broker.events.enqueue(agent, FAILED, payload, turn=turn, **names)


def _readable(queued: Mapping[str, Any] | None) -> UnifiedEvent | None:
    with suppress(BrokerError, ValueError):
        return None if queued is None else normalised(queued)
    return None


class UnservedQueues:
    """The queues that no agent of the bundle reads: an event for an agent that its swarm does not have would wait there
    for ever. Messages for agents of our swarms are taken from them. Another program may read them, too: its events are
    given back, and looked at once for each change of a queue."""

    def __init__(self, broker: Broker, *, is_ours: Callable[[str], bool], take: Callable[[EventLease], None]) -> None:
        self._broker, self._is_ours, self._take = broker, is_ours, take
        self._seen: dict[str, object] = {}  # by agent, the depth that was looked at

    async def look(self, served: Collection[str]) -> None:
        for depth in await self._broker.dead_letters.states():
            agent = depth.agent
            if agent in served or not depth.waiting or self._seen.get(agent) == (seen := (depth.waiting, depth.oldest)):
                continue
            self._seen[agent] = seen
            with suppress(BrokerError):  # its events are forwarded
                await self._look_at(agent)

    async def _look_at(self, agent: str) -> None:
        foreign: list[EventLease] = []
        try:
            while (delivery := await self._broker.events.lease(agent)) is not None:
                if delivery.type in _MESSAGES and self._is_ours(delivery.event.turn.swarm_ref):
                    self._take(delivery)
                else:
                    foreign.append(delivery)
        finally:
            for each in foreign:
                await each.give_back()
        if foreign:
            LOG.warning("%d events wait for %r, which is no agent of this bundle", len(foreign), agent)
