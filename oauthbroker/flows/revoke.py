"""Ending a grant: tombstone first, then the provider, then the tokens go. RFC 7009 for tokens we drop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from oauthbroker.apps import Limits, OAuthApp
from oauthbroker.audit import AuditWriter, GrantRevoked
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.revoke import Hint, revoke_request, revoke_response
from oauthbroker.protocol.transport import Transport
from oauthbroker.records import AgentEvent, Grant
from oauthbroker.repository import Conflict, Held, Repository
from oauthbroker.secret import Secret

KEEP_TELLING = timedelta(days=7)  # a refusal is mostly ours (a wrong secret, a moved endpoint) and gets mended
Told = Literal["done", "refused", "none", "later"]
"""What the provider knows: it took note, it refused to (and is asked again for a week), it has no way to be told, or it
will be told later."""


@dataclass(frozen=True, slots=True)
class Revoke:
    """Revocation at the provider and here."""

    repository: Repository
    transport: Transport
    discovery: Discovery
    clock: Clock
    audit: AuditWriter
    limits: Limits
    wake: Callable[[], None]

    async def tokens(self, app: OAuthApp, tokens: tuple[Secret, ...]) -> bool:
        """Tells the provider about each token, the refresh token first. True when it took note of all of them;
        a failure is an answer here, not an exception."""
        try:
            return await self._tell(app, tokens)
        except BrokerError:
            return False

    async def grant(self, app: OAuthApp | None, name: str, subject: str) -> Told | None:
        """Ends the grant of (name, subject), and says what became of its provider. None when no grant was alive.

        `app` is None when it is not configured any more: then the provider cannot be told. The grant is unusable
        as soon as the tombstone is written; a provider that does not answer is told later (`resume`).
        """
        async with self.repository.pair(name, subject):
            held = await self.repository.grant(name, subject)
            if held is None or held.record.revoked:
                return None
            now = self.clock.now()
            tombstone = held.record.tombstoned(now)
            if event := _revoked_event(tombstone, self.clock):
                tombstone = replace(tombstone, outbox=(*tombstone.outbox, event))
            held = await self.repository.save_grant(tombstone, expect=held.generation)
        told = await self.resume(app, held, wait=self.limits.provider_seconds)
        self.wake()
        return told

    async def resume(self, app: OAuthApp | None, seen: Held[Grant], *, wait: float = 0) -> Told:
        """Tells the provider of a tombstone and erases its tokens; `later` when that is left to do.

        One caller at a time: whoever finds the flight taken for `wait` seconds leaves the work to the other.
        """
        try:
            async with self.repository.flight(seen.record.app, seen.record.subject, wait=wait):
                held = await self.repository.grant(seen.record.app, seen.record.subject)
                if held is not None and held.record.revocation == "pending":
                    return await self._end(app, held.record)
        except BrokerError as error:
            if error.code is not Code.STORE_LOCKED:
                raise
        return "later"

    async def _end(self, app: OAuthApp | None, grant: Grant) -> Told:
        """Tokens go to the provider that issued them, and to no other one that the app may name by now."""
        told: Told = "none"
        ours = app is not None and app.registration == grant.registration
        if ours and app is not None and grant.token is not None and app.revocation.kind != "none":
            try:
                told = "done" if await self._tell(app, _in_order(grant)) else "none"
            except BrokerError as error:
                self.audit.write(GrantRevoked(grant.app, grant.id, "failed"), self.clock.now())
                told = "later" if error.retryable else "refused"
                if error.retryable or self.clock.now() - grant.updated_at < KEEP_TELLING:
                    return told
        await self._erase(grant)
        self.audit.write(GrantRevoked(grant.app, grant.id, told), self.clock.now())
        return told

    async def _erase(self, seen: Grant) -> None:
        """A new login meanwhile wins: only the tombstone itself is erased."""
        async with self.repository.pair(seen.app, seen.subject):
            held = await self.repository.grant(seen.app, seen.subject)
            if held is None or held.record.revocation != "pending":
                return
            try:
                await self.repository.save_grant(held.record.erased(self.clock.now()), expect=held.generation)
            except Conflict:
                return

    async def _tell(self, app: OAuthApp, tokens: tuple[Secret, ...]) -> bool:
        """RFC 7009 section 2.1. Raises what the provider's answer means; False where it has no way to be told."""
        endpoints = await self.discovery.endpoints(app)
        if app.revocation.kind == "none" or not endpoints.revoke_url or not tokens:
            return False
        hints: tuple[Hint, ...] = ("refresh_token", "access_token") if len(tokens) > 1 else ("access_token",)
        took_note = True
        for token, hint in zip(tokens, hints, strict=True):
            request = revoke_request(app, endpoints, token, hint, clock=self.clock)
            answer = await self.transport.send(
                request, seconds=self.limits.provider_seconds, max_bytes=self.limits.provider_bytes
            )
            took_note = revoke_response(answer) and took_note
        return took_note


def _in_order(grant: Grant) -> tuple[Secret, ...]:
    token = grant.token
    found = (token.refresh_token, token.access_token) if token is not None else ()
    return tuple(secret for secret in found if secret is not None)


def _revoked_event(grant: Grant, clock: Clock) -> AgentEvent | None:
    """`auth.revoked` goes to whoever last waited for this grant."""
    if grant.resume is None or grant.auth_session_id is None:
        return None
    payload = {
        "oauthAppRef": {"kind": "OAuthApp", "name": grant.app},
        "provider": grant.provider,
        "subject": grant.subject,
        "authSessionId": grant.auth_session_id,
        "grantId": grant.id,
    }
    return AgentEvent.about(grant.auth_session_id, "auth.revoked", grant.resume, payload, clock.now())
