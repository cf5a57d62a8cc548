"""The operators' actions: sign in, look around, revoke, cancel, settle. Serves the pages of `/admin`."""

from __future__ import annotations

from datetime import datetime, timedelta

from oauthbroker.access.api_keys import ApiKeys
from oauthbroker.access.browser_sessions import BrowserSessions, NewBrowserSession
from oauthbroker.admin.operator_login import OperatorLogin, SignedIn
from oauthbroker.admin.overview import Overview
from oauthbroker.audit import CallRefused, OperatorEntered, PageAction
from oauthbroker.audit.port import AuditWriter
from oauthbroker.authorization.connect import Connect
from oauthbroker.core.clock import Clock, has_passed
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.events.dead_letters import DeadLetters
from oauthbroker.grants.grants import Grants
from oauthbroker.model.connect_links import locator_of
from oauthbroker.records.browser_session import BrowserSession
from oauthbroker.revocation.pending_revocations import RevocationOutcome

LOOPBACK = "loopback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """One per broker. The audit log has each action with its browser session."""

    overview: Overview
    dead_letters: DeadLetters
    grants: Grants
    connect: Connect
    browser_sessions: BrowserSessions
    api_keys: ApiKeys
    login: OperatorLogin
    clock: Clock
    audit: AuditWriter

    async def enter(self, key: str) -> NewBrowserSession:
        """Enter with an API key that has the role `operator`. Raises `unauthenticated`, `notAllowed`, also where
        operators have the login."""
        if self.login.operators is not None:
            raise BrokerError(Code.NOT_ALLOWED, note="operators sign in by the broker's login")
        found = await self.api_keys.check(key.strip())
        if "operator" not in found.roles:
            raise BrokerError(Code.NOT_ALLOWED, note="the key is no operator's")
        return await self._enter(found.name, found.id)

    async def enter_from_here(self) -> NewBrowserSession:
        """Enter from this machine. The caller has made sure of that, and that the settings allow it."""
        return await self._enter(LOOPBACK, "")

    async def enter_as(self, person: SignedIn) -> NewBrowserSession:
        """Enter as the person that the broker's login told."""
        return await self._enter(person.subject, person.digest, person.proved_at)

    async def turned_away(self, route: str, code: Code) -> None:
        """Audit a refused sign-in. Nothing that the browser said can be trusted."""
        self.audit.write(
            CallRefused(route=route, code=code.value, caller=None, agent=None, tool=None), self.clock.now()
        )

    async def is_welcome(self, browser_session: BrowserSession) -> bool:
        """Return whether the key or the login that a browser session began with still makes an operator: a removed key
        ends it at once, and so does a change of the login or of its operators."""
        if not browser_session.key:
            return True
        if self.login.operators is not None:
            return browser_session.key == self.login.digest
        key = await self.api_keys.records.get(browser_session.key.removeprefix("key-"))
        return key is not None and "operator" in key.roles and key.alive_at(self.clock.now())

    async def _enter(self, operator: str, key: str, proved_at: datetime | None = None) -> NewBrowserSession:
        async def noted(browser_session_id: str) -> None:
            self.audit.write(OperatorEntered(name=operator, browser=browser_session_id), self.clock.now())

        return await self.browser_sessions.enter(operator, key, noted, proved_at=proved_at)

    def needs_confirmation(self, browser_session: BrowserSession) -> bool:
        """Return whether the operator has to sign in again before a change."""
        operators, proved = self.login.operators, browser_session.proved_at
        if operators is None or not browser_session.key:
            return False
        return proved is None or has_passed(
            proved + timedelta(seconds=operators.confirm_seconds), proved, self.clock.now()
        )

    async def revoke(self, browser_session: BrowserSession, grant_id: str) -> RevocationOutcome | None:
        """End a grant, here at once. None for one that has ended. Raises `grantNotFound`."""
        row, _ = await self.overview.grant(grant_id)
        if not row.revoked:
            await self._note(browser_session, row.app, "revoke", grant_id)
        outcome = await self.grants.revoke(*row.key)
        self.overview.pages.forget()
        return outcome

    async def cancel(self, browser_session: BrowserSession, session_id: str) -> bool:
        """Withdraw a request; no event. False when there is nothing left to withdraw. Raises `requestInvalid`."""
        locator = locator_of(session_id)
        versioned = await self.overview.repository.session(locator)
        if versioned is None:
            return False
        return await self.connect.cancel(
            locator, lambda: self._note(browser_session, versioned.record.app, "cancel", session_id)
        )

    async def retry(self, browser_session: BrowserSession, agent: str, event_id: str) -> bool:
        """Give a dead letter new attempts. False if none has that id."""
        return await self.dead_letters.retry(
            agent, event_id, lambda: self._note(browser_session, "", "retryEvent", event_id)
        )

    async def drop(self, browser_session: BrowserSession, agent: str, event_id: str) -> bool:
        """Remove a dead letter for good. False if none has that id."""
        return await self.dead_letters.drop(
            agent, event_id, lambda: self._note(browser_session, "", "dropEvent", event_id)
        )

    async def _note(self, browser_session: BrowserSession, app: str, action: str, target: str) -> None:
        entry = PageAction(
            app=app, browser=browser_session.id, operator=browser_session.operator, action=action, target=target
        )
        self.audit.write(entry, self.clock.now())
