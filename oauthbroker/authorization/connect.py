"""From link to provider: show the session's page, and send one browser off."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from oauthbroker.apps import BrokerLogin, OAuthApp
from oauthbroker.audit import AuditWriter, ConnectStarted, RequestWithdrawn
from oauthbroker.clock import Clock, random_text
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.finish import Finish
from oauthbroker.protocol.authorize import new_attempt
from oauthbroker.protocol.callback import LOCATOR_LENGTH, attempt_cookie_fits
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.way_out import WayOut
from oauthbroker.quota import OpenSessions
from oauthbroker.records import Attempt, AuthSession, Grant, Login
from oauthbroker.repository import Conflict, Held, Repository
from oauthbroker.scope import union_in_app_order
from oauthbroker.secret import Secret

TICKET = re.compile(r"[A-Za-z0-9_-]{65}")


@dataclass(frozen=True, slots=True)
class Departure:
    """Where a browser goes now, and the cookie it takes along."""

    url: Secret
    cookie: Secret
    session: AuthSession


@dataclass(frozen=True, slots=True)
class Connect:
    """What one link can do: be looked at, be followed, be declined, be withdrawn."""

    repository: Repository
    way_out: WayOut
    discovery: Discovery
    finish: Finish
    quota: OpenSessions
    clock: Clock
    audit: AuditWriter

    async def look(self, ticket: str) -> Held[AuthSession]:
        """The open session of a ticket; changes nothing, because chat applications fetch links before people do.

        Raises `stateUnknown` for whatever is not an open session: which of the reasons it is stays ours.
        """
        held = await self.repository.session(ticket[:LOCATOR_LENGTH]) if TICKET.fullmatch(ticket) else None
        if held is None or held.record.ticket is None or not held.record.ticket.matches(ticket):
            raise BrokerError(Code.STATE_UNKNOWN)
        session = held.record
        if not session.open or session.taken or session.is_past(self.clock.now()):
            raise BrokerError(Code.STATE_UNKNOWN)
        return held

    async def session_of(self, locator: str, cookie: str) -> AuthSession | None:
        """Return the session that this browser took to the provider or to the login before it, also when it has ended
        since; None for any other browser."""
        held = await self.repository.session(locator)
        if held is None:
            return None
        session = held.record
        attempts = (session.attempt, session.login.attempt) if session.login is not None else (session.attempt,)
        return session if any(attempt_cookie_fits(attempt, cookie) for attempt in attempts) else None

    async def outcome_of(self, locator: str) -> AuthSession | None:
        """Return the session of a browser that proved otherwise that it came from there."""
        held = await self.repository.session(locator)
        return held.record if held is not None else None

    async def grant_of(self, session: AuthSession) -> Grant | None:
        """Return the living grant that this session brought; None where another one has taken its place since."""
        held = await self.repository.grant(session.app, session.subject)
        is_of = held is not None and held.record.auth_session_id == session.id and not held.record.revoked
        return held.record if held is not None and is_of else None

    async def shown(self, ticket: str) -> AuthSession:
        """The session that a link's page is about: an open one, or in the device code flow also one that is being
        finished or has ended, because that page is looked at again and again. Raises `stateUnknown`."""
        held = await self.repository.session(ticket[:LOCATOR_LENGTH]) if TICKET.fullmatch(ticket) else None
        if held is None:
            raise BrokerError(Code.STATE_UNKNOWN)
        session = held.record
        if session.device is not None:
            if session.ticket is not None and session.ticket.matches(ticket):
                return session
            if session.device.was_shown_under(ticket):
                return session
        return (await self.look(ticket)).record

    async def scopes_now(self, app: OAuthApp, session: AuthSession) -> tuple[str, ...]:
        """What the person is asked for: the session's scopes, and those of a grant that came since it was opened, so
        that agreeing to the second of two links takes nothing away from the first."""
        held = await self.repository.grant(app.name, session.subject)
        if held is None or held.record.revoked or session.switch_account or session.device is not None:
            return session.scopes
        if held.record.registration != app.registration:
            return session.scopes
        return union_in_app_order(app, held.record.scopes, session.scopes)

    async def start(self, app: OAuthApp, ticket: str, login: BrokerLogin | None = None) -> Departure:
        """The person pressed the button: new state, verifier, nonce and cookie in one write; the last browser wins.
        With a `login` the browser goes there first, and nothing that another one took to the provider is good any more.

        Raises `stateUnknown`, also for a link that was pressed too often, and what discovery and pushing the request
        raise, before the attempt is written: the same link may be tried again, and a browser that is already on its
        way still arrives.
        """
        await self.discovery.endpoints(app)
        for _ in range(8):
            held = await self.look(ticket)
            await self._check_startable(app, held)
            cookie = Secret(random_text(self.clock, 256))
            attempt = new_attempt(self.clock, held.record.locator, cookie=cookie)
            try:
                if login is None:
                    session, url = await self._to_provider(app, held, attempt)
                else:
                    session, url = await self._to_login(app, held, attempt, login)
            except Conflict:
                continue
            self.audit.write(ConnectStarted(app.name, session.id), self.clock.now())
            return Departure(url, cookie, session)
        raise BrokerError(Code.STORE_LOCKED)

    async def _to_provider(
        self, app: OAuthApp, held: Held[AuthSession], attempt: Attempt
    ) -> tuple[AuthSession, Secret]:
        held = await self._counted(app, held)
        session = held.record.attempted(attempt, await self.scopes_now(app, held.record))
        url = await self.way_out.now(app.asking_which_account() if session.tries else app, attempt, session.scopes)
        await self.repository.save_session(session, expect=held.generation)
        return session, url

    async def _to_login(
        self, app: OAuthApp, held: Held[AuthSession], attempt: Attempt, login: BrokerLogin
    ) -> tuple[AuthSession, Secret]:
        was_wrong = held.record.login is not None and held.record.login.wrong
        client = login.asking(again=was_wrong)
        held = await self._counted(client, held)
        scopes = await self.scopes_now(app, held.record)
        session = held.record.logging_in(Login(attempt, login.digest(), wrong=was_wrong), scopes)
        url = await self.way_out.now(client, attempt, client.scopes)
        await self.repository.save_session(session, expect=held.generation)
        return session, url

    async def _check_startable(self, app: OAuthApp, held: Held[AuthSession]) -> None:
        if held.record.device is not None:
            raise BrokerError(Code.REQUEST_INVALID, note="a device code takes no browser to the provider")
        if held.record.config_digest != app.digest():
            await self.finish.lapse(held)
            raise BrokerError(Code.STATE_UNKNOWN)
        if held.record.worn_out:
            raise BrokerError(Code.STATE_UNKNOWN, note="the link's button was pressed too often")

    async def _counted(self, app: OAuthApp, held: Held[AuthSession]) -> Held[AuthSession]:
        """One press more. It is written before it costs the provider a request, else along with the attempt."""
        session = held.record.pressed()
        if not await self.way_out.pushes(app):
            return replace(held, record=session)
        return await self.repository.save_session(session, expect=held.generation)

    async def provider_url(self, app: OAuthApp, session: AuthSession) -> Secret:
        """The provider's authorization URL of the session's present attempt. It carries the state: a Secret.

        Raises `appMisconfigured` where the provider takes only what was pushed: that would be dead before somebody
        follows a link that lies about.
        """
        return await self.way_out.lasting(app, session.attempt, session.scopes)

    async def decline(self, ticket: str) -> AuthSession:
        """The person said no on our own page. Raises `stateUnknown`."""
        for _ in range(8):
            held = await self.look(ticket)
            if await self.finish.fail(held, Code.PROVIDER_DENIED, event="auth.denied"):
                self.quota.ended(held.record.locator)
                return held.record
        raise BrokerError(Code.STORE_LOCKED)

    async def cancel(self, locator: str) -> bool:
        """The runtime withdraws the request; no event. False when there is nothing left to withdraw."""
        for attempt in range(8):
            held = await self.repository.session(locator)
            if held is None:
                return False
            if not held.record.open or held.record.claim is not None:
                await self.repository.sync("sessions")
                return False
            if attempt == 0:
                self.audit.write(RequestWithdrawn(held.record.app, held.record.id), self.clock.now())
            if await self.finish.lapse(held):
                self.quota.ended(locator)
                return True
        raise BrokerError(Code.STORE_LOCKED)
