"""Run the broker's own login (`brokerLogin`): find out whose browser this is, before it goes to the app's provider.

It comes first because a login takes minutes, and a waiting authorization code would expire. Its result is stored in the
session and is valid only for the attempt that follows, in that browser.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from oauthbroker.audit import LoginRefused
from oauthbroker.authorization.callback import CookieJar
from oauthbroker.authorization.code_exchange import Exchange
from oauthbroker.authorization.finish import Finish
from oauthbroker.authorization.login_claims import LoginClaims
from oauthbroker.authorization.second_grant import asking_both
from oauthbroker.core.clock import Clock, random_text
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.broker_login import BrokerLogin
from oauthbroker.model.connect_links import connect_link
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.protocol.authorization_request import new_attempt
from oauthbroker.protocol.authorization_urls import AuthorizationUrls
from oauthbroker.protocol.callback_checks import (
    CallbackParams,
    ValidCallback,
    check_response,
    cookie_fits,
    parse_callback,
)
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.identity import render
from oauthbroker.records import AuthSession, Login
from oauthbroker.repository.repository import Conflict, Repository, Versioned

# Hidden from a browser that did not start the login.
SILENT = frozenset({Code.STATE_USED, Code.STATE_EXPIRED})
# Their sentences ask for a new link. After a sign-in the one of the session is still valid.
_LINK_STAYS = frozenset({Code.PROVIDER_DENIED, Code.INTERACTION_NEEDED, Code.EXCHANGE_FAILED})


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """The expected user logged in. The browser gets a new cookie that no other browser has."""

    session: AuthSession
    cookie: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Logins:
    """Handles the callbacks of the login."""

    repository: Repository
    discovery: Discovery
    authorization_urls: AuthorizationUrls
    claims: LoginClaims
    finish: Finish
    exchange: Exchange
    config: CurrentConfig
    apps: Mapping[str, App]
    clock: Clock

    async def receive(self, query: bytes, cookie_of: CookieJar) -> LoggedIn:
        """Handle one callback. Return the session whose next step is the provider.

        Raises a `BrokerError` that may be shown to the user. Unknown, used, expired and foreign states look the same
        (`stateUnknown`) to a browser that did not start the login. Another user gets `subjectMismatch`: the app's
        provider is not called, and the session stays open for its own user.
        """
        params = parse_callback(query)
        versioned = await self.repository.session(params.locator)
        cookie = cookie_of(params.locator)
        try:
            login, app = self._login(), self._app_of(versioned)
            valid = await self._validate(params, versioned, login, cookie)
        except BrokerError as error:
            refused = error
        else:
            assert versioned is not None  # noqa: S101  (_validate refuses None)
            return await self.exchange.see_through(self._log_in(app, login, versioned, valid))
        if versioned is not None and _is_of(versioned.record, params):
            await self._end_refused(versioned, refused, params)
        if refused.code in SILENT and (versioned is None or not _fits(versioned.record, cookie)):
            raise BrokerError(Code.STATE_UNKNOWN, note=refused.code.value)
        raise refused

    def _login(self) -> BrokerLogin:
        login = self.config.bundle.login
        if login is None:
            raise BrokerError(Code.STATE_UNKNOWN, note="no login of the broker's own")
        return login

    def _app_of(self, versioned: Versioned[AuthSession] | None) -> App:
        app = self.apps.get(versioned.record.app) if versioned is not None else None
        if app is None or app.owner.confirmation != "brokerLogin":
            raise BrokerError(Code.STATE_UNKNOWN)
        return app.at(versioned.record.params) if versioned is not None else app

    async def _validate(
        self, params: CallbackParams, versioned: Versioned[AuthSession] | None, login: BrokerLogin, cookie: str | None
    ) -> ValidCallback:
        """Validate the response, in the order of `validate_callback`:

        (1) a session is waiting for this login and state (2) it is open, the state is unused and not expired, and app
        and login are unchanged (3) the browser is the one that started (4) the issuer is the login's (RFC 9207) (5) the
        user logged in

        Raises stateUnknown, stateUsed, stateExpired, ownerBindingFailed, issuerMismatch, and what
        `check_response` raises.
        """
        if versioned is None or not _is_of(versioned.record, params):  # (1)
            raise BrokerError(Code.STATE_UNKNOWN)
        session, under_way = versioned.record, versioned.record.login
        if not session.open or session.taken or under_way is None or under_way.used:  # (2)
            raise BrokerError(Code.STATE_USED)
        app = self._app_of(versioned)
        outdated = under_way.digest != login.digest() or session.config_digest != app.config_digest
        if session.is_past(self.clock.now()) or outdated:
            raise BrokerError(Code.STATE_EXPIRED)
        if not _fits(session, cookie):  # (3)
            raise BrokerError(Code.OWNER_BINDING_FAILED)
        promised = params.code is not None and await self.discovery.issuer_promised(login.app)
        return check_response(params, login.app.endpoints.issuer, promised=promised)  # (4) (5)

    async def _end_refused(
        self, versioned: Versioned[AuthSession], refused: BrokerError, params: CallbackParams
    ) -> None:
        """Fail the session when its state arrives from another browser or issuer, as at the app's own callback. A
        refused login is only marked as used: the link stays valid for its user."""
        login, code = versioned.record.login, refused.code
        if not versioned.record.open or versioned.record.taken or login is None or login.used:
            return
        if code in {Code.OWNER_BINDING_FAILED, Code.ISSUER_MISMATCH}:
            await self.finish.fail(versioned, code)
        elif refused is params.refused:
            await self._spend(versioned, login)
            await self._note_refused(versioned.record, refused)

    async def _log_in(
        self, app: App, login: BrokerLogin, versioned: Versioned[AuthSession], valid: ValidCallback
    ) -> LoggedIn:
        """Redeem the login's code once, then create the attempt for the provider."""
        under_way = versioned.record.login
        assert under_way is not None  # noqa: S101  (_validate refuses None)
        versioned = await self._spend(versioned, under_way)
        try:
            _check_same(await self._who(login, under_way, valid.code), versioned.record.subject)
        except BrokerError as error:
            refused = error.with_traceback(None)  # the traceback's frames hold the token response
        else:
            return await self._let_through(app, versioned)
        await self._note_refused(versioned.record, refused)
        if refused.code is Code.SUBJECT_MISMATCH and versioned.record.login is not None:
            with suppress(Conflict):
                missed = versioned.record.with_login(versioned.record.login.missed())
                await self.repository.save_session(missed, expect=versioned.generation)
        raise refused

    async def _who(self, login: BrokerLogin, under_way: Login, code: Secret) -> str:
        """Return the subject of the login's ID token. Nothing else of the response is used or stored.

        Raises the errors of the exchange and the ID token checks, `subjectUnverifiable`, `appMisconfigured`.
        """
        rule = login.app.owner.user_identity
        if rule is None:
            raise BrokerError(Code.APP_MISCONFIGURED, note="the login has no way to tell people apart")
        claims = await self.claims.redeem(login.app, under_way.attempt, code, max_age_seconds=login.max_age_seconds)
        return render(rule.template, claims)

    async def _let_through(self, app: App, versioned: Versioned[AuthSession]) -> LoggedIn:
        session, login = versioned.record, versioned.record.login
        assert login is not None  # noqa: S101  (it was spent just now)
        cookie = Secret(random_text(self.clock, 256))
        attempt = new_attempt(self.clock, session.locator, cookie=cookie)
        if app.credential is not None:  # its page is ours
            url = Secret(connect_link(self.config.bundle.settings.public_base_url, session.ticket))
        else:
            url = await self.authorization_urls.now(asking_both(app, session), attempt, session.scopes)
        passed = session.with_login(login.passed(url, session.expires_at), attempt)
        return LoggedIn((await self._save(versioned, passed)).record, cookie)

    async def _spend(self, versioned: Versioned[AuthSession], login: Login) -> Versioned[AuthSession]:
        return await self._save(versioned, versioned.record.with_login(login.spent()))

    async def _save(self, versioned: Versioned[AuthSession], session: AuthSession) -> Versioned[AuthSession]:
        """Save the session. Raises `stateUsed` if another callback, another attempt or the session's end came first."""
        try:
            return await self.repository.save_session(session, expect=versioned.generation)
        except Conflict:
            lost = BrokerError(Code.STATE_USED)
        raise lost

    async def _note_refused(self, session: AuthSession, refused: BrokerError) -> None:
        refused.hint = "signInRefused" if refused.code in _LINK_STAYS else refused.hint
        entry = LoginRefused(app=session.app, session=session.id, code=refused.code.value)
        self.finish.audit.write(entry, self.clock.now())


def _is_of(session: AuthSession, params: CallbackParams) -> bool:
    return session.login is not None and session.login.attempt.state.matches(params.state.reveal())


def _fits(session: AuthSession, cookie: str | None) -> bool:
    return session.login is not None and cookie_fits(session.login.attempt, cookie)


def _check_same(came: str, expected: str) -> None:
    """Compare subjects byte for byte."""
    if came != expected:
        raise BrokerError(Code.SUBJECT_MISMATCH, note="another person logged in")
