"""Tell users in time that a grant ends by itself, and open the session of the link in that notice."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from oauthbroker.authorization.session_opening import Opening, Wish
from oauthbroker.core.clock import Clock, printed
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier, Pass
from oauthbroker.model.apps import App
from oauthbroker.model.connect_links import notice_link
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.scope_ceiling import union_in_app_order
from oauthbroker.model.settings import Settings
from oauthbroker.observability.logging import Log
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.records import AgentEvent, Grant
from oauthbroker.records.connection_event import grant_event
from oauthbroker.records.refresh_end import LOOK_BACK, RefreshEnd
from oauthbroker.repository.repository import Conflict, Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiring:
    """Writes `auth.expiring` once for each end of a grant, in one write with the mark that it was given."""

    apps: Mapping[str, App]
    repository: Repository
    opening: Opening
    settings: Settings
    outbox: Notifier
    clock: Clock
    metrics: Metrics
    log: Log

    async def run_pass(self) -> int:
        """Give the notices that are due; return how many. Looks up the grants of the last days alone. A grant that
        cannot be read or is being changed delays no other one; the store code is raised at the end."""
        now, given, this_pass = self.clock.now(), 0, Pass()
        for days in range(LOOK_BACK.days, -1, -1):
            found = [it.record.key async for it in self.repository.grants_ending((now - timedelta(days=days)).date())]
            for key in found:
                with this_pass.entry(), suppress(Conflict):
                    given += await self._announce(key)
        if given:
            self.outbox.notify()
        this_pass.over()
        return given

    async def _announce(self, key: GrantKey) -> bool:
        async with self.repository.pair(key):
            versioned, now = await self.repository.grant(key), self.clock.now()
            grant = versioned.record if versioned is not None else None
            if versioned is None or grant is None or not self._is_due(grant, now) or grant.ends is None:
                return False
            ends = replace(grant.ends, notice=self.repository.notice_id(grant, grant.ends.at))
            announced, event = replace(grant, ends=ends), self._event(grant, ends, now)
            if event is not None:
                announced = replace(announced, outbox=(*grant.outbox, event))
            try:
                await self.repository.save_grant(announced, expect=versioned.generation)
            except BrokerError:
                with suppress(BrokerError):  # it may have reached the store, where no later pass looks at it again
                    await self.repository.sync("due", "grants")
                raise
        self.metrics.add(Metric.GRANTS_ENDING, grant.app)
        if event is None:
            self.log.warning(
                "a grant ends soon, and no conversation waits for it",
                app=grant.app, grant=grant.id[:15], ends=printed(grant.ends.at),
                hint="let a user connect it again before that: `oauthbroker doctor --forecast` lists all of them",
            )  # fmt: skip
        return True

    def _is_due(self, grant: Grant, now: datetime) -> bool:
        ends = grant.ends
        if ends is None or not grant.ends_by_itself or grant.app not in self.apps:
            return False
        return ends.announce_at is not None and ends.announce_at <= now < ends.at

    def _event(self, grant: Grant, ends: RefreshEnd, now: datetime) -> AgentEvent | None:
        """Build the event for the conversation that last waited for this grant. None if there was none."""
        link = notice_link(self.settings.public_base_url, ends.notice)
        event = grant_event(grant, "auth.expiring", now, endsAt=printed(ends.at), connectUrl=link)
        return None if event is None else replace(event, id=f"{event.id}-{int(ends.at.timestamp())}")

    async def open(self, notice: str) -> str:
        """Open the session of a notice's link, or find the one that waits, and return the ticket of its connect page.
        Raises `stateUnknown` for a link whose grant was replaced or revoked, and the errors of opening a session."""
        versioned = await self.repository.grant_of_notice(notice)
        grant = versioned.record if versioned is not None else None
        app = self.apps.get(grant.app) if grant is not None else None
        if grant is None or grant.resume is None or app is None:
            raise BrokerError(Code.STATE_UNKNOWN)
        scopes = union_in_app_order(app, grant.scopes) or app.scopes
        wish = Wish(key=grant.key, scopes=scopes, resume=grant.resume, reason="expired", params=grant.params)
        session = await self.opening.open_session(app, wish, lambda _: True)
        if session is None or session.ticket is None:
            raise BrokerError(Code.STORE_LOCKED)
        return session.ticket.reveal()
