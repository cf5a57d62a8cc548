"""Fetch a token by client credentials (RFC 6749 section 4.4), one request at a time for each grant."""

from __future__ import annotations

from contextlib import suppress

from oauthbroker.audit import GrantRevoked
from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.model.scope_ceiling import granted_scopes
from oauthbroker.protocol.client_credentials import client_credentials_request, client_credentials_response
from oauthbroker.protocol.client_requests import ClientRequests
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.records import Grant, RefreshState
from oauthbroker.records.provider_data import kept_facts
from oauthbroker.records.unrevoked_tokens import awaits, forgotten, passed_on
from oauthbroker.refresh.job import RefreshJob
from oauthbroker.refresh.writeback import Later
from oauthbroker.repository.repository import Conflict, Repository, Reservation, Versioned


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """Asks no user. A token that was not stored is fetched again; `late` revokes one that came after a revocation."""

    repository: Repository
    asker: ClientRequests
    discovery: Discovery
    late: Later
    clock: Clock
    audit: AuditWriter

    async def __call__(self, job: RefreshJob, versioned: Versioned[Grant] | None) -> Grant | None:
        """Replace the grant that is `versioned` and return the new one; the newer one if another writer was first.

        (1) Reserve space on the disk, so that no token is fetched in vain. (2) Count a forced refresh, also if it
        fails. (3) Ask the provider. (4) Store the new grant.

        Raises the codes of `client_credentials_response`, `scopeExceeded`, `tokenUnchanged`, and store codes.
        """
        app, repository = job.app, self.repository
        endpoints = await self.discovery.endpoints(app)
        reserved = repository.reserve_for_first(job.key) if versioned is None else repository.reserve_for(versioned)
        async with reserved as reservation:  # (1)
            if job.forced and versioned is not None:
                counted = await self._counted(versioned)  # (2)
                if counted is None:
                    there = await repository.grant(job.key)
                    return there.record if there is not None else None
                versioned = counted
            grant = await self._ask(job, endpoints, versioned.record if versioned is not None else None)  # (3)
            stored = await self._store(app, grant, versioned, reservation)  # (4)
        if grant.token is not None and (stored is None or awaits(stored, app.registration)):
            await self.late(app, job.key, refresh=None, access=grant.token.access_token)
        return stored

    async def _counted(self, versioned: Versioned[Grant]) -> Versioned[Grant] | None:
        """Count a forced refresh in the grant before the request, because a provider that returns the same token again,
        or none, must not be asked more often than another one. None if another writer was first."""
        grant = versioned.record
        noted = replace(grant, refresh_state=grant.refresh_state.forced_at(self.clock.now()))
        async with self.repository.pair(grant.key):
            with suppress(Conflict):
                return await self.repository.save_grant(noted, expect=versioned.generation)
        return None

    async def _ask(self, job: RefreshJob, endpoints: Endpoints, old: Grant | None) -> Grant:
        app, sent_at = job.app, self.clock.now()
        answer = await self.asker.ask(
            app, lambda known: client_credentials_request(known, endpoints, app.scopes, clock=self.clock), kind="fetch"
        )
        tokens = client_credentials_response(app, answer)
        scopes, _ = granted_scopes(app, app.scopes, tokens.scopes)
        if job.rejected == tokens.access_token:
            raise BrokerError(Code.TOKEN_UNCHANGED, note="the rejected token came back")
        now = self.clock.now()
        grant = Grant(
            app=app.name,
            provider=app.provider,
            subject=job.key.subject,
            account=job.key.account,
            flow="client_credentials",
            scopes=scopes,
            token=tokens.token(sent_at, None),
            created_at=old.created_at if old is not None and not old.revoked else now,
            updated_at=now,
            registration=app.registration,
            params=app.params,
            provider_data=kept_facts(app, tokens.facts),
            refresh_state=RefreshState(asked=app.scopes, forced=old.refresh_state.forced if old is not None else ()),
        )
        if old is None:
            return grant
        return passed_on(old, replace(grant, outbox=old.outbox), app)

    async def _store(
        self, app: App, grant: Grant, versioned: Versioned[Grant] | None, reservation: Reservation
    ) -> Grant | None:
        async with self.repository.pair(grant.key):
            there = await self.repository.grant(grant.key)
            before = versioned.generation if versioned is not None else 0
            if (there.generation if there is not None else 0) != before:
                return there.record if there is not None else None
            if forgotten(versioned.record if versioned is not None else None, grant, app):
                self.audit.write(GrantRevoked(app=grant.app, grant=grant.id, provider="none"), self.clock.now())
            return (await self.repository.save_grant(grant, expect=before, reservation=reservation)).record
