"""Erase a subject: revoke its grants, then remove every record of it. The audit log keeps its keyed names.

Every step finds its records by the subject alone, and a grant's tombstone is removed after all that hangs on it. A run
that was killed is therefore finished by the next one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar
from weakref import WeakValueDictionary

from oauthbroker.access.browser_sessions import BrowserSessions
from oauthbroker.access.turns import Turns
from oauthbroker.audit import GrantErased
from oauthbroker.audit.port import AuditWriter
from oauthbroker.authorization.connect import Connect
from oauthbroker.authorization.finish import Finish
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.lifecycle import Pass
from oauthbroker.core.progress import Count, Progress, unseen
from oauthbroker.events.port import Queues
from oauthbroker.grants.found_records import Erased, FoundRecords
from oauthbroker.grants.plugin_erasure import PluginErasure
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.identities import check_subject
from oauthbroker.model.token_request import checked_wait
from oauthbroker.plugins.declaration import SubjectRecords
from oauthbroker.records import AgentEvent, AuthSession, Grant
from oauthbroker.repository.repository import KINDS, Conflict, Repository, Versioned
from oauthbroker.repository.versioned import readable
from oauthbroker.revocation.bulk import BulkRevocation
from oauthbroker.tokens.grant_uses import Uses

LEASE_WAIT_SECONDS = 20.0
AT_ONCE = 8  # records that are changed concurrently

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """One per broker. Concurrent erasures of one subject take turns, except while they wait for its providers: side by
    side they would write, and lose, every record to each other."""

    repository: Repository
    revocations: BulkRevocation
    connect: Connect
    finish: Finish
    queues: Queues
    turns: Turns
    browser_sessions: BrowserSessions
    uses: Uses
    plugins: PluginErasure
    clock: Clock
    audit: AuditWriter
    _running: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    async def find_records(self, subject: str, progress: Progress = unseen) -> FoundRecords:
        """Find every record of a subject. Reads each record of the store once. Raises `requestInvalid` for no
        subject."""
        found = await self._begun(subject, progress)
        await self._add_the_rest(found)
        found.of_plugins = await self.plugins.erase(subject, dry_run=True)
        return found

    async def erase(
        self, subject: str, *, patience: float = 0, progress: Progress = unseen, seen: FoundRecords | None = None
    ) -> Erased:
        """Revoke the subject's grants, and remove its records once every provider knows.

        `seen` is what `find_records` has found a moment ago: then no other person's grants are read. A busy provider is
        waited for up to `patience` seconds. Idempotent: what one run leaves, the next one removes.
        Raises the store code of a grant that could not be revoked here.
        """
        check_subject(subject)
        checked_wait(patience)
        one_at_a_time = self._running.setdefault(subject, asyncio.Lock())
        async with one_at_a_time:
            seen = await (self._begun(subject, progress) if seen is None else self._found_again(seen))
            await self._stop(seen)
            seen.of_plugins = await self.plugins.erase(subject, dry_run=False)
        figures = await self.revocations.revoke_grants([it.key for it in seen.grants], patience=patience)
        for code in figures.failed.values():
            raise BrokerError(code)
        async with one_at_a_time:
            found = await self._again(seen)
            if not found.ready:
                return Erased(False, found)
            done = await self._remove(found)
        await self.repository.sync(*KINDS)  # also of records that are gone already
        return Erased(done and not found.unreadable, found)

    async def _begun(self, subject: str, progress: Progress = unseen) -> FoundRecords:
        """Find the records that may bring others about, and the uses, also those of grants that are gone."""
        check_subject(subject)
        found, count = (
            FoundRecords(subject=subject),
            Count("grants read", await self.repository.count_grants(), progress),
        )
        uses = {use.grant async for use in self.uses.all()}  # before the grants: a later one may be of a new grant
        async for head, grant in self.repository.grants_that_name(subject):
            count.add()
            if grant is not None and grant.subject == subject:
                found.grants.append(grant)
                continue
            uses.discard(head.id)
            if grant is not None and _names(grant, subject):
                found.named_in.append(head.id)
        found.uses = sorted(uses)
        found.unreadable = await self.repository.unreadable_of(subject)
        await self._add_requests(found)
        return found

    async def _add_requests(self, found: FoundRecords) -> None:
        """Find the turns and the authorizations."""
        subject = found.subject
        found.turns = [
            record.id async for record in self.turns.records.all() if record.turn.resume_target.is_of(subject)
        ]
        async for session in self.repository.sessions():
            if session.record.subject == subject or session.record.resume.is_of(subject):
                found.sessions.append(session)

    async def _again(self, seen: FoundRecords) -> FoundRecords:
        """Stop what began while providers were waited for, and find the others. Read the grants that were seen again,
        after the sessions that bring new ones, and find these by their tag."""
        now = await self._found_again(seen)
        await self._stop(now)
        left = await self.plugins.erase(seen.subject, dry_run=False)  # also of what began meanwhile
        now.of_plugins = SubjectRecords(records=max(seen.of_plugins.records, left.records), ending=left.ending)
        now.turns = sorted({*seen.turns, *now.turns})
        sessions = [await readable(self.repository.session(versioned.record.locator)) for versioned in now.sessions]
        now.sessions = [versioned for versioned in sessions if versioned is not None]
        now.grants = await self._grants_again(seen)
        await self._add_the_rest(now)
        return now

    async def _found_again(self, seen: FoundRecords) -> FoundRecords:
        """Find again what may bring others about, by the subject's tag."""
        now = FoundRecords(subject=seen.subject, named_in=seen.named_in, uses=seen.uses, unreadable=seen.unreadable)
        await self._add_requests(now)
        now.grants = await self._grants_again(seen)
        return now

    async def _grants_again(self, seen: FoundRecords) -> list[Grant]:
        tagged = self.repository.grants_with(seen.subject)
        there = {
            versioned.record.key: versioned.record
            async for versioned in tagged
            if versioned.record.subject == seen.subject
        }
        for key in {grant.key for grant in seen.grants} - there.keys():
            if (versioned := await readable(self.repository.grant(key))) is not None:
                there[key] = versioned.record
        return list(there.values())

    async def _add_the_rest(self, found: FoundRecords) -> None:
        """Find the events, browser sessions and values of plug-ins. Revocations send events: they are looked for after
        these."""
        subject = found.subject
        async for event in self.queues.events():
            if event.payload.get("subject") == subject or event.target.is_of(subject):
                found.events.append(event)
        found.browser_sessions = [
            it.locator async for it in self.browser_sessions.records.all() if subject in dict(it.subjects).values()
        ]
        found.plugin_values = [(it.plugin, it.key) async for it in self.repository.plugin_values.about(subject)]

    async def _stop(self, found: FoundRecords) -> None:
        """Keep new grants from coming: end the subject's turns, and withdraw its open authorizations."""
        await _each(self.turns.end, found.turns)
        await _each(self._withdraw, _by_pair(versioned for versioned in found.sessions if versioned.record.open))

    async def _withdraw(self, sessions: Sequence[Versioned[AuthSession]]) -> None:
        """Withdraw the open sessions of a pair. What a dead process left claimed is settled; `connecting` counts a
        claim that stays."""
        this_pass = Pass()
        for versioned in sessions:
            if versioned.record.claim is not None:
                with this_pass.entry(), suppress(Conflict):
                    await self.finish.recover(versioned)
            await self.connect.cancel(versioned.record.locator)  # also one whose credential could be typed again
        with suppress(BrokerError):
            this_pass.over()

    async def _remove(self, found: FoundRecords) -> bool:
        await _each(self.browser_sessions.records.end, found.browser_sessions)
        await _each(lambda place: self.repository.plugin_values.remove(*place), found.plugin_values)
        own = {grant.id for grant in found.grants}
        await _each(self.uses.forget, sorted(set(found.uses) - own))
        await _each(self._remove_sessions, _by_pair(found.sessions))
        done = await _each(self._remove_grant, found.grants)
        await self._remove_events(found)
        return all(done)

    async def _remove_sessions(self, sessions: Sequence[Versioned[AuthSession]]) -> None:
        """Remove the ended sessions of a pair, under one lease."""
        key = sessions[0].record.key
        async with self.repository.pair(key):
            await self.repository.forget_waiting(key.app, key.subject)
            for versioned in sessions:
                newest = await self.repository.session(versioned.record.locator)
                if newest is not None and not newest.record.open:
                    await self.repository.erase_session(newest)

    async def _remove_grant(self, grant: Grant) -> bool:
        """False when the grant is alive again. No refresh or revocation is under way while the provider lease is
        held."""
        key = grant.key
        async with self.repository.provider_lease(key, wait=LEASE_WAIT_SECONDS), self.repository.pair(key):
            versioned = await self.repository.grant(key)
            if versioned is not None and (not versioned.record.revoked or versioned.record.revocation_pending):
                return False
            await self.uses.forget(grant.id)
            if versioned is not None:
                self.audit.write(GrantErased(app=grant.app, grant=grant.id), self.clock.now())
                await self.repository.forget_waiting(key.app, key.subject)
                await self.repository.erase_grant(versioned)
        return True

    async def _remove_events(self, found: FoundRecords) -> None:
        """Remove the events, also those that a relay may queue again after a takeover: no record has them any more."""
        by_agent: dict[str, set[str]] = defaultdict(set)
        for event in (*found.events, *(event for it in found.grants for event in it.outbox)):
            by_agent[event.target.agent_name].add(event.id)
        about = [(versioned.record.resume, versioned.record.id) for versioned in found.sessions]
        about += [(it.resume, it.auth_session_id) for it in found.grants if it.resume and it.auth_session_id]
        for target, session_id in about:
            by_agent[target.agent_name] |= AgentEvent.ids_about(session_id)
        for agent, ids in by_agent.items():
            await self.queues.erase(agent, ids)


async def _each(work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """Do the work on every item, some at a time: each waits for the disk. The first error is raised once those that
    were begun beside it have ended."""
    done: list[R] = []
    for start in range(0, len(items), AT_ONCE):
        results = await asyncio.gather(*map(work, items[start : start + AT_ONCE]), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
            done.append(result)
    return done


def _by_pair(sessions: Iterable[Versioned[AuthSession]]) -> list[list[Versioned[AuthSession]]]:
    """Group sessions by the pair whose lease they are changed under."""
    found: dict[GrantKey, list[Versioned[AuthSession]]] = defaultdict(list)
    for versioned in sessions:
        found[versioned.record.key].append(versioned)
    return list(found.values())


def _names(grant: Grant, subject: str) -> bool:
    """Tell whether the subject agreed to a grant, asked for it, or agreed to replaced tokens that it still keeps."""
    agreed = {grant.authorized_by, *(others.authorized_by for others in (*grant.elsewhere, *grant.replaced))}
    return subject in agreed or (grant.resume is not None and grant.resume.is_of(subject))
