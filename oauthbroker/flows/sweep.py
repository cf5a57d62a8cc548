"""Tidying up: sessions expire, claims of the dead are settled, finished records go (specification 12.5.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from oauthbroker.apps import Limits
from oauthbroker.clock import Clock
from oauthbroker.flows.finish import Finish
from oauthbroker.records import AuthSession
from oauthbroker.repository import Conflict, Held, Repository


@dataclass(frozen=True, slots=True)
class Sweep:
    """One pass over the sessions. `expired_events` asks for `auth.expired`; it is off unless somebody wants it,
    because it would wake agents to open the next link for ever."""

    repository: Repository
    finish: Finish
    ended: Callable[[str], None]
    clock: Clock
    limits: Limits
    expired_events: bool = False

    async def once(self) -> int:
        """How many sessions were ended or removed."""
        touched = 0
        async for held in self.repository.sessions():
            touched += await self._tend(held)
        return touched

    async def _tend(self, held: Held[AuthSession]) -> bool:
        session, now = held.record, self.clock.now()
        if session.open and session.claim is not None:
            return await self.finish.recover(held)
        if session.open and session.expires_at <= now:
            await self.finish.lapse(held, event="auth.expired" if self.expired_events else None)
            self.ended(session.locator)
            return True
        keep = timedelta(seconds=self.limits.keep_finished_seconds)
        if session.open or session.outbox is not None or (session.finished_at or now) + keep > now:
            return False
        try:
            await self.repository.drop_session(held)
        except Conflict:
            return False
        return True
