"""Open auth sessions: reuse the waiting session of a user, or make a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from oauthbroker.audit import AuthorizationRequested
from oauthbroker.audit.port import AuditWriter
from oauthbroker.authorization.device_codes import DeviceCodes
from oauthbroker.authorization.finish import Finish
from oauthbroker.authorization.mcp_clients import McpClients
from oauthbroker.core.clock import Clock, has_passed, random_text
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import to_its_end
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.grant_key import GrantKey, grant_id
from oauthbroker.model.local_turn import SUBJECT as LOCAL_SUBJECT
from oauthbroker.model.scope_ceiling import union_in_app_order
from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import Reason
from oauthbroker.model.turn import ResumeTarget
from oauthbroker.observability.logging import Log
from oauthbroker.protocol.authorization_request import new_attempt
from oauthbroker.protocol.authorization_urls import AuthorizationUrls
from oauthbroker.records import Attempt, AuthSession, Device, Grant
from oauthbroker.repository.repository import Repository, Versioned
from oauthbroker.repository.session_limits import OpenSessions
from oauthbroker.repository.waiting_lists import WaitingList

LOOK_SECONDS = 3.0  # seconds to wait for the provider's metadata before returning the link without it


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What an authorization is for. Wishes that differ only in `tries`, the number of earlier attempts, share one
    session."""

    key: GrantKey
    scopes: tuple[str, ...]
    resume: ResumeTarget
    reason: Reason = "noGrant"
    switch_account: bool = False
    params: Mapping[str, str] = field(default_factory=dict)
    tries: int = 0
    claims: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Opens sessions, one per wish."""

    repository: Repository
    finish: Finish
    open_sessions: OpenSessions
    devices: DeviceCodes
    authorization_urls: AuthorizationUrls
    mcp_clients: McpClients
    config: CurrentConfig
    clock: Clock
    audit: AuditWriter
    limits: Limits
    log: Log
    _logged: dict[str, str] = field(default_factory=dict)

    async def open_session(
        self, app: App, wish: Wish, still_needed: Callable[[Grant | None], bool]
    ) -> AuthSession | None:
        """Return the session to send a user to: the waiting one of the same wish while more than half its life is left,
        else a new one. None when a grant arrived meanwhile: decide again.

        Raises `rateLimited`, store codes, `appMisconfigured` where the link would lead to an error page, the errors of
        `McpClients.complete`, and in the device code flow those of its request.
        """
        if app.mcp is not None:
            app = await self.mcp_clients.complete(app, new_session=True)
        app = app.at(wish.params)
        has_page = app.has_callback or app.credential is not None
        if has_page and app.is_at_a_connection:
            await self._check_authorization_urls(app)
        elif not app.is_at_a_connection and not has_page:
            raise BrokerError(Code.ACCOUNT_REQUIRED, note="in this flow the turn has to name connectParams")
        found = await self._reusable(app, wish, await self.repository.waiting(app.name, wish.key.subject))
        # a browser that was sent away and has not come back may be at an error page
        if found is not None and found.presses and await self.mcp_clients.recheck(app.name, until=found.created_at):
            app = (await self.mcp_clients.complete(app, new_session=True)).at(wish.params)
            found = await self._reusable(app, wish, await self.repository.waiting(app.name, wish.key.subject))
        if found is not None:
            return found
        if app.flow == "deviceCode":
            return await self._open_device(app, wish, still_needed)
        return await self._open_checked(app, wish, still_needed, None)

    async def _check_authorization_urls(self, app: App) -> None:
        """Raise `appMisconfigured` if the user cannot be sent to the provider, or to the login before it.

        A provider that does not answer now does not prevent a link: it may answer when the user follows it.
        """
        login = self.config.bundle.login if app.owner.binding == "brokerLogin" else None
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                own = (app,) if app.credential is None else ()
                for client in (*own, login.app) if login is not None else own:
                    await self.authorization_urls.check(client)
        except TimeoutError:
            return
        except BrokerError as error:
            refused = error
        else:
            self._logged.pop(app.name, None)
            return
        if refused.retryable:
            return
        if self._logged.get(app.name) != refused.note:
            self._logged[app.name] = refused.note
            self.log.warning("no links for now", app=app.name, code=refused.code.value, note=refused.note)
        raise refused

    async def _open_device(
        self, app: App, wish: Wish, still_needed: Callable[[Grant | None], bool]
    ) -> AuthSession | None:
        """Open a session of the device code flow. The provider is called outside the pair's write lease. The provider
        lease limits this to one request across processes; later callers find the session. A code whose account is
        not compared is for the person at this machine alone: a runtime's conversation may have other readers."""
        if app.owner.binding == "localOperator" and wish.key.subject != LOCAL_SUBJECT:
            note = "localOperator: only `oauthbroker login` shows its code"
            raise BrokerError(Code.DEVICE_CODE_UNSUPPORTED, note=note)
        async with self.repository.provider_lease(wish.key):
            grant = await self.repository.grant(wish.key)
            if not still_needed(grant.record if grant is not None else None):
                return None
            waiting = await self.repository.waiting(app.name, wish.key.subject)
            found = await self._reusable(app, wish, waiting)
            if found is not None:
                return found
            alive = self._alive(wish, waiting)
            self.open_sessions.check(app.name, self.clock.now())
            wish = replace(wish, scopes=_with_scopes_of_others(app, wish, alive))
            device = await self.devices.authorize(app, wish.scopes)
            session = await self._open_checked(app, wish, still_needed, device)
        if session is not None:
            self.devices.watch(session)
        return session

    async def _open_checked(
        self,
        app: App,
        wish: Wish,
        still_needed: Callable[[Grant | None], bool],
        device: tuple[Device, datetime] | None,
    ) -> AuthSession | None:
        async with self.repository.pair(wish.key):
            grant = await self.repository.grant(wish.key)
            if not still_needed(grant.record if grant is not None else None):
                return None
            listed, waiting = await self.repository.waiting_list(app.name, wish.key.subject)
            found = await self._reusable(app, wish, waiting)
            if found is not None:
                return found
            alive = self._alive(wish, waiting)
            if device is None and app.redirect.link == "direct":
                wish = replace(wish, scopes=_with_scopes_of_others(app, wish, alive))
            session = self._new_session(app, wish, device)
            return await to_its_end(asyncio.ensure_future(self._stored(session, wish, listed, alive)))

    async def _reusable(self, app: App, wish: Wish, waiting: list[Versioned[AuthSession]]) -> AuthSession | None:
        """Return the session of the same wish. It and its entry on the waiting list are durable then: the sync after an
        earlier write of either may have failed."""
        for versioned in waiting:
            session = versioned.record
            fits = _same_wish(session, wish) and not session.taken and session.config_digest == app.config_digest
            fits = fits and not session.worn_out and not session.is_past(self.clock.now())
            half = (session.expires_at - session.created_at) / 2
            if fits and session.expires_at - self.clock.now() > half:
                await self.repository.sync("waiting", "sessions")
                return session
        return None

    def _alive(self, wish: Wish, waiting: list[Versioned[AuthSession]]) -> list[Versioned[AuthSession]]:
        """Return the sessions that have not expired. Raises `rateLimited` if a pair has too many: otherwise a tool that
        varies its scopes could displace the links of others."""
        now = self.clock.now()
        alive = [it for it in waiting if not has_passed(it.record.expires_at, it.record.created_at, now)]
        here = sum(versioned.record.resume.address == wish.resume.address for versioned in alive)
        if here >= self.limits.sessions_per_conversation or len(alive) >= self.limits.sessions_per_subject:
            raise BrokerError(Code.RATE_LIMITED, retry_after_seconds=60)
        return alive

    async def _stored(
        self, session: AuthSession, wish: Wish, listed: WaitingList, alive: list[Versioned[AuthSession]]
    ) -> AuthSession:
        """Store a new session. It is listed first: one that no later call finds would count until it expires.

        End the older sessions of the same wish that no browser has started. A user types a device code elsewhere,
        unseen by the broker, so that such a session ends by itself. The next change of the list drops them.
        """
        locators = [*(versioned.record.locator for versioned in alive), session.locator]
        now, grant = self.clock.now(), grant_id(*wish.key)
        entry = AuthorizationRequested(
            app=session.app, grant=grant, session=session.id, agent=wish.resume.agent_name, reason=wish.reason
        )
        self.open_sessions.admit(session.locator, session.app, session.expires_at, now)
        try:
            self.audit.write(entry, now)  # no entry, no session: it would be reused without one
            await self.repository.waiting_lists.save(listed, locators)
            await self.repository.save_session(session, expect=0)
        except BrokerError:
            self.open_sessions.ended(session.locator)
            raise
        for versioned in alive:
            older = versioned.record
            if _same_wish(older, wish) and not older.under_way and older.device is None:
                await self.finish.lapse_locked(versioned)
        return session

    def _new_session(self, app: App, wish: Wish, device: tuple[Device, datetime] | None) -> AuthSession:
        now, locator, secret = self.clock.now(), random_text(self.clock, 128), random_text(self.clock, 256)
        expires_at = now + timedelta(seconds=self.limits.session_seconds) if device is None else device[1]
        return AuthSession(
            locator=locator,
            app=app.name,
            provider=app.provider,
            subject_mode=app.subject_mode,
            subject=wish.key.subject,
            account=wish.key.account,
            params=wish.params,
            typed=bool(app.connect_params) and not wish.params,
            scopes=wish.scopes,
            resume=wish.resume,
            attempt=new_attempt(self.clock, locator, cookie=None) if device is None else Attempt.none(),
            ticket=Secret(locator + secret),
            created_at=now,
            expires_at=expires_at,
            config_digest=app.config_digest,
            link=app.redirect.link if device is None else "connect",
            switch_account=wish.switch_account,
            reason=wish.reason,
            tries=wish.tries,
            claims=wish.claims,
            kind=app.kind,
            device=device[0] if device is not None else None,
        )


def _same_wish(session: AuthSession, wish: Wish) -> bool:
    """Return whether a session serves this wish. A device code, a direct link and a browser that was sent away may
    ask for the scopes of others too, so one of these with more scopes is accepted."""
    may_have_more = session.is_followed_unseen or session.under_way
    enough = session.scopes == wish.scopes or (may_have_more and set(wish.scopes) <= set(session.scopes))
    return (
        enough
        and session.resume == wish.resume
        and session.switch_account == wish.switch_account
        and session.claims == wish.claims
        and session.key == wish.key
        and (session.params == wish.params or session.typed)
    )


def _with_scopes_of_others(app: App, wish: Wish, waiting: list[Versioned[AuthSession]]) -> tuple[str, ...]:
    """Return the scopes to request with a new device code or direct link: the wish's, and those of the pair's others.
    Consenting to the second then removes no scope of the first."""
    if wish.switch_account:
        return wish.scopes
    others = [versioned.record.scopes for versioned in waiting if not versioned.record.switch_account]
    return union_in_app_order(app, wish.scopes, *others)
