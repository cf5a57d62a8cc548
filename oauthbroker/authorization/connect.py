"""Serve a connect link: show the session's page and send one browser to the provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from oauthbroker.audit import ConnectStarted, RequestWithdrawn
from oauthbroker.audit.port import AuditWriter
from oauthbroker.authorization.finish import Finish
from oauthbroker.authorization.second_grant import asking_both
from oauthbroker.core.clock import Clock, random_text
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.broker_login import BrokerLogin
from oauthbroker.model.connect_links import unknown_link
from oauthbroker.model.scope_ceiling import union_in_app_order
from oauthbroker.protocol.authorization_request import new_attempt
from oauthbroker.protocol.authorization_urls import AuthorizationUrls
from oauthbroker.protocol.callback_checks import LOCATED, LOCATOR_LENGTH, cookie_fits
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.records import Attempt, AuthSession, Grant, Login
from oauthbroker.repository.repository import Conflict, Repository, Versioned

TRIES = 8  # of a write beside other writers


@dataclass(frozen=True, slots=True)
class Departure:
    """Where to redirect a browser, and the attempt cookie to set."""

    url: Secret
    cookie: Secret
    session: AuthSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """The actions of a connect link: show, start, decline, cancel."""

    repository: Repository
    authorization_urls: AuthorizationUrls
    discovery: Discovery
    finish: Finish
    clock: Clock
    audit: AuditWriter

    async def session_of_ticket(self, ticket: str) -> Versioned[AuthSession]:
        """Return the open session of a ticket. Changes nothing, because chat applications fetch links before users open
        them.

        Raises `stateUnknown` for any other ticket. The reason is not revealed.
        """
        return self._opened_by(ticket, await self._located(ticket))

    async def _located(self, ticket: str) -> Versioned[AuthSession] | None:
        return await self.repository.session(ticket[:LOCATOR_LENGTH]) if LOCATED.fullmatch(ticket) else None

    def _opened_by(self, ticket: str, versioned: Versioned[AuthSession] | None) -> Versioned[AuthSession]:
        if versioned is None or versioned.record.ticket is None or not versioned.record.ticket.matches(ticket):
            raise unknown_link(ticket)
        session, now = versioned.record, self.clock.now()
        is_taken = session.taken and not session.is_abandoned(now)
        if not session.open or is_taken or session.is_past(now):
            raise BrokerError(Code.STATE_UNKNOWN)
        return versioned

    async def session_of(self, locator: str, cookie: str) -> AuthSession | None:
        """Return the session that this browser took to the provider or to the broker's login, ended ones included. None
        for any other browser."""
        session = await self.outcome_of(locator)
        if session is None:
            return None
        attempts = (session.attempt, session.login.attempt) if session.login is not None else (session.attempt,)
        return session if any(cookie_fits(attempt, cookie) for attempt in attempts) else None

    async def outcome_of(self, locator: str) -> AuthSession | None:
        """Return the session for a browser that has proved by other means that it belongs to it."""
        versioned = await self.repository.session(locator)
        return versioned.record if versioned is not None else None

    async def grant_of(self, session: AuthSession) -> Grant | None:
        """Return the active grant that this session created. None if another one has replaced it."""
        versioned = await self.repository.grant(session.key)
        is_of = (
            versioned is not None and versioned.record.auth_session_id == session.id and not versioned.record.revoked
        )
        return versioned.record if versioned is not None and is_of else None

    async def shown(self, ticket: str) -> AuthSession:
        """Return the session that a link's page shows: an open one. In the device code flow also a claimed or ended
        one, because users reload that page. Raises `stateUnknown`."""
        versioned = await self._located(ticket)
        session = versioned.record if versioned is not None else None
        if session is not None and session.device is not None:
            is_current = session.ticket is not None and session.ticket.matches(ticket)
            if is_current or session.device.was_shown_under(ticket):
                return session
        return self._opened_by(ticket, versioned).record

    async def scopes_now(self, app: App, session: AuthSession) -> tuple[str, ...]:
        """Return the scopes to ask the user for: the session's, those of a grant stored since it was opened, and those
        that the user is already asked for, in another browser, by a direct link or a device code. Consenting to the
        second of two links then removes no scope of the first, in any order."""
        if session.switch_account or session.device is not None:
            return session.scopes
        others = [
            each.record.scopes
            for each in await self.repository.waiting(session.app, session.subject)
            if each.record.key == session.key and self._is_asked_beside(each.record, app)
        ]
        versioned = await self.repository.grant(session.key)  # last: a link that is agreed to meanwhile is in it
        if versioned is not None and not versioned.record.revoked and versioned.record.registration == app.registration:
            others.append(versioned.record.scopes)
        return union_in_app_order(app, session.scopes, *others) if others else session.scopes

    def _is_asked_beside(self, other: AuthSession, app: App) -> bool:
        is_asked = (other.under_way or other.is_followed_unseen) and not other.is_past(self.clock.now())
        return is_asked and not other.switch_account and other.config_digest == app.config_digest

    @asynccontextmanager
    async def turn(self, ticket: str, tried: int) -> AsyncIterator[None]:
        """Be alone in the body among those who press the same link, from the second try on: a person waits. Raises
        `stateUnknown`, and `storeLocked` after PAIR_WAIT_SECONDS."""
        if not tried:
            yield
            return
        async with self.repository.provider_lease((await self.session_of_ticket(ticket)).record.key):
            yield

    async def start(self, app: App, ticket: str, login: BrokerLogin | None = None, *, label: str = "") -> Departure:
        """Start an attempt for this browser: new state, verifier, nonce and cookie in one write. The last browser wins.
        With a `login` the browser goes there first, and earlier attempts of other browsers become invalid. `app` is at
        the connection that its user typed, if any; `label` is the user's name for the account.

        Raises `stateUnknown`, also for a link that was started too often, and the errors of discovery and of pushed
        authorization requests. These are raised before the attempt is written: the link can be used again, and a
        browser that is already at the provider can still come back.
        """
        await self.discovery.endpoints(app)
        for tried in range(TRIES):
            async with self.turn(ticket, tried):
                versioned = await self.session_of_ticket(ticket)
                versioned = versioned._replace(record=versioned.record.named(label, app.params))
                await self._check_startable(app, versioned)
                if tried == 0:
                    self.audit.write(ConnectStarted(app=app.name, session=versioned.record.id), self.clock.now())
                cookie = Secret(random_text(self.clock, 256))
                attempt = new_attempt(self.clock, versioned.record.locator, cookie=cookie)
                try:
                    if login is None:
                        session, url = await self._to_provider(app, versioned, attempt)
                    else:
                        session, url = await self._to_login(app, versioned, attempt, login)
                except Conflict:
                    continue
                if set(await self.scopes_now(app, session)) <= set(session.scopes):
                    return Departure(url, cookie, session)
                # another link was pressed meanwhile, which does not ask for the scopes of this one
        raise BrokerError(Code.STORE_LOCKED)

    async def _to_provider(
        self, app: App, versioned: Versioned[AuthSession], attempt: Attempt
    ) -> tuple[AuthSession, Secret]:
        versioned = await self._counted(app, versioned)
        session = versioned.record.attempted(attempt, await self.scopes_now(app, versioned.record))
        url = await self.authorization_urls.now(asking_both(app, session), attempt, session.scopes)
        await self.repository.save_session(session, expect=versioned.generation)
        return session, url

    async def _to_login(
        self, app: App, versioned: Versioned[AuthSession], attempt: Attempt, login: BrokerLogin
    ) -> tuple[AuthSession, Secret]:
        was_wrong = versioned.record.login is not None and versioned.record.login.wrong
        client = login.asking(again=was_wrong)
        versioned = await self._counted(client, versioned)
        scopes = await self.scopes_now(app, versioned.record)
        session = versioned.record.logging_in(Login(attempt=attempt, digest=login.digest(), wrong=was_wrong), scopes)
        url = await self.authorization_urls.now(client, attempt, client.scopes)
        await self.repository.save_session(session, expect=versioned.generation)
        return session, url

    async def _check_startable(self, app: App, versioned: Versioned[AuthSession]) -> None:
        if versioned.record.device is not None:
            raise BrokerError(Code.REQUEST_INVALID, note="a device code takes no browser to the provider")
        if versioned.record.config_digest != app.config_digest:
            await self.finish.lapse(versioned)
            raise BrokerError(Code.STATE_UNKNOWN, note="the app's configuration changed meanwhile")
        if versioned.record.worn_out:
            raise BrokerError(Code.STATE_UNKNOWN, note="the link's button was pressed too often")

    async def _counted(self, app: App, versioned: Versioned[AuthSession]) -> Versioned[AuthSession]:
        """Count one more start. It is written before it costs the provider a request, else along with the attempt."""
        session = versioned.record.pressed()
        if not await self.authorization_urls.pushes(app):
            return versioned._replace(record=session)
        return await self.repository.save_session(session, expect=versioned.generation)

    async def decline(self, ticket: str) -> AuthSession:
        """Record that the user declined on the broker's page. Raises `stateUnknown`."""
        for tried in range(TRIES):
            async with self.turn(ticket, tried):
                versioned = await self._undeclined(ticket)
                if await self.finish.fail(versioned, Code.PROVIDER_DENIED, event="auth.denied"):
                    return versioned.record
        raise BrokerError(Code.STORE_LOCKED)

    async def _undeclined(self, ticket: str) -> Versioned[AuthSession]:
        """Return the open session, as `look` does. Makes the end of an ended session durable before raising
        `stateUnknown`."""
        try:
            return await self.session_of_ticket(ticket)
        except BrokerError:
            versioned = await self._located(ticket)
            if versioned is not None and not versioned.record.open:
                await self.repository.sync("sessions")
            raise

    async def cancel(self, locator: str, noted: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Withdraw the request, without an event. False when the session has ended or is claimed. `noted` audits the
        caller of an open one first: if it raises, nothing changes."""
        for attempt in range(8):
            versioned = await self.repository.session(locator)
            if versioned is None:
                return False
            if not versioned.record.open or versioned.record.claim is not None:
                await self.repository.sync("sessions")
                return False
            if attempt == 0:
                if noted is not None:
                    await noted()
                self.audit.write(
                    RequestWithdrawn(app=versioned.record.app, session=versioned.record.id), self.clock.now()
                )
            if await self.finish.lapse(versioned):
                return True
        raise BrokerError(Code.STORE_LOCKED)
