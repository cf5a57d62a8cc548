"""The provider sent a browser back: judge, claim, exchange, verify, commit.

From the claim on, the work belongs to the broker and not to the request: a browser that goes away changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from oauthbroker.apps import OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.finish import Finish, Revoker
from oauthbroker.protocol.asker import Asker
from oauthbroker.protocol.callback import (
    CallbackParams,
    ValidCallback,
    cookie_fits,
    parse_callback,
    validate_callback,
)
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.token import RefusedTokens, TokenResponse, code_request, token_response
from oauthbroker.protocol.transport import TransportFailed
from oauthbroker.records import AuthSession, ClaimedSession
from oauthbroker.repository import Held, Repository
from oauthbroker.secret import Secret
from oauthbroker.settings import Limits

PROVIDER_CALLS = 7  # discovery twice, keys twice, exchange, userinfo, revocation: a claim outlives them all
SILENT = frozenset({Code.STATE_USED, Code.STATE_EXPIRED, Code.APP_MISMATCH})

T = TypeVar("T")
CookieJar = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claimed session as it lies in the store. Only `claim` makes one."""

    held: Held[AuthSession]
    session: ClaimedSession


@dataclass(slots=True)
class Callback:
    """Takes callbacks of every app. `cookie_of` reads this browser's cookie for a session's locator."""

    repository: Repository
    asker: Asker
    discovery: Discovery
    finish: Finish
    revoke: Revoker
    ended: Callable[[str], None]
    clock: Clock
    limits: Limits
    _running: set[asyncio.Task[Any]] = field(default_factory=set)

    async def receive(self, app: OAuthApp, query: bytes, cookie_of: CookieJar) -> AuthSession:
        """Handles one callback of `app`'s own path; returns the session that a grant was stored for.

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
            return await self._see_through(self._redeem(app, held, valid))
        if held is not None:
            await self._end_refused(held, refused.code, params)
        if refused.code in SILENT and (held is None or not cookie_fits(held.record, cookie)):
            raise BrokerError(Code.STATE_UNKNOWN, note=refused.code.value)
        raise refused

    async def close(self) -> None:
        """Waits for exchanges and commits that are under way."""
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _judge(
        self, params: CallbackParams, held: Held[AuthSession] | None, app: OAuthApp, cookie: str | None
    ) -> ValidCallback:
        """The network may be asked for the issuer's promise only once the session has proved to be real."""
        known = held is not None and held.record.attempt.state.matches(params.state.reveal())
        promised = await self.discovery.issuer_promised(app) if known else False
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
        return valid

    async def _end_refused(self, held: Held[AuthSession], code: Code, params: CallbackParams) -> None:
        """What a refused callback does to the session it named; one that is not its own does nothing."""
        session = held.record
        if not session.open or session.claim is not None or not session.attempt.state.matches(params.state.reveal()):
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

    async def _see_through(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _redeem(self, app: OAuthApp, held: Held[AuthSession], valid: ValidCallback) -> AuthSession:
        """Claim, exchange, verify, commit. Whatever fails ends the session and stores nothing."""
        claimed = await self.claim(held)
        tokens: tuple[Secret, ...] = ()
        try:
            sent_at = self.clock.now()
            response = await self.exchange_code(app, valid, claimed.session)
            tokens = response.secrets
            verified = await self.finish.verify(app, claimed.session, response, sent_at)
            await self.finish.commit(app, claimed.held, verified, sent_at)
        except BrokerError as error:
            refused = error
        else:
            self.ended(claimed.session.locator)
            return claimed.session
        if isinstance(refused, RefusedTokens):
            tokens = refused.tokens
        await self._give_up(app, claimed, refused.code, tokens)
        raise refused.with_traceback(None)  # the frames in which the answer lay would come along

    async def claim(self, held: Held[AuthSession]) -> Claimed:
        """The right to redeem, once: one winner in all processes. Raises `stateUsed` for everybody else."""
        stored = await self.finish.claim(held, PROVIDER_CALLS * self.limits.provider_seconds)
        if stored is None or not isinstance(stored.record, ClaimedSession):
            raise BrokerError(Code.STATE_USED)
        return Claimed(stored, stored.record)

    async def exchange_code(self, app: OAuthApp, callback: ValidCallback, session: ClaimedSession) -> TokenResponse:
        """RFC 6749 section 4.1.3 with the session's own verifier; never tried twice, but for a client secret that is
        refused while another one is listed.

        Raises `exchangeUncertain` when the request went out and no whole answer came, else what the answer means.
        """
        if session.attempt.verifier is None:
            raise BrokerError(Code.STATE_USED)
        code, verifier = callback.code, session.attempt.verifier
        endpoints = await self.discovery.endpoints(app)
        try:
            answer = await self.asker.ask(
                app, lambda known: code_request(known, endpoints, code, verifier, clock=self.clock)
            )
        except TransportFailed as failed:
            sent, note = failed.sent, failed.note
        else:
            return token_response(app, answer)
        raise BrokerError(Code.EXCHANGE_UNCERTAIN if sent else Code.PROVIDER_UNREACHABLE, note=note)

    async def _give_up(self, app: OAuthApp, claimed: Claimed, code: Code, tokens: tuple[Secret, ...]) -> None:
        self.ended(claimed.session.locator)
        await self.finish.give_up(app, claimed.held, code, tokens, self.revoke)
