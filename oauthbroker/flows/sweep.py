"""Tidying up: sessions expire, claims of the dead are settled, finished records go (specification 12.5.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from oauthbroker.apps import OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.finish import Finish
from oauthbroker.records import AuthSession
from oauthbroker.repository import Conflict, Held, Repository
from oauthbroker.settings import Limits


@dataclass(frozen=True, slots=True)
class Sweep:
    """One pass over the sessions. `expired_events` asks for `auth.expired`; it is off unless somebody wants it,
    because it would wake agents to open the next link for ever. `watch` is shown every session of the device code
    flow that is open: whoever polled for it may be gone."""

    repository: Repository
    finish: Finish
    ended: Callable[[str], None]
    clock: Clock
    limits: Limits
    expired_events: bool = False
    watch: Callable[[AuthSession], None] | None = None

    async def once(self) -> int:
        """How many sessions were ended or removed. One that another process is changing waits for the next round;
        a failing store keeps no other session back and is raised last."""
        touched, failed = 0, None
        async for held in self.repository.sessions():
            try:
                touched += await self._tend(held)
            except Conflict:
                continue
            except BrokerError as error:
                failed = error
        if failed is not None:
            raise failed
        return touched

    async def end_outdated(self, apps: Callable[[str], OAuthApp | None]) -> int:
        """Ends what was opened for an app that is gone, or is not the same any more; how many. What somebody is
        finishing right now is finished."""
        ended = 0
        async for held in self.repository.sessions():
            session, app = held.record, apps(held.record.app)
            if not session.open or session.claim is not None:
                continue
            if app is None or app.digest() != session.config_digest:
                self.ended(session.locator)
                ended += await self.finish.lapse(held, event="auth.expired" if self.expired_events else None)
        return ended

    async def _tend(self, held: Held[AuthSession]) -> bool:
        session, now = held.record, self.clock.now()
        if session.open and session.claim is not None:
            return await self.finish.recover(held)
        if session.open and self._is_past(session, now):
            self.ended(session.locator)
            if session.parked is not None:  # somebody agreed, and nobody said whose browser that was
                return await self.finish.fail(held, Code.OWNER_BINDING_FAILED)
            return await self.finish.lapse(held, event="auth.expired" if self.expired_events else None)
        if session.open and session.device is not None and self.watch is not None:
            self.watch(session)
        keep = timedelta(seconds=self.limits.keep_finished_seconds)
        if session.open or session.outbox is not None or (session.finished_at or now) + keep > now:
            return False
        await self.repository.drop_session(held)
        return True

    def _is_past(self, session: AuthSession, now: datetime) -> bool:
        """A poll that left in time may come back with tokens a little later."""
        late = timedelta(seconds=self.limits.provider_seconds) if session.device is not None else timedelta()
        return session.is_past(now - late)
