"""Handle a 401 that an API gave to a static credential: take the next one, or ask the person for a new one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import OAuthApp
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.protocol.credential_check import CredentialChecks
from oauthbroker.records import Grant
from oauthbroker.repository.repository import Repository

CHECKED_SECONDS: Final = 60.0  # for so long a credential that was found good is not checked again
MOST_CHECKED: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialRejections:
    """Reports of callers. An API may answer 401 to one path alone, so that its `verify` request decides."""

    repository: Repository
    checks: CredentialChecks
    clock: Clock
    _good: dict[GrantKey, float] = field(default_factory=dict)

    async def report(self, app: OAuthApp, key: GrantKey, rejected: Secret) -> None:
        """Note that the API refused this credential, unless the grant has another one by now. Raises store codes."""
        versioned = await self.repository.grant(key)
        grant = versioned.record if versioned is not None else None
        if grant is None or not _has(grant, rejected) or await self._is_good(app.at(grant.params), key, rejected):
            return
        async with self.repository.pair(key):
            versioned = await self.repository.grant(key)
            if versioned is not None and _has(versioned.record, rejected):
                refused = versioned.record.with_credential_rejected(self.clock.now())
                await self.repository.save_grant(refused, expect=versioned.generation)

    async def _is_good(self, app: OAuthApp, key: GrantKey, rejected: Secret) -> bool:
        """Tell whether the credential is not certainly refused: by the app's `verify` request, if there is one."""
        now = self.clock.monotonic()
        if app.credential is None or app.credential.verification is None:
            return False
        if now - self._good.get(key, now - CHECKED_SECONDS) < CHECKED_SECONDS:
            return True
        try:
            await self.checks.owner_of(app, rejected)
        except BrokerError as error:
            return error.code is not Code.CREDENTIAL_REFUSED
        if len(self._good) >= MOST_CHECKED:
            self._good.clear()
        self._good[key] = now
        return True


def _has(grant: Grant, credential: Secret) -> bool:
    return not grant.revoked and grant.token is not None and grant.token.access_token == credential
