"""Erase a subject: revoke its grants, then remove every record of it. The audit log keeps its keyed names.

Every step finds its records by the subject alone, and a grant's tombstone is removed after all that hangs on it. A run
that was killed is therefore finished by the next one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from oauthbroker.access.turns import Turns
from oauthbroker.audit import GrantErased
from oauthbroker.audit.port import AuditWriter
from oauthbroker.authorization.connect import Connect
from oauthbroker.authorization.sweep import Sweep
from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.events.port import Queues
from oauthbroker.model.subject import is_subject
from oauthbroker.operations.browser_sessions import BrowserSessions
from oauthbroker.operations.grant_use import Uses
from oauthbroker.records import AgentEvent, AuthSession, Grant
from oauthbroker.repository.repository import KINDS, Repository, Versioned
from oauthbroker.revocation.bulk import BulkRevocation, Pair

FLIGHT_SECONDS = 20.0


@dataclass(slots=True)
class Traces:
    """Records of one subject. `named_in` are grants of other subjects that this one agreed to, or asked for: they stay.

    `to_tell` counts grants whose provider has still to be told, `connecting` authorizations that are being finished.
    """

    subject: str
    grants: list[Grant] = field(default_factory=list)
    named_in: list[str] = field(default_factory=list)
    sessions: list[Versioned[AuthSession]] = field(default_factory=list)
    events: list[AgentEvent] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    visits: list[str] = field(default_factory=list)
    uses: list[str] = field(default_factory=list)

    @property
    def to_tell(self) -> int:
        return sum(grant.to_be_told for grant in self.grants)

    @property
    def living(self) -> list[Pair]:
        """Grants to revoke first."""
        return [(grant.app, grant.subject) for grant in self.grants if not grant.revoked]

    @property
    def connecting(self) -> int:
        return sum(held.record.open and held.record.claim is not None for held in self.sessions)

    @property
    def ready(self) -> bool:
        """Whether everything may be removed."""
        return not (self.to_tell or self.living or self.connecting)

    @property
    def empty(self) -> bool:
        return not any(self.counts().values())

    def counts(self) -> dict[str, int]:
        kinds = ("grants", "sessions", "events", "turns", "visits", "uses")
        return {kind: len(getattr(self, kind)) for kind in kinds}

    def to_json(self) -> dict[str, Any]:
        return {
            **self.counts(),
            "toTell": self.to_tell,
            "connecting": self.connecting,
            "namedIn": sorted(self.named_in),
        }


@dataclass(frozen=True, slots=True)
class Erased:
    """The outcome. `done`: `found` has been removed. Otherwise some of it waits, and the same call goes on later."""

    done: bool
    found: Traces

    def to_json(self) -> dict[str, Any]:
        return {"erased": self.done, **self.found.to_json()}


@dataclass(frozen=True, slots=True)
class Erasure:
    """One per broker. Concurrent erasures of one subject take turns, except while they wait for its providers: side by
    side they would write, and lose, every record to each other."""

    repository: Repository
    revocations: BulkRevocation
    connect: Connect
    sweep: Sweep
    queues: Queues
    turns: Turns
    visits: BrowserSessions
    uses: Uses
    clock: Clock
    audit: AuditWriter
    _running: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    async def look(self, subject: str) -> Traces:
        """Find every record of a subject, by a scan of the store. Raises `requestInvalid` for no subject."""
        if not is_subject(subject):
            raise BrokerError(Code.REQUEST_INVALID, note="not a subject")
        found, known = Traces(subject), set[str]()
        async for grant in self.repository.grants():
            known.add(grant.record.id)
            if grant.record.subject == subject:
                found.grants.append(grant.record)
            elif _names(grant.record, subject):
                found.named_in.append(grant.record.id)
        async for session in self.repository.sessions():
            if session.record.subject == subject or session.record.resume.is_of(subject):
                found.sessions.append(session)
        async for event in self.repository.events.all():
            if event.payload.get("subject") == subject or event.target.is_of(subject):
                found.events.append(event)
        found.turns = [record.id async for record in self.turns.shelf.all() if record.turn.resume_target.is_of(subject)]
        found.visits = [it.locator async for it in self.visits.shelf.all() if subject in dict(it.subjects).values()]
        own = {grant.id for grant in found.grants}
        found.uses = [use.grant async for use in self.uses.all() if use.grant in own or use.grant not in known]
        return found

    async def erase(self, subject: str, *, patience: float = 0) -> Erased:
        """Revoke the subject's grants, and remove its records once every provider knows.

        A busy provider is waited for up to `patience` seconds. Idempotent: what one run leaves, the next one removes.
        Raises the store code of a grant that could not be revoked here.
        """
        one_at_a_time = self._running.setdefault(subject, asyncio.Lock())
        async with one_at_a_time:
            await self._settle_claims()
            seen = await self.look(subject)
            await self._stop(seen)
        figures = await self.revocations.end([(it.app, it.subject) for it in seen.grants], patience=patience)
        for code in figures.failed.values():
            raise BrokerError(code)
        async with one_at_a_time:
            found = await self.look(subject)
            found.turns = seen.turns
            if not found.ready:
                return Erased(False, found)
            done = await self._remove(found)
        await self.repository.sync(*KINDS)  # also of records that are gone already
        return Erased(done, found)

    async def _settle_claims(self) -> None:
        """Settle what a dead process left claimed. A record that another process holds, maybe another subject's, is no
        reason to erase nothing: `connecting` counts a claim that stays."""
        try:
            await self.sweep.once()
        except BrokerError as error:
            if error.code is not Code.STORE_LOCKED:
                raise

    async def _stop(self, found: Traces) -> None:
        """Keep new grants from coming: end the subject's turns, and withdraw its open authorizations."""
        for turn_id in found.turns:
            await self.turns.end(turn_id)
        for held in found.sessions:
            if held.record.open:
                await self.connect.cancel(held.record.locator)

    async def _remove(self, found: Traces) -> bool:
        for visit in found.visits:
            await self.visits.shelf.end(visit)
        own = {grant.id for grant in found.grants}
        for use in set(found.uses) - own:
            await self.uses.forget(use)
        for held in found.sessions:
            await self._remove_session(held)
        done = [await self._remove_grant(grant) for grant in found.grants]
        unsent = [held.record.outbox for held in found.sessions if held.record.outbox is not None]
        await self._remove_events([*found.events, *unsent, *(event for it in found.grants for event in it.outbox)])
        return all(done)

    async def _remove_session(self, held: Versioned[AuthSession]) -> None:
        session = held.record
        async with self.repository.pair(session.app, session.subject):
            newest = await self.repository.session(session.locator)
            if newest is None or newest.record.open:
                return
            await self._forget_waiting(session.app, session.subject)
            await self.repository.erase_session(newest)

    async def _remove_grant(self, grant: Grant) -> bool:
        """False when the grant is alive again. No refresh or revocation is under way while the flight is held."""
        pair = (grant.app, grant.subject)
        async with self.repository.flight(*pair, wait=FLIGHT_SECONDS), self.repository.pair(*pair):
            held = await self.repository.grant(*pair)
            if held is not None and (not held.record.revoked or held.record.to_be_told):
                return False
            await self.uses.forget(grant.id)
            if held is not None:
                self.audit.write(GrantErased(grant.app, grant.id), self.clock.now())
                await self._forget_waiting(*pair)
                await self.repository.erase_grant(held)
        return True

    async def _forget_waiting(self, app: str, subject: str) -> None:
        """Keep the open sessions of the pair alone in its list, under its lease."""
        waiting = await self.repository.waiting(app, subject)
        await self.repository.waiting_lists.save(app, subject, [held.record.locator for held in waiting])

    async def _remove_events(self, events: Iterable[AgentEvent]) -> None:
        by_agent: dict[str, set[str]] = defaultdict(set)
        for event in events:
            by_agent[event.target.agent_name].add(event.id)
        for agent, ids in by_agent.items():
            await self.queues.erase(agent, ids)


def _names(grant: Grant, subject: str) -> bool:
    """Tell whether the subject agreed to a grant, asked for it, or agreed to replaced tokens that it still keeps."""
    agreed = {grant.authorized_by, *(others.authorized_by for others in grant.elsewhere)}
    return subject in agreed or (grant.resume is not None and grant.resume.is_of(subject))
