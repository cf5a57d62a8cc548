"""The queues of all agents for operators: how deep, how old, and their dead letters."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from oauthbroker.audit import AuditWriter, DeadLetterChanged
from oauthbroker.audit.gap import enter
from oauthbroker.core.clock import Clock, printed
from oauthbroker.core.errors import BrokerError
from oauthbroker.events.queue import Queues
from oauthbroker.events.queue_index import Index, Item
from oauthbroker.repository.repository import Repository

MOST_SHOWN = 200

Noted = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class QueueState:
    """One agent's queue. `oldest` is when the event at its head was made."""

    agent: str
    waiting: int
    leased: int
    dead: int
    oldest: datetime | None

    def to_json(self) -> dict[str, Any]:
        """As the API and the command line print it."""
        oldest = {"oldestAt": printed(self.oldest)} if self.oldest is not None else {}
        return {
            "agentName": self.agent, "waiting": self.waiting, "leased": self.leased, "dead": self.dead, **oldest,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One unsettled event, without its payload. `type` and `made` are unknown where it is damaged."""

    id: str
    agent: str
    swarm: str
    instance: str
    attempts: int
    type: str = ""
    app: str = ""
    made: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """As the API and the command line print it. Unknown members of a damaged one are left out."""
        kind, _, name = self.swarm.partition("/")
        app = {"oauthAppRef": {"kind": "OAuthApp", "name": self.app}} if self.app else {}
        return {
            "eventId": self.id,
            **({"type": self.type} if self.type else {}),
            "agentName": self.agent,
            "swarmRef": {"kind": kind, "name": name},
            "instanceKey": self.instance,
            **app,
            "attempts": self.attempts,
            **({"createdAt": printed(self.made)} if self.made is not None else {}),
        }

    @property
    def queue(self) -> str:
        """The agent in an alphabet that no browser changes on its way through a form: base64url."""
        return urlsafe_b64encode(self.agent.encode("utf-8", "surrogatepass")).decode("ascii")


def agent_of(queue: str) -> str:
    """Return the agent of a `DeadLetter.queue`; empty for any other text."""
    try:
        return urlsafe_b64decode(queue.encode("ascii")).decode("utf-8", "surrogatepass")
    except ValueError:
        return ""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Reads every index at each look: for people, not for machines."""

    repository: Repository
    queues: Queues
    clock: Clock
    audit: AuditWriter

    async def states(self) -> list[QueueState]:
        """Of every queue that has something in it, by agent."""
        found = [await self._state(index) for index in await self._indexes()]
        return sorted((state for state in found if state.agent), key=lambda state: state.agent)

    async def dead(self, agent: str | None = None, most: int | None = None) -> list[DeadLetter]:
        """Dead letters of an agent or of all, at most `most` of each, the newest dead first."""
        return [
            await self._letter(item)
            for index in await self._indexes()
            if agent is None or agent in {_agent(item.address)[1] for item in index.dead[:1]}
            for item in index.dead[::-1][:most]
        ]

    async def retry(self, agent: str, event_id: str, noted: Noted | None = None) -> bool:
        """Give a dead letter all its attempts anew, at the end of its queue. False where none has that id.

        `noted` audits the caller before anything is changed: if it raises, nothing changes."""
        if not await self._write(agent, event_id, "retried", noted):
            return False
        return await self.queues.revive(agent, event_id)

    async def drop(self, agent: str, event_id: str, noted: Noted | None = None) -> bool:
        """Remove a dead letter for good. False where none has that id. `noted` as for `retry`."""
        if not await self._write(agent, event_id, "dropped", noted):
            return False
        return await self.queues.drop(agent, event_id)

    async def _write(self, agent: str, event_id: str, action: str, noted: Noted | None) -> bool:
        if not await self.queues.is_dead(agent, event_id):
            await self.repository.sync("queues")
            return False
        if noted is not None:
            await noted()
        await enter(self.audit, DeadLetterChanged(agent, event_id, action), self.clock.now())
        return True

    async def _indexes(self) -> list[Index]:
        """Return the readable indexes. The next use of a damaged one repairs it."""
        found = []
        async for body in self.repository.queues():
            try:
                found.append(Index.from_plaintext(body))
            except (BrokerError, LookupError, TypeError, ValueError):
                continue
        return found

    async def _state(self, index: Index) -> QueueState:
        items = (*index.waiting, *index.dead)
        now = self.clock.now()
        leased = sum(item.lease is not None and item.due is not None and item.due > now for item in index.waiting)
        head = await self._letter(index.waiting[0]) if index.waiting else None
        agent = _agent(items[0].address)[1] if items else ""
        return QueueState(agent, len(index.waiting) - leased, leased, len(index.dead), head.made if head else None)

    async def _letter(self, item: Item) -> DeadLetter:
        swarm, agent, instance = _agent(item.address)
        try:
            event = await self.repository.event(item.id)
        except BrokerError:
            event = None
        if event is None:
            return DeadLetter(item.id, agent, swarm, instance, item.attempts)
        ref = event.payload.get("oauthAppRef", {})
        app = str(ref.get("name", "")) if isinstance(ref, dict) else ""
        return DeadLetter(item.id, agent, swarm, instance, item.attempts, event.type, app, event.created_at)


def _agent(address: str) -> tuple[str, str, str]:
    """(swarm, agent, instance) of an address as the index keeps it. Swarm and agent hold no separator."""
    parts = address.split("\x1f", 2)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else ("", "", "")
