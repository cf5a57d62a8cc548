"""The queues of all agents for operators: how deep, how old, and their dead letters."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from oauthbroker.audit import DeadLetterChanged
from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.clock import Clock, printed
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.events.port import DeadEvent, QueueDepth, Queues

MOST_SHOWN = 200

Noted = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One unsettled event, without its payload. `type` and `made` are unknown where it is damaged; a part of its
    address that is unknown is empty."""

    id: str
    agent: str
    swarm: str
    instance: str
    attempts: int
    type: str = ""
    app: str = ""
    kind: str = "OAuthApp"
    made: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the API and the command line print. Unknown members of a damaged one are left out."""
        kind, _, name = self.swarm.partition("/")
        app = {"oauthAppRef": {"kind": self.kind, "name": self.app}} if self.app else {}
        return {
            "eventId": self.id,
            **({"type": self.type} if self.type else {}),
            "agentName": self.agent,
            **({"swarmRef": {"kind": kind, "name": name}} if self.swarm else {}),
            **({"instanceKey": self.instance} if self.instance else {}),
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
    """The queues as operators use them. Reads every queue at each look: for people, not for machines."""

    queues: Queues
    clock: Clock
    audit: AuditWriter

    async def states(self) -> list[QueueDepth]:
        """Return the state of every queue that has an event, by agent."""
        return await self.queues.depths()

    async def dead(self, agent: str | None = None, most: int | None = None) -> list[DeadLetter]:
        """Return the dead letters of an agent or of all, at most `most` of each, the newest dead first."""
        return [_letter(each) for each in await self.queues.dead(agent, most)]

    async def has(self, agent: str, event_id: str) -> bool:
        """Return whether the agent has a dead letter with this id, damaged or not."""
        return await self.queues.is_dead(agent, event_id)

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
            return False
        if noted is not None:
            await noted()
        self.audit.write(DeadLetterChanged(agent=agent, event=event_id, action=action), self.clock.now())
        return True


def _letter(dead: DeadEvent) -> DeadLetter:
    swarm, agent, instance = dead.address
    letter = DeadLetter(id=dead.id, agent=agent, swarm=swarm, instance=instance, attempts=dead.attempts)
    if dead.event is None:
        return letter
    ref = dead.event.payload.get("oauthAppRef", {})
    app = str(ref.get("name", "")) if isinstance(ref, dict) else ""
    kind = "CredentialApp" if app and ref.get("kind") == "CredentialApp" else "OAuthApp"
    return replace(letter, type=dead.event.type, app=app, kind=kind, made=dead.event.created_at)
