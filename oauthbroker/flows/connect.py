"""From link to provider: show the session's page, and send one browser off."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TypedDict

from oauthbroker.apps import Endpoints, OAuthApp
from oauthbroker.audit import AuditWriter, ConnectStarted, RequestWithdrawn
from oauthbroker.clock import Clock, random_text
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.finish import Finish
from oauthbroker.protocol.asker import Asker
from oauthbroker.protocol.authorize import authorization_url, new_attempt
from oauthbroker.protocol.callback import LOCATOR_LENGTH
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.par import par_request, par_response, pushed_url
from oauthbroker.quota import OpenSessions
from oauthbroker.records import AuthSession
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
    asker: Asker
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
        if not session.open or session.taken or session.expires_at <= self.clock.now():
            raise BrokerError(Code.STATE_UNKNOWN)
        return held

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

    async def start(self, app: OAuthApp, ticket: str) -> Departure:
        """The person pressed the button: new state, verifier, nonce and cookie in one write; the last browser wins.

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
                held = await self._counted(app, held)
                session = held.record.attempted(attempt, await self.scopes_now(app, held.record))
                url = await self._way_out(app, session)
                await self.repository.save_session(session, expect=held.generation)
            except Conflict:
                continue
            self.audit.write(ConnectStarted(app.name, session.id), self.clock.now())
            return Departure(url, cookie, session)
        raise BrokerError(Code.STORE_LOCKED)

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
        if not self._pushes(app, await self.discovery.endpoints(app)):
            return replace(held, record=session)
        return await self.repository.save_session(session, expect=held.generation)

    async def provider_url(self, app: OAuthApp, session: AuthSession) -> Secret:
        """The provider's authorization URL of the session's present attempt. It carries the state: a Secret.

        Raises `appMisconfigured` where the provider takes only what was pushed: that would be dead before somebody
        follows a link that lies about.
        """
        if await self.discovery.push_required(app):
            raise BrokerError(Code.APP_MISCONFIGURED, note="a direct link to a provider that requires pushed requests")
        return Secret(authorization_url(app, await self.discovery.endpoints(app), **_asked(session)))

    async def _way_out(self, app: OAuthApp, session: AuthSession) -> Secret:
        """Where the browser goes right now: with all that is asked in the URL, or with the number of a request that
        was pushed (RFC 9126) where the provider takes those and the app does not say `never`.

        Raises `providerUnreachable`, `providerRateLimited`, `appMisconfigured`.
        """
        endpoints, asked = await self.discovery.endpoints(app), _asked(session)
        if self._pushes(app, endpoints):
            answer = await self.asker.ask(
                app, lambda known: par_request(known, endpoints, **asked, clock=self.clock), kind="push"
            )
            return Secret(pushed_url(app, endpoints, par_response(answer)))
        if app.pushed_authorization != "never" and await self.discovery.push_required(app):
            raise BrokerError(Code.APP_MISCONFIGURED, note="requests must be pushed, and there is nowhere to")
        return Secret(authorization_url(app, endpoints, **asked))

    def _pushes(self, app: OAuthApp, endpoints: Endpoints) -> bool:
        return app.pushed_authorization != "never" and bool(endpoints.pushed_authorization_url)

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
            if held is None or not held.record.open or held.record.claim is not None:
                return False
            if attempt == 0:
                self.audit.write(RequestWithdrawn(held.record.app, held.record.id), self.clock.now())
            if await self.finish.lapse(held):
                self.quota.ended(locator)
                return True
        raise BrokerError(Code.STORE_LOCKED)


class _Asked(TypedDict):
    """What an authorization request is built from, however it travels."""

    state: Secret
    code_challenge: str
    nonce: Secret | None
    scopes: tuple[str, ...]


def _asked(session: AuthSession) -> _Asked:
    attempt = session.attempt
    return _Asked(state=attempt.state, code_challenge=attempt.challenge, nonce=attempt.nonce, scopes=session.scopes)
