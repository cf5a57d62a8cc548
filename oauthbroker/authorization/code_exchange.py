"""Turn a code into a grant: claim, exchange, verify, commit. Shared by callbacks and confirmations.

After the claim the work no longer depends on the request: it continues when the client disconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from oauthbroker.audit import OwnerConfirmed
from oauthbroker.authorization.finish import Finish
from oauthbroker.authorization.second_grant import SecondToken
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import UnderWay
from oauthbroker.model.apps import App, OwnerConfirmation
from oauthbroker.model.located_app import located
from oauthbroker.model.settings import Limits
from oauthbroker.observability.tracing import Span, span
from oauthbroker.protocol.callback_checks import ValidCallback
from oauthbroker.protocol.callback_facts import callback_facts
from oauthbroker.protocol.client_requests import ClientRequests
from oauthbroker.protocol.consent_answer import consent_response
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.issued_tokens import IssuedTokens
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.protocol.network.transport import TransportFailed
from oauthbroker.protocol.token_endpoint import RefusedTokens, code_request
from oauthbroker.records import AuthSession, ClaimedSession
from oauthbroker.repository.repository import PAIR_WAIT_SECONDS, Versioned

PROVIDER_CALLS = 7  # discovery twice, keys twice, exchange, userinfo, revocation: a claim outlives them all
SECOND_CALLS = 3  # of a second token: keys twice, revocation

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Exchange:
    """Redeems codes, each once."""

    asker: ClientRequests
    discovery: Discovery
    finish: Finish
    clock: Clock
    limits: Limits
    _under_way: UnderWay = field(default_factory=UnderWay)

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work to its end, even if the caller is cancelled. Raises `brokerUnreachable` when the broker is
        shutting down; then nothing is used up and the request can be repeated."""
        return await asyncio.shield(self._under_way.begin(work))

    async def close(self) -> None:
        """Start no other exchange, and wait for the running ones and their commits."""
        await self._under_way.close()

    async def redeem(
        self,
        app: App,
        versioned: Versioned[AuthSession],
        valid: ValidCallback,
        confirmed: OwnerConfirmation | None = None,
    ) -> AuthSession:
        """Claim, exchange, verify and commit. A failure ends the session and stores nothing.

        `confirmed` is the binding by which the browser's user was confirmed. Raises `stateUsed` for all callers but the
        one that wins the claim, `storeLocked` where a stopped process would keep the grant from being stored (the same
        callback may come again), and the errors of the exchange and the checks. The facts of the callback are read
        after the claim and before the exchange: without one of them no token is issued that would have to be revoked.
        """
        await self.finish.repository.check_writable(versioned.record.key)
        calls = PROVIDER_CALLS + len(app.facts.requests) + (SECOND_CALLS if app.also is not None else 0)
        seconds = calls * self.limits.provider_seconds + (PAIR_WAIT_SECONDS if app.also is not None else 0)
        claimed = await self.finish.claim(versioned, seconds, confirmed=confirmed is not None)
        if claimed is None or not isinstance(session := claimed.record, ClaimedSession):
            raise BrokerError(Code.STATE_USED)
        issued, there, second = IssuedTokens(), app, None
        try:
            if confirmed is not None:
                entry = OwnerConfirmed(app=app.name, session=session.id, how=confirmed)
                self.finish.audit.write(entry, self.clock.now())
            came = callback_facts(app, valid)
            there, sent_at = located(app, came), self.clock.now()
            answer = await self.exchange_code(there, valid, session)
            second = SecondToken.of(app, session, answer) if app.also is not None else None
            response = consent_response(there, answer)
            issued = response.issued
            verified = await self.finish.verify(app, session, response, sent_at, came)
            if second is not None:
                await second.keep(self.finish, sent_at)
            with span(Span.COMMIT, app=app.name):
                await self.finish.commit(app, claimed, verified, sent_at)
        except BrokerError as error:
            refused = error
        else:
            return session
        if isinstance(refused, RefusedTokens):
            issued = refused.issued
        if refused.code is Code.ID_TOKEN_INVALID:  # a clock that is off, above all
            self.finish.log.warning("an ID token was refused", app=app.name, code=refused.code.value, note=refused.note)
        try:
            await self.finish.give_up(there, claimed, refused.code, issued, fact=refused.words.get("fact", ""))
        finally:
            if second is not None:
                await second.drop(self.finish, refused.code)
        raise refused.with_traceback(None)  # the traceback's frames hold the token response

    async def exchange_code(self, app: App, callback: ValidCallback, session: ClaimedSession) -> ProviderResponse:
        """Exchange the code with the session's own verifier (RFC 6749 section 4.1.3, RFC 7636). The request is not
        repeated, except when a client secret is refused and another one is configured.

        Raises `exchangeUncertain` when the request was sent and no complete response came.
        """
        if session.attempt.verifier is None:
            raise BrokerError(Code.STATE_USED)
        code, verifier = callback.code, session.attempt.verifier
        endpoints = await self.discovery.endpoints(app)
        try:
            return await self.asker.ask(
                app, lambda known: code_request(known, endpoints, code, verifier, clock=self.clock), kind="code"
            )
        except TransportFailed as failed:
            uncertain, note = Code.EXCHANGE_UNCERTAIN if failed.sent else failed.code, failed.note
        raise BrokerError(uncertain, note=note)
