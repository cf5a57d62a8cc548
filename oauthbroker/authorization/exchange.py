"""A code becomes a grant: claim, exchange, verify, commit. Shared by the callback and by the word that confirms one.

From the claim on, the work belongs to the broker and not to the request: whoever goes away changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from oauthbroker.apps import OAuthApp, Vouching
from oauthbroker.audit import OwnerConfirmed
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.finish import Finish, Revoker
from oauthbroker.lifecycle import UnderWay
from oauthbroker.protocol.asker import Asker
from oauthbroker.protocol.callback import ValidCallback
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.token import RefusedTokens, TokenResponse, code_request, token_response
from oauthbroker.protocol.transport import TransportFailed
from oauthbroker.records import AuthSession, ClaimedSession
from oauthbroker.repository import Held
from oauthbroker.secret import Secret
from oauthbroker.settings import Limits
from oauthbroker.tracing import Span, span

PROVIDER_CALLS = 7  # discovery twice, keys twice, exchange, userinfo, revocation: a claim outlives them all

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claimed session as it lies in the store. Only `claim` makes one."""

    held: Held[AuthSession]
    session: ClaimedSession


@dataclass(slots=True)
class Exchange:
    """Redeems codes, each once. `ended` hears of every session that is over."""

    asker: Asker
    discovery: Discovery
    finish: Finish
    revoke: Revoker
    ended: Callable[[str], None]
    clock: Clock
    limits: Limits
    _under_way: UnderWay = field(default_factory=UnderWay)

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Does it to its end, even if whoever asked for it stops waiting. Raises `brokerUnreachable` when the broker is
        ending: nothing was used up, the next one can do it."""
        return await asyncio.shield(self._under_way.begin(work))

    async def close(self) -> None:
        """Begins no other exchange, and waits for those and their commits that are under way."""
        await self._under_way.close()

    async def redeem(
        self, app: OAuthApp, held: Held[AuthSession], valid: ValidCallback, confirmed: Vouching | None = None
    ) -> AuthSession:
        """Claim, exchange, verify, commit. Whatever fails ends the session and stores nothing.

        `confirmed` is the binding by which somebody vouched for the browser that brought the code. Raises `stateUsed`
        for everybody who does not win the claim, and what the exchange and the checks raise.
        """
        claimed = await self.claim(held, confirmed=confirmed is not None)
        tokens: tuple[Secret, ...] = ()
        try:
            if confirmed is not None:
                self.finish.audit.write(OwnerConfirmed(app.name, claimed.session.id, confirmed), self.clock.now())
            sent_at = self.clock.now()
            response = await self.exchange_code(app, valid, claimed.session)
            tokens = response.secrets
            verified = await self.finish.verify(app, claimed.session, response, sent_at)
            with span(Span.COMMIT, app=app.name):
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

    async def claim(self, held: Held[AuthSession], *, confirmed: bool = False) -> Claimed:
        """The right to redeem, once: one winner in all processes. Raises `stateUsed` for everybody else."""
        seconds = PROVIDER_CALLS * self.limits.provider_seconds
        stored = await self.finish.claim(held, seconds, confirmed=confirmed)
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
                app, lambda known: code_request(known, endpoints, code, verifier, clock=self.clock), kind="code"
            )
        except TransportFailed as failed:
            sent, note = failed.sent, failed.note
        else:
            return token_response(app, answer)
        raise BrokerError(Code.EXCHANGE_UNCERTAIN if sent else Code.PROVIDER_UNREACHABLE, note=note)

    async def _give_up(self, app: OAuthApp, claimed: Claimed, code: Code, tokens: tuple[Secret, ...]) -> None:
        self.ended(claimed.session.locator)
        await self.finish.give_up(app, claimed.held, code, tokens, self.revoke)
