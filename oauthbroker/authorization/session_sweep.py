"""Sweep sessions: end expired ones, recover abandoned claims, delete finished records (specification 12.5.5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta

from oauthbroker.authorization.finish import Finish
from oauthbroker.core.clock import SET_BACK, Clock
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import Code
from oauthbroker.core.lifecycle import Pass
from oauthbroker.model.settings import Limits
from oauthbroker.records import AuthSession, EventType
from oauthbroker.repository.repository import Conflict, Repository, Versioned


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One pass over the sessions. `expired_events` turns on `auth.expired`. It is off by default, because the event
    would wake agents to open the next link again and again. `watch` is called with every open session of the device
    code flow, because the process that polled for it may be gone, and `unused` with the app of a link that expired
    without a consent."""

    repository: Repository
    finish: Finish
    clock: Clock
    limits: Limits
    expired_events: bool = False
    watch: Callable[[AuthSession], None] | None = None
    unused: Callable[[str], Awaitable[object]] | None = None

    async def once(self) -> int:
        """End and delete sessions; return how many. A session that another process is changing waits for the next pass.
        A store error delays no other session and is raised at the end."""
        return await self._each(self._tend)

    async def end_outdated(self, lost: Collection[tuple[str, str]]) -> int:
        """End sessions of these apps, each with its digest; return how many. Claimed sessions are left to be finished.
        Sessions that cannot be changed are handled as in `once`."""

        async def end(versioned: Versioned[AuthSession]) -> bool:
            session = versioned.record
            if not session.open or session.claim is not None or (session.app, session.config_digest) not in lost:
                return False
            return await self.finish.lapse(versioned, event=self._expired)

        return await self._each(end) if lost else 0

    async def _each(self, work: Callable[[Versioned[AuthSession]], Awaitable[bool]]) -> int:
        """Apply `work` to each session and return for how many it was true."""
        touched, this_pass = 0, Pass()
        async for versioned in self.repository.sessions():
            with this_pass.entry(), suppress(Conflict):
                touched += await work(versioned)
        this_pass.over()
        return touched

    @property
    def _expired(self) -> EventType | None:
        return "auth.expired" if self.expired_events else None

    async def _tend(self, versioned: Versioned[AuthSession]) -> bool:
        session, now = versioned.record, self.clock.now()
        if session.open and session.claim is not None:
            return await self.finish.recover(versioned)
        if session.open and self._is_past(session, now):
            if session.pending_code is not None:  # the user consented, but the browser was not confirmed
                return await self.finish.fail(versioned, Code.OWNER_BINDING_FAILED)
            lapsed = await self.finish.lapse(versioned, event=self._expired)
            if lapsed and self.unused is not None:
                await self.unused(session.app)
            return lapsed
        if session.open and session.device is not None:
            if session.created_at > now + SET_BACK:
                versioned = await self.repository.save_session(session.dated_back(now), expect=versioned.generation)
            if self.watch is not None:
                self.watch(versioned.record)
        if session.open or session.outbox is not None:
            return False
        return await self._tend_finished(versioned, session.finished_at or now, now)

    async def _tend_finished(self, versioned: Versioned[AuthSession], finished_at: datetime, now: datetime) -> bool:
        if finished_at > now + SET_BACK:  # the clock was set back since: keep it for the usual time, from now
            await self.repository.save_session(replace(versioned.record, finished_at=now), expect=versioned.generation)
            return True
        if finished_at + timedelta(seconds=self.limits.keep_finished_seconds) > now:
            return False
        await self.repository.drop_session(versioned)
        return True

    def _is_past(self, session: AuthSession, now: datetime) -> bool:
        """Return whether a session has expired, with time for the tokens of a last poll to arrive."""
        late = timedelta(seconds=self.limits.provider_seconds) if session.device is not None else timedelta()
        return session.is_past(now - late)
