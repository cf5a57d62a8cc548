"""Keep or end tokens that arrive after their grant was ended or replaced: the answer to a request that was under way at
that time."""

from __future__ import annotations

from contextlib import suppress

from oauthbroker.audit import GrantRevoked
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey, grant_id
from oauthbroker.records import Grant, Retired
from oauthbroker.records.unrevoked_tokens import forgotten, with_late
from oauthbroker.repository.repository import Conflict, Versioned
from oauthbroker.revocation.pending_revocations import in_order
from oauthbroker.revocation.revoke import Revoke


@dataclass(frozen=True, slots=True)
class LateTokens:
    """Ends tokens of grants that are ended or replaced already."""

    revoke: Revoke

    async def revoke_tokens(
        self,
        app: App,
        key: GrantKey,
        *,
        refresh: Secret | None,
        access: Secret | None,
        begun: Grant | None = None,
    ) -> None:
        """Revoke tokens that arrived after their grant was ended. They join its record before the provider is told, so
        that neither a crash nor a busy provider loses one.

        The caller holds the grant's provider lease. Beside a living grant, which has replaced `begun` or was refreshed
        by another attempt, they wait in its record for its end as long as the provider may treat both as one grant.
        """
        versioned: Versioned[Grant] | None = None
        code = Code.RECORD_CORRUPT
        try:
            async with self.revoke.repository.pair(key):
                versioned = await self.revoke.repository.grant(key)
                if versioned is not None:
                    late = Retired.of(refresh, access, self.revoke.clock.now())
                    late = replace(late, registration=app.registration, params=app.params)
                    versioned = await self._join(app, versioned, late, begun)
        except (BrokerError, Conflict) as error:
            versioned, code = None, error.code if isinstance(error, BrokerError) else Code.STORE_LOCKED
        if versioned is None:
            late = Retired.of(refresh, access, self.revoke.clock.now())
            await self._end_unstored(app, key, late, code, may_tell=begun is None)
            return
        if versioned.record.revocation_pending:
            with suppress(BrokerError):  # the record holds them: a later pass goes on
                await self.revoke.end_tokens(app, versioned.record)

    async def _join(
        self, app: App, versioned: Versioned[Grant], late: Retired, begun: Grant | None
    ) -> Versioned[Grant]:
        grant = with_late(versioned.record, late, app, begun)
        if grant == versioned.record:
            return versioned
        if forgotten(versioned.record, grant, app):
            await self.revoke.note(GrantRevoked(app=grant.app, grant=grant.id, provider="none"))
        return await self.revoke.repository.save_grant(grant, expect=versioned.generation)

    async def _end_unstored(self, app: App, key: GrantKey, late: Retired, code: Code, *, may_tell: bool) -> None:
        """Revoke late tokens that could not be stored. Without the record, shared grants are unknown: only a revocation
        that ends just its own token is sent, and none beside a living grant. Elsewhere the tokens end with the
        tombstone's own."""
        outcome = False
        if may_tell and app.revocation.reach == "token":
            with suppress(BrokerError):
                outcome = await self.revoke.provider.tell(app, in_order(late)) == "done"
        grant = grant_id(*key)[:15]
        self.revoke.log.warning(
            "tokens that came late are not kept", app=app.name, grant=grant, code=code.value, revoked=outcome
        )
