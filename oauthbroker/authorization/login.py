"""The broker's own login (`brokerLogin`): who sits at this browser, before it goes on to the app's provider.

It comes first because people take their time at a login, and a code that waits for one would be dead. What it learns
is kept in the session and counts for the attempt that it makes, in that browser, and for no other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from oauthbroker.apps import BrokerLogin, OAuthApp
from oauthbroker.audit import LoginRefused
from oauthbroker.clock import Clock, random_text
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.exchange import Exchange
from oauthbroker.flows.finish import Finish
from oauthbroker.protocol.authorize import new_attempt
from oauthbroker.protocol.callback import (
    CallbackParams,
    ValidCallback,
    attempt_cookie_fits,
    check_response,
    parse_callback,
)
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.id_token import EXPIRY_LEEWAY_SECONDS, VerifiedClaims
from oauthbroker.protocol.identity import OwnerReader, render
from oauthbroker.protocol.judging import judge
from oauthbroker.protocol.token import code_request, token_response
from oauthbroker.protocol.way_out import WayOut
from oauthbroker.records import AuthSession, Login
from oauthbroker.repository import Conflict, Held, Repository
from oauthbroker.secret import Secret

# What a browser that did not leave for the login is not told.
SILENT = frozenset({Code.STATE_USED, Code.STATE_EXPIRED})

CookieJar = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """The right person logged in: their browser gets a new cookie, and nobody else has that one."""

    session: AuthSession
    cookie: Secret


@dataclass(frozen=True, slots=True)
class Logins:
    """Takes the callbacks of the login. `configured` is the one in use, `apps` looks an app up, `ended` hears of
    every session that is over."""

    repository: Repository
    discovery: Discovery
    way_out: WayOut
    owners: OwnerReader
    finish: Finish
    exchange: Exchange
    configured: Callable[[], BrokerLogin | None]
    apps: Callable[[str], OAuthApp | None]
    ended: Callable[[str], None]
    clock: Clock

    async def receive(self, query: bytes, cookie_of: CookieJar) -> LoggedIn:
        """Handles one callback; the session that has its way on to the provider now.

        Raises a `BrokerError` that is fit to be shown. Unknown, used, expired and foreign states look the same
        (`stateUnknown`) to a browser that did not leave for the login. Somebody else is `subjectMismatch`: nothing was
        asked of the app's provider, and the session stays for whom it is for.
        """
        params = parse_callback(query)
        held = await self.repository.session(params.locator)
        cookie = cookie_of(params.locator)
        try:
            login, app = self._login(), self._app_of(held)
            valid = await self._judge(params, held, login, cookie)
        except BrokerError as error:
            refused = error
        else:
            assert held is not None  # noqa: S101  (_judge refuses None)
            return await self.exchange.see_through(self._log_in(app, login, held, valid))
        if held is not None and _is_of(held.record, params):
            await self._end_refused(held, refused.code)
        if refused.code in SILENT and (held is None or not _fits(held.record, cookie)):
            raise BrokerError(Code.STATE_UNKNOWN, note=refused.code.value)
        raise refused

    def _login(self) -> BrokerLogin:
        login = self.configured()
        if login is None:
            raise BrokerError(Code.STATE_UNKNOWN, note="no login of the broker's own")
        return login

    def _app_of(self, held: Held[AuthSession] | None) -> OAuthApp:
        app = self.apps(held.record.app) if held is not None else None
        if app is None or app.owner.vouching != "brokerLogin":
            raise BrokerError(Code.STATE_UNKNOWN)
        return app

    async def _judge(
        self, params: CallbackParams, held: Held[AuthSession] | None, login: BrokerLogin, cookie: str | None
    ) -> ValidCallback:
        """In the order of `validate_callback`:

        (1) a session waits for this login, and this is its state (2) it has not ended, nobody has come back with this
        state, it has not expired, and app and login are what they were (3) the browser is the one that left
        (4) the response's issuer is the login's (5) the person did log in

        Raises stateUnknown, stateUsed, stateExpired, ownerBindingFailed, issuerMismatch, providerDenied.
        """
        if held is None or not _is_of(held.record, params):  # (1)
            raise BrokerError(Code.STATE_UNKNOWN)
        session, under_way = held.record, held.record.login
        if not session.open or session.taken or under_way is None or under_way.used:  # (2)
            raise BrokerError(Code.STATE_USED)
        app = self._app_of(held)
        outdated = under_way.digest != login.digest() or session.config_digest != app.digest()
        if self.clock.now() >= session.expires_at or outdated:
            raise BrokerError(Code.STATE_EXPIRED)
        if not _fits(session, cookie):  # (3)
            raise BrokerError(Code.OWNER_BINDING_FAILED)
        promised = not params.denied and await self.discovery.issuer_promised(login.app)
        return check_response(params, login.app.endpoints.issuer, promised=promised)  # (4) (5)

    async def _end_refused(self, held: Held[AuthSession], code: Code) -> None:
        """A state in another browser, or from another issuer, ends its session, as at the app's own callback. A login
        that was called off is only used up: the link is still good for whom it is for."""
        login = held.record.login
        if not held.record.open or held.record.taken or login is None or login.used:
            return
        if code in {Code.OWNER_BINDING_FAILED, Code.ISSUER_MISMATCH}:
            await self.finish.fail(held, code)
            self.ended(held.record.locator)
        elif code is Code.PROVIDER_DENIED:
            await self._spend(held, login)
            self._note_refused(held.record, code)

    async def _log_in(
        self, app: OAuthApp, login: BrokerLogin, held: Held[AuthSession], valid: ValidCallback
    ) -> LoggedIn:
        """One winner redeems the login's code; only then is there an attempt for the provider."""
        under_way = held.record.login
        assert under_way is not None  # noqa: S101  (_judge refuses None)
        held = await self._spend(held, under_way)
        try:
            _check_same(await self._who(login, under_way, valid.code), held.record.subject)
        except BrokerError as error:
            refused = error.with_traceback(None)  # the frames in which the answer lay would come along
        else:
            return await self._let_through(app, held)
        self._note_refused(held.record, refused.code)
        if refused.code is Code.SUBJECT_MISMATCH and held.record.login is not None:
            with suppress(Conflict):
                missed = held.record.with_login(held.record.login.missed())
                await self.repository.save_session(missed, expect=held.generation)
        raise refused

    async def _who(self, login: BrokerLogin, under_way: Login, code: Secret) -> str:
        """The subject that the login's ID token is of; what else came along is used for nothing and kept nowhere.

        Raises what the exchange and the token's checks raise, `subjectUnverifiable`, `appMisconfigured`.
        """
        verifier, nonce, rule = under_way.attempt.verifier, under_way.attempt.nonce, login.app.owner.user_identity
        if verifier is None or nonce is None or rule is None:
            raise BrokerError(Code.APP_MISCONFIGURED, note="the login has no way to tell people apart")
        sent_at = self.clock.now()
        endpoints = await self.discovery.endpoints(login.app)
        answer = await self.way_out.asker.ask(
            login.app, lambda known: code_request(known, endpoints, code, verifier, clock=self.clock), kind="code"
        )
        tokens = token_response(login.app, answer)
        claims = await self.owners.claims(login.app, tokens, nonce, sent_at)
        _check_recent(claims, login.max_age_seconds)
        return render(rule.template, claims)

    async def _let_through(self, app: OAuthApp, held: Held[AuthSession]) -> LoggedIn:
        session, login = held.record, held.record.login
        assert login is not None  # noqa: S101  (it was spent just now)
        cookie = Secret(random_text(self.clock, 256))
        attempt = new_attempt(self.clock, session.locator, cookie=cookie)
        url = await self.way_out.now(app, attempt, session.scopes)
        passed = session.with_login(login.passed(url, session.expires_at), attempt)
        return LoggedIn((await self._save(held, passed)).record, cookie)

    async def _spend(self, held: Held[AuthSession], login: Login) -> Held[AuthSession]:
        return await self._save(held, held.record.with_login(login.spent()))

    async def _save(self, held: Held[AuthSession], session: AuthSession) -> Held[AuthSession]:
        """Raises `stateUsed` where somebody else was first: another callback, another press, or the session's end."""
        try:
            return await self.repository.save_session(session, expect=held.generation)
        except Conflict:
            lost = BrokerError(Code.STATE_USED)
        raise lost

    def _note_refused(self, session: AuthSession, code: Code) -> None:
        self.finish.audit.write(LoginRefused(session.app, session.id, code.value), self.clock.now())


