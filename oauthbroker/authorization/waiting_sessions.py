"""The sessions of a pair that wait for one grant: completed with it."""

from __future__ import annotations

from oauthbroker.authorization.new_grant import carries, granted_event
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.records import AuthSession, Grant
from oauthbroker.repository.repository import Conflict, Repository, Versioned


@dataclass(frozen=True, slots=True)
class WaitingSessions:
    """Completes waiting sessions. The caller holds the pair's lease."""

    repository: Repository
    clock: Clock

    async def complete_all(self, stored: Versioned[Grant], versioned: Versioned[AuthSession]) -> None:
        """Complete all sessions. The one that created the grant is last: until then `recover` finds it. Afterwards the
        grant has the only event, so one that a takeover has lost meanwhile is stored again. A session whose tokens were
        not needed has its event itself."""
        grant = stored.record
        if not grant.revoked and not grant.needs_choice:
            await self.complete_others(grant, versioned.record)
        session, now = versioned.record, self.clock.now()
        done = session.completed(now, None if carries(grant, session) else granted_event(session, grant, now))
        await self.repository.save_session(done, expect=versioned.generation)
        await self.repository.store_again_if_lost(stored)

    async def complete_others(self, grant: Grant, first: AuthSession) -> None:
        """Complete every other session of the pair that this grant satisfies. Its event is stored in its own record.
        One with claims needs those with which the grant was made."""
        left = list[str]()  # no other session of the pair begins or ends under its lease
        listed, others = await self.repository.waiting_list(grant.app, grant.subject, but={first.locator})
        for other in others:
            if not await self._complete_other(grant, other, first.claims):
                left.append(other.record.locator)
        await self.repository.waiting_lists.save(listed, left)

    async def _complete_other(self, grant: Grant, versioned: Versioned[AuthSession] | None, claims: str) -> bool:
        """Complete one session. On a conflict, such as a browser starting an attempt, it is read again."""
        for _ in range(8):
            if versioned is None or not versioned.record.open or versioned.record.claim is not None:
                return False
            session = versioned.record
            if session.key != grant.key or session.switch_account or not set(session.scopes) <= set(grant.scopes):
                return False
            if session.claims not in {"", claims}:
                return False
            done = session.completed(self.clock.now(), granted_event(session, grant, self.clock.now()))
            try:
                await self.repository.save_session(done, expect=versioned.generation)
            except Conflict:
                versioned = await self.repository.session(session.locator)
                continue
            return True
        return False
