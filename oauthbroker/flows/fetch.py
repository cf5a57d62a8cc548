"""Client credentials: our client fetches a token for itself, in the flight that keeps it to one request at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from oauthbroker.apps import OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.asker import Asker
from oauthbroker.protocol.client_credentials import client_credentials_request, client_credentials_response
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.token import TokenResponse
from oauthbroker.records import Grant, Renewal, Token
from oauthbroker.repository import Held, Repository
from oauthbroker.scope import granted_scopes
from oauthbroker.secret import Secret


@dataclass(frozen=True, slots=True)
class Fetch:
    """Nobody is asked and nothing can be lost: what was not stored is fetched again."""

    repository: Repository
    asker: Asker
    discovery: Discovery
    clock: Clock

    async def __call__(
        self, app: OAuthApp, subject: str, held: Held[Grant] | None, rejected: Secret | None
    ) -> Grant | None:
        """Replaces the grant that is `held`; the newer one where somebody changed it meanwhile.

        Raises what the provider's answer means (`client_credentials_response`), `scopeExceeded`, and store codes.
        """
        endpoints, sent_at = await self.discovery.endpoints(app), self.clock.now()
        answer = await self.asker.ask(
            app, lambda known: client_credentials_request(known, endpoints, app.scopes, clock=self.clock)
        )
        tokens = client_credentials_response(app, answer)
        scopes, _ = granted_scopes(app, app.scopes, tokens.scopes)
        old = held.record if held is not None else None
        if old is not None and old.token is not None and rejected == tokens.access_token:
            raise BrokerError(Code.TOKEN_RESPONSE_INVALID, note="the rejected token came back")
        lifetime = tokens.lifetime_seconds
        grant = self._grant(app, subject, tokens, scopes, old)
        if lifetime is not None and grant.token is not None:
            grant = replace(grant, token=replace(grant.token, expires_at=sent_at + timedelta(seconds=lifetime)))
        if rejected is not None:
            grant = replace(grant, renewal=grant.renewal.forced_at(sent_at))
        return await self._store(grant, held)

    def _grant(
        self, app: OAuthApp, subject: str, tokens: TokenResponse, scopes: tuple[str, ...], old: Grant | None
    ) -> Grant:
        now = self.clock.now()
        grant = Grant(
            app=app.name,
            provider=app.provider,
            subject=subject,
            flow="client_credentials",
            scopes=scopes,
            token=Token(tokens.access_token, tokens.token_type, lifetime_seconds=tokens.lifetime_seconds),
            created_at=old.created_at if old is not None and not old.revoked else now,
            updated_at=now,
            registration=app.registration,
            renewal=Renewal(asked=app.scopes, forced=old.renewal.forced if old is not None else ()),
        )
        if old is None:
            return grant
        grant = replace(grant, outbox=old.outbox, retired=old.retired)
        if old.revocation == "pending" and old.token is not None and app.revocation.reach == "token":
            grant = grant.retiring(None, old.token.access_token, now)  # with a wider reach it might end this one too
        return grant

    async def _store(self, grant: Grant, held: Held[Grant] | None) -> Grant | None:
        async with self.repository.pair(grant.app, grant.subject):
            there = await self.repository.grant(grant.app, grant.subject)
            before = held.generation if held is not None else 0
            if (there.generation if there is not None else 0) != before:
                return there.record if there is not None else None
            return (await self.repository.save_grant(grant, expect=before)).record
