"""From need to link: the session that a person is sent to, the waiting one or a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from oauthbroker.apps import BrokerLogin, OAuthApp
from oauthbroker.audit import AuditWriter, AuthorizationRequested
from oauthbroker.clock import Clock, has_passed, random_text
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.finish import Finish
from oauthbroker.protocol.authorize import new_attempt
from oauthbroker.protocol.way_out import WayOut
from oauthbroker.quota import OpenSessions
from oauthbroker.records import Attempt, AuthSession, Device, Grant, grant_id
from oauthbroker.repository import Held, Repository
from oauthbroker.results import Reason
from oauthbroker.scope import union_in_app_order
from oauthbroker.secret import Secret
from oauthbroker.settings import Limits
from oauthbroker.turn import ResumeTarget

LOOK_SECONDS = 3.0  # how long a tool waits for a provider's metadata before it gets its link anyway


@dataclass(frozen=True, slots=True)
class Wish:
    """What an authorization is for. Two wishes that are equal but for `tries` share one session: so often has its
    person tried before."""

    subject: str
    scopes: tuple[str, ...]
    resume: ResumeTarget
    reason: Reason = "noGrant"
    switch_account: bool = False
    tries: int = 0


class Devices(Protocol):
    """The device code flow, as far as opening a session goes."""

    async def authorize(self, app: OAuthApp, scopes: tuple[str, ...]) -> tuple[Device, datetime]:
        """Asks the provider for a code to show; it, and when it expires."""
        ...

    def watch(self, session: AuthSession) -> None:
        """From now on the provider is asked whether somebody has agreed."""
        ...


@dataclass(frozen=True, slots=True)
class Opening:
    """Opens sessions, one for every wish that has none yet. `login` is the broker's own login in use; `tell`
    writes the log."""

    repository: Repository
    finish: Finish
    quota: OpenSessions
    devices: Devices
    way_out: WayOut
    login: Callable[[], BrokerLogin | None]
    clock: Clock
    audit: AuditWriter
    limits: Limits
    tell: Callable[..., None]
    _told: dict[str, str] = field(default_factory=dict)

    async def open(self, app: OAuthApp, wish: Wish, still_needed: Callable[[Grant | None], bool]) -> AuthSession | None:
        """The session to send a person to: the pending one of the same wish while more than half its life is left,
        else a new one. None when a grant arrived meanwhile: decide again.

        Raises `rateLimited`, store codes, `appMisconfigured` where the link would lead to an error page, and in the
        device code flow what its request raises.
        """
        if app.has_callback:
            await self._check_way_out(app)
        found = self._reusable(app, wish, await self.repository.waiting(app.name, wish.subject))
        if found is not None:
            return found
        if app.flow == "deviceCode":
            return await self._open_device(app, wish, still_needed)
        return await self._open_checked(app, wish, still_needed, None)

    async def _check_way_out(self, app: OAuthApp) -> None:
        """Raise `appMisconfigured` where a person cannot be sent off, to the provider or to the login before it.

        A provider that does not answer now is no reason to give no link: it may answer when the person follows it.
        """
        login = self.login() if app.owner.vouching == "brokerLogin" else None
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                for client in (app, login.app) if login is not None else (app,):
                    await self.way_out.check(client)
        except TimeoutError:
            return
        except BrokerError as error:
            refused = error
        else:
            self._told.pop(app.name, None)
            return
        if refused.code is not Code.APP_MISCONFIGURED:
            return
        if self._told.get(app.name) != refused.note:
            self._told[app.name] = refused.note
            self.tell("no links for now", app=app.name, code=refused.code.value, note=refused.note)
        raise refused

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
            self._check_room(app, wish, alive)
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
            fits = _same_wish(session, wish) and not session.taken and session.config_digest == app.digest()
            fits = fits and not session.worn_out and not session.is_past(self.clock.now())
            half = (session.expires_at - session.created_at) / 2
            if fits and session.expires_at - self.clock.now() > half:
                return session
        return None

    def _alive(self, waiting: list[Held[AuthSession]]) -> list[Held[AuthSession]]:
        now = self.clock.now()
        return [it for it in waiting if not has_passed(it.record.expires_at, it.record.created_at, now)]

    def _check_room(self, app: OAuthApp, wish: Wish, alive: list[Held[AuthSession]]) -> None:
        """A tool may wish for other scopes each time: that must not cost others their links."""
        here = sum(held.record.resume.address == wish.resume.address for held in alive)
        if here >= self.limits.sessions_per_conversation or len(alive) >= self.limits.sessions_per_subject:
            raise BrokerError(Code.RATE_LIMITED, retry_after_seconds=60)
        self.quota.check(app.name, self.clock.now())

    async def _open_new(
        self, app: OAuthApp, wish: Wish, waiting: list[Held[AuthSession]], device: tuple[Device, datetime] | None
    ) -> AuthSession:
        now, alive = self.clock.now(), self._alive(waiting)
        self._check_room(app, wish, alive)
        session = self._new_session(app, wish, device)
        self.quota.admit(session.locator, app.name, session.expires_at, now)
        grant = grant_id(app.name, wish.subject)
        entry = AuthorizationRequested(app.name, grant, session.id, wish.resume.agent_name, wish.reason)
        try:
            self.audit.write(entry, now)  # no entry, no session: it would be found and used again without one
            await self.repository.save_session(session, expect=0)
        except BrokerError:
            self.quota.ended(session.locator)
            raise
        left = [held.record.locator for held in alive if not await self._supersede(held, wish)]
        await self.repository.save_waiting(app.name, wish.subject, [*left, session.locator])
        return session

    async def _supersede(self, held: Held[AuthSession], wish: Wish) -> bool:
        """Ends an older session of the same wish that nobody is on the way with; False where it goes on.

        Who types a device code does so elsewhere, unseen: such a session ends by itself.
        """
        session = held.record
        if not _same_wish(session, wish) or session.under_way:
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
            attempt=new_attempt(self.clock, locator, cookie=None) if device is None else Attempt.none(),
            created_at=now,
            expires_at=expires_at,
            config_digest=app.digest(),
            link=app.redirect.link if device is None else "connect",
            switch_account=wish.switch_account,
            reason=wish.reason,
            tries=wish.tries,
            device=device[0] if device is not None else None,
        )


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
