"""From need to link to provider: open a session, show its page, and send one browser off."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypedDict

from oauthbroker.apps import Limits, OAuthApp
from oauthbroker.audit import AuditWriter, AuthorizationRequested, ConnectStarted
from oauthbroker.clock import Clock, random_text
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.finish import Finish
from oauthbroker.protocol.asker import Asker
from oauthbroker.protocol.authorize import authorization_url, code_challenge
from oauthbroker.protocol.callback import LOCATOR_LENGTH, cookie_hash
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.par import par_request, par_response, pushed_url
from oauthbroker.quota import OpenSessions
from oauthbroker.records import Attempt, AuthSession, Device, Grant, grant_id
from oauthbroker.repository import Conflict, Held, Repository
from oauthbroker.results import Reason
from oauthbroker.scope import union_in_app_order
from oauthbroker.secret import Secret
from oauthbroker.turn import ResumeTarget

TICKET = re.compile(r"[A-Za-z0-9_-]{65}")


@dataclass(frozen=True, slots=True)
class Wish:
    """What an authorization is for. Two wishes that are equal share one session."""

    subject: str
    scopes: tuple[str, ...]
    resume: ResumeTarget
    reason: Reason = "noGrant"
    switch_account: bool = False


@dataclass(frozen=True, slots=True)
class Departure:
    """Where a browser goes now, and the cookie it takes along."""

    url: Secret
    cookie: Secret
    session: AuthSession


class Devices(Protocol):
    """The device code flow, as far as opening a session goes."""

    async def authorize(self, app: OAuthApp, scopes: tuple[str, ...]) -> tuple[Device, datetime]:
        """Asks the provider for a code to show; it, and when it expires."""
        ...

    def watch(self, session: AuthSession) -> None:
        """From now on the provider is asked whether somebody has agreed."""
        ...


@dataclass(frozen=True, slots=True)
class Connect:
    """Opens sessions and starts browsers on their way."""

    repository: Repository
    asker: Asker
    discovery: Discovery
    finish: Finish
    quota: OpenSessions
    devices: Devices
    clock: Clock
    audit: AuditWriter
    limits: Limits

    async def open(self, app: OAuthApp, wish: Wish, still_needed: Callable[[Grant | None], bool]) -> AuthSession | None:
        """The session to send a person to: the pending one of the same wish while more than half its life is left,
        else a new one. None when a grant arrived meanwhile: decide again.

        Raises `rateLimited`, store codes, and in the device code flow what its request raises.
        """
        found = self._reusable(app, wish, await self.repository.waiting(app.name, wish.subject))
        if found is not None:
            return found
        if app.flow == "deviceCode":
            return await self._open_device(app, wish, still_needed)
        return await self._open_checked(app, wish, still_needed, None)

    async def _open_device(
        self, app: OAuthApp, wish: Wish, still_needed: Callable[[Grant | None], bool]
    ) -> AuthSession | None:
        """The provider is asked first, outside the pair's write lease. The flight keeps it to one request, however
        many ask in however many processes; whoever comes later finds the session."""
        async with self.repository.flight(app.name, wish.subject):
            grant = await self.repository.grant(app.name, wish.subject)
            if not still_needed(grant.record if grant is not None else None):
                return None
            waiting = await self.repository.waiting(app.name, wish.subject)
            found = self._reusable(app, wish, waiting)
            if found is not None:
                return found
            alive = self._alive(waiting)
            self._check_room(app, alive)
            wish = replace(wish, scopes=_with_scopes_of_others(app, wish, alive))
            device = await self.devices.authorize(app, wish.scopes)
            session = await self._open_checked(app, wish, still_needed, device)
        if session is not None:
            self.devices.watch(session)
        return session

    async def _open_checked(
        self,
        app: OAuthApp,
        wish: Wish,
        still_needed: Callable[[Grant | None], bool],
        device: tuple[Device, datetime] | None,
    ) -> AuthSession | None:
        async with self.repository.pair(app.name, wish.subject):
            grant = await self.repository.grant(app.name, wish.subject)
            if not still_needed(grant.record if grant is not None else None):
                return None
            waiting = await self.repository.waiting(app.name, wish.subject)
            found = self._reusable(app, wish, waiting)
            return found if found is not None else await self._open_new(app, wish, waiting, device)

    def _reusable(self, app: OAuthApp, wish: Wish, waiting: list[Held[AuthSession]]) -> AuthSession | None:
        for held in waiting:
            session = held.record
            fits = _same_wish(session, wish) and session.claim is None and session.config_digest == app.digest()
            half = (session.expires_at - session.created_at) / 2
            if fits and session.expires_at - self.clock.now() > half:
                return session
        return None

    def _alive(self, waiting: list[Held[AuthSession]]) -> list[Held[AuthSession]]:
        now = self.clock.now()
        return [held for held in waiting if held.record.expires_at > now]

    def _check_room(self, app: OAuthApp, alive: list[Held[AuthSession]]) -> None:
        if len(alive) >= self.limits.sessions_per_subject:
            raise BrokerError(Code.RATE_LIMITED, retry_after_seconds=60)
        self.quota.check(app.name, self.clock.now())

    async def _open_new(
        self, app: OAuthApp, wish: Wish, waiting: list[Held[AuthSession]], device: tuple[Device, datetime] | None
    ) -> AuthSession:
        now, alive = self.clock.now(), self._alive(waiting)
        self._check_room(app, alive)
        session = self._new_session(app, wish, device)
        self.quota.admit(session.locator, app.name, session.expires_at, now)
        try:
            await self.repository.save_session(session, expect=0)
        except BrokerError:
            self.quota.ended(session.locator)
            raise
        left = [held.record.locator for held in alive if not await self._supersede(held, wish)]
        await self.repository.save_waiting(app.name, wish.subject, [*left, session.locator])
        grant = grant_id(app.name, wish.subject)
        entry = AuthorizationRequested(app.name, grant, session.id, wish.resume.agent_name, wish.reason)
        self.audit.write(entry, now)
        return session

    async def _supersede(self, held: Held[AuthSession], wish: Wish) -> bool:
        """Ends an older session of the same wish that nobody is on the way with; False where it goes on.

        Who types a device code does so elsewhere, unseen: such a session ends by itself.
        """
        session = held.record
        if not _same_wish(session, wish) or session.attempt.cookie is not None or session.claim is not None:
            return False
        if session.device is not None:
            return False
        if not await self.finish.lapse_locked(held):
            return False
        self.quota.ended(session.locator)
        return True

    def _new_session(self, app: OAuthApp, wish: Wish, device: tuple[Device, datetime] | None) -> AuthSession:
        now, locator = self.clock.now(), random_text(self.clock, 128)
        expires_at = now + timedelta(seconds=self.limits.session_seconds) if device is None else device[1]
        return AuthSession(
            locator=locator,
            app=app.name,
            provider=app.provider,
            subject_mode=app.subject_mode,
            subject=wish.subject,
            scopes=wish.scopes,
            resume=wish.resume,
            ticket=Secret(locator + random_text(self.clock, 256)),
            attempt=self._new_attempt(locator, cookie=None) if device is None else Attempt.none(),
            created_at=now,
            expires_at=expires_at,
            config_digest=app.digest(),
            link=app.redirect.link if device is None else "connect",
            switch_account=wish.switch_account,
            reason=wish.reason,
            device=device[0] if device is not None else None,
        )

    def _new_attempt(self, locator: str, *, cookie: Secret | None) -> Attempt:
        """RFC 7636 section 4.1: 256 bits of verifier, S256; a state and a nonce of their own for every browser."""
        verifier = Secret(random_text(self.clock, 256))
        return Attempt(
            state=Secret(locator + random_text(self.clock, 256)),
            challenge=code_challenge(verifier),
            verifier=verifier,
            nonce=Secret(random_text(self.clock, 256)),
            cookie=cookie_hash(cookie.reveal()) if cookie is not None else None,
        )

    async def look(self, ticket: str) -> Held[AuthSession]:
        """The open session of a ticket; changes nothing, because chat applications fetch links before people do.

        Raises `stateUnknown` for whatever is not an open session: which of the reasons it is stays ours.
        """
        held = await self.repository.session(ticket[:LOCATOR_LENGTH]) if TICKET.fullmatch(ticket) else None
        if held is None or held.record.ticket is None or not held.record.ticket.matches(ticket):
            raise BrokerError(Code.STATE_UNKNOWN)
        session = held.record
        if not session.open or session.claim is not None or session.expires_at <= self.clock.now():
            raise BrokerError(Code.STATE_UNKNOWN)
        return held

    async def shown(self, ticket: str) -> AuthSession:
        """The session that a link's page is about: an open one, or in the device code flow also one that is being
        finished or has ended, because that page is looked at again and again. Raises `stateUnknown`."""
        held = await self.repository.session(ticket[:LOCATOR_LENGTH]) if TICKET.fullmatch(ticket) else None
        session = held.record if held is not None else None
        if session is not None and session.device is not None:
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

        Raises `stateUnknown`, and what discovery and pushing the request raise, before anything is written: the same
        link may be tried again, and a browser that is already on its way still arrives.
        """
        await self.discovery.endpoints(app)
        for _ in range(8):
            held = await self.look(ticket)
            if held.record.device is not None:
                raise BrokerError(Code.REQUEST_INVALID, note="a device code takes no browser to the provider")
            if held.record.config_digest != app.digest():
                await self.finish.lapse(held)
                raise BrokerError(Code.STATE_UNKNOWN)
            cookie = Secret(random_text(self.clock, 256))
            attempt = self._new_attempt(held.record.locator, cookie=cookie)
            session = held.record.attempted(attempt, await self.scopes_now(app, held.record))
            url = await self._way_out(app, session)
            try:
                await self.repository.save_session(session, expect=held.generation)
            except Conflict:
                continue
            self.audit.write(ConnectStarted(app.name, session.id), self.clock.now())
            return Departure(url, cookie, session)
        raise BrokerError(Code.STORE_LOCKED)

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
        if app.pushed_authorization == "never":
            return Secret(authorization_url(app, endpoints, **asked))
        if endpoints.pushed_authorization_url:
            answer = await self.asker.ask(app, lambda known: par_request(known, endpoints, **asked, clock=self.clock))
            return Secret(pushed_url(app, endpoints, par_response(answer)))
        if await self.discovery.push_required(app):
            raise BrokerError(Code.APP_MISCONFIGURED, note="requests must be pushed, and there is nowhere to")
        return Secret(authorization_url(app, endpoints, **asked))

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
        for _ in range(8):
            held = await self.repository.session(locator)
            if held is None or not held.record.open or held.record.claim is not None:
                return False
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


def _same_wish(session: AuthSession, wish: Wish) -> bool:
    """A device code asks for its scopes when it is made, so one that asks for more will do as well."""
    enough = session.scopes == wish.scopes if session.device is None else set(wish.scopes) <= set(session.scopes)
    return (
        enough
        and session.resume == wish.resume
        and session.switch_account == wish.switch_account
        and session.subject == wish.subject
    )


def _with_scopes_of_others(app: OAuthApp, wish: Wish, waiting: list[Held[AuthSession]]) -> tuple[str, ...]:
    """What a new device code asks for: what other open ones of the pair ask for too, so that agreeing to the second
    takes nothing away from the first."""
    if wish.switch_account:
        return wish.scopes
    others = [held.record.scopes for held in waiting if not held.record.switch_account]
    return union_in_app_order(app, wish.scopes, *others)