def _is_of(session: AuthSession, params: CallbackParams) -> bool:
    return session.login is not None and session.login.attempt.state.matches(params.state.reveal())


def _fits(session: AuthSession, cookie: str | None) -> bool:
    return session.login is not None and attempt_cookie_fits(session.login.attempt, cookie)


def _check_same(came: str, expected: str) -> None:
    """Byte for byte, as every comparison of subjects."""
    if came != expected:
        raise BrokerError(Code.SUBJECT_MISMATCH, note="another person logged in")


@judge(Code.ID_TOKEN_INVALID)
def _check_recent(claims: VerifiedClaims, max_age_seconds: int | None) -> None:
    """OpenID Connect Core 1.0 section 3.1.3.7 (13): who asks for a maximum age has to look at what came back."""
    if max_age_seconds is None:
        return
    at, issued = claims.get("auth_time"), claims["iat"]  # both by the provider's own clock
    if isinstance(at, bool) or not isinstance(at, int | float) or not isinstance(issued, int | float):
        raise BrokerError(Code.ID_TOKEN_INVALID, note="auth_time")
    if at < issued - max_age_seconds - EXPIRY_LEEWAY_SECONDS:  # compared, not computed with: it may be of any size
        raise BrokerError(Code.ID_TOKEN_INVALID, note="auth_time")
