"""The provider sent a browser back: judge, then redeem the code, or park it until its browser is vouched for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oauthbroker.apps import BrokerLogin, OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.exchange import Exchange
from oauthbroker.flows.finish import Finish
from oauthbroker.protocol.callback import (
    CallbackParams,
    ValidCallback,
    cookie_fits,
    parse_callback,
    validate_callback,
)
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.parking import new_parked
from oauthbroker.records import AuthSession
from oauthbroker.repository import Conflict, Held, Repository

# To a browser that did not start the session these all look like a state that nobody ever made: whoever tries
# states out learns neither that one existed, nor whose app it was for, nor whether its person has been there.
SILENT = frozenset({Code.STATE_USED, Code.STATE_EXPIRED, Code.APP_MISMATCH})

CookieJar = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Callback:
    """Takes callbacks of every app. `cookie_of` reads this browser's cookie for a session's locator."""

    repository: Repository
    discovery: Discovery
    finish: Finish
    exchange: Exchange
    ended: Callable[[str], None]
    login: Callable[[], BrokerLogin | None]
    clock: Clock

    async def receive(self, app: OAuthApp, query: bytes, cookie_of: CookieJar) -> AuthSession:
        """Handles one callback of `app`'s own path; returns the session that a grant was stored for, or that has its
        code parked now.

        Raises a `BrokerError` that is fit to be shown: unknown, used, expired and foreign states look the same
        (`stateUnknown`) to a browser that did not start the session.
        """
        params = parse_callback(query)
        held = await self.repository.session(params.locator)
        cookie = cookie_of(params.locator)
        try:
            valid = await self._judge(params, held, app, cookie)
        except BrokerError as error:
            refused = error
        else:
            assert held is not None  # noqa: S101  (validate_callback refuses None)
            if app.owner.vouching == "brokerLogin":
                return await self.exchange.see_through(self.exchange.redeem(app, held, valid, "brokerLogin"))
            if app.owner.vouching is not None:
                return await self.exchange.see_through(self._park(app, held, valid))
            return await self.exchange.see_through(self.exchange.redeem(app, held, valid))
        if held is not None:
            await self._end_refused(held, refused.code, params)
        if refused.code in SILENT and (held is None or not cookie_fits(held.record, cookie)):
            raise BrokerError(Code.STATE_UNKNOWN, note=refused.code.value)
        raise refused

    async def _park(self, app: OAuthApp, held: Held[AuthSession], valid: ValidCallback) -> AuthSession:
        """Nothing is sent anywhere. One winner, as for a claim: raises `stateUsed` for everybody else."""
        kind = app.owner.vouching
        assert kind is not None  # noqa: S101  (asked before)
        session = held.record.park(new_parked(self.clock, held.record.locator, kind, valid))
        try:
            return (await self.repository.save_session(session, expect=held.generation)).record
        except Conflict:
            lost = BrokerError(Code.STATE_USED)
        raise lost

    async def _judge(
        self, params: CallbackParams, held: Held[AuthSession] | None, app: OAuthApp, cookie: str | None
    ) -> ValidCallback:
        """Judge the response. The network is asked for the issuer's promise only once the session has proved to be
        real, and only about a code: an error is judged without."""
        known = held is not None and held.record.attempt.state.matches(params.state.reveal())
        promised = await self.discovery.issuer_promised(app) if known and not params.denied else False
        valid = validate_callback(
            params,
            held.record if held is not None else None,
            app,
            cookie,
            issuer=app.endpoints.issuer,
            issuer_promised=promised,
            now=self.clock.now(),
        )
        if held is not None and held.record.config_digest != app.digest():
            raise BrokerError(Code.STATE_EXPIRED, note="the app's configuration changed meanwhile")
        if held is not None and app.owner.vouching == "brokerLogin" and not self._knows_who(held.record):
            raise BrokerError(Code.OWNER_BINDING_FAILED, note="nobody has logged in for it")
        return valid

    def _knows_who(self, session: AuthSession) -> bool:
        """Whether the subject itself has logged in, in the browser whose attempt this is: there is none before."""
        login = self.login()
        if login is None or session.login is None:
            return False
        return session.login.counts(login.digest(), self.clock.now())

    async def _end_refused(self, held: Held[AuthSession], code: Code, params: CallbackParams) -> None:
        """What a refused callback does to the session it named; one that is not its own does nothing."""
        session = held.record
        if not session.open or session.taken or not session.attempt.state.matches(params.state.reveal()):
            return
        if code is Code.PROVIDER_DENIED:
            await self.finish.fail(held, code, event="auth.denied")
        elif code in {Code.OWNER_BINDING_FAILED, Code.ISSUER_MISMATCH}:
            await self.finish.fail(held, code)
        elif code is Code.STATE_EXPIRED:
            await self.finish.lapse(held)
        else:
            return
        self.ended(session.locator)
