"""Grants of another system, taken over as if users had consented here. The author of the file confirms it, until
the provider's own answers say whose they are.

Idempotent by design: a grant remembers the line it came from. So a run that was killed is simply repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from oauthbroker.audit import GrantImported, GrantRevoked
from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.clock import LONG_AGO, Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.grants.import_lines import Incoming
from oauthbroker.model.apps import OAuthApp
from oauthbroker.model.owner_check import pin_of
from oauthbroker.records import Grant, Token
from oauthbroker.records.device_authorization import FLOW as DEVICE_FLOW
from oauthbroker.records.unrevoked_tokens import forgotten, passed_on
from oauthbroker.refresh.job import RefreshJob
from oauthbroker.refresh.transaction import RefreshTransaction
from oauthbroker.repository.repository import Repository

ImportOutcome = Literal["imported", "replaced", "there", "kept", "revoked"]
"""What became of a line: written; written over another grant; this very line had been taken before; a living grant was
left alone; one that was revoked here was left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing:
    """Writes as a login does: under the pair's lock, the audit entry first."""

    apps: Mapping[str, OAuthApp]
    repository: Repository
    refresh: RefreshTransaction
    clock: Clock
    audit: AuditWriter

    async def import_grant(self, incoming: Incoming, *, replace: bool = False) -> ImportOutcome:
        """Stores it, unless there is a grant that should stay. Raises store codes and `oauthAppNotFound`."""
        app = self._app(incoming)
        async with self.repository.pair(incoming.key):
            versioned = await self.repository.grant(incoming.key)
            old = versioned.record if versioned is not None else None
            if old is not None and not old.revoked and old.imported == incoming.mark:
                await self.repository.sync("grants")
                return "there"
            if old is not None and not replace:
                return "revoked" if old.revoked else "kept"
            grant = self._grant(app, incoming, old)
            entry = GrantImported(app=app.name, grant=grant.id, replaced=old is not None)
            self.audit.write(entry, self.clock.now())  # no entry, no grant
            if forgotten(old, grant, app):
                self.audit.write(GrantRevoked(app=app.name, grant=grant.id, provider="none"), self.clock.now())
            await self.repository.save_grant(grant, expect=versioned.generation if versioned is not None else 0)
        return "imported" if old is None else "replaced"

    async def verify(self, incoming: Incoming) -> Code | None:
        """Refresh it once, now, unless that has happened before: it shows that the token lives and, where the answer
        tells, whose it is. Return None when all is well, else the code."""
        app = self._app(incoming)
        versioned = await self.repository.grant(incoming.key)
        grant = versioned.record if versioned is not None else None
        if grant is None or grant.revoked or grant.imported != incoming.mark:
            return None
        if grant.refresh_state.ended:
            return Code.SUBJECT_MISMATCH if grant.refresh_state.ended == "quarantined" else Code.REAUTH_REQUIRED
        token = grant.token
        if token is None or token.access_token != (incoming.access_token or Secret("")):
            return None
        early = token.lives(0, self.clock.now())
        job = RefreshJob(app=app, key=incoming.key, seen=versioned, early=early)
        error = (await self.refresh.refresh(job)).error
        return error.code if error is not None else None

    def _app(self, incoming: Incoming) -> OAuthApp:
        app = self.apps.get(incoming.app)
        if app is None:
            raise BrokerError(Code.OAUTH_APP_NOT_FOUND)
        return app

    def _grant(self, app: OAuthApp, incoming: Incoming, old: Grant | None) -> Grant:
        """Build the grant of a line. A token with an unknown end counts as ended: then the first use refreshes it."""
        now = self.clock.now()
        known = incoming.access_token is not None and incoming.expires_at is not None
        expires = incoming.expires_at if known else LONG_AGO
        access, refresh = incoming.access_token or Secret(""), incoming.refresh_token
        person = incoming.subject if app.subject_mode == "user" and app.owner.user_identity is not None else None
        grant = Grant(
            app=app.name,
            provider=app.provider,
            subject=incoming.subject,
            flow=DEVICE_FLOW if app.flow == "deviceCode" else "authorization_code",
            scopes=incoming.scopes,
            token=Token(access_token=access, token_type="Bearer", refresh_token=refresh, expires_at=expires),
            created_at=incoming.granted_at or now,
            updated_at=now,
            pinned=pin_of(app, incoming.subject, incoming.account),
            authorized_by=person,
            registration=app.registration,
            outbox=old.outbox if old is not None else (),
            imported=incoming.mark,
        )
        return passed_on(old, grant, app, is_apart=False)  # the line may hold a later token of the same consent
