"""Handle a 401 that an API gave to a static credential: take the next one, or ask the person for a new one."""

from __future__ import annotations

from typing import Final

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.single_flight import SingleFlight
from oauthbroker.model.apps import App
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
    _good: dict[GrantKey, tuple[Secret, float]] = field(default_factory=dict)
    _reports: SingleFlight[Code | None] = field(default_factory=SingleFlight)

    async def report(self, app: App, key: GrantKey, rejected: Secret) -> None:
        """Note that the API refused this credential, unless the grant has another one by now. However many callers
        report it at once, the provider is asked once. Raises store codes."""
        versioned = await self.repository.grant(key)
        grant = versioned.record if versioned is not None else None
        if grant is None or not _has(grant, rejected) or self._is_found_good(key, rejected):
            return
        there = app.at(grant.params)
        code = await self._reports.join(key, lambda _: self._noted(there, key, rejected), lambda: None)
        if code is not None:
            raise BrokerError(code)

    async def close(self) -> None:
        """Begin nothing more, and wait for reports under way."""
        await self._reports.close()

    async def _noted(self, app: App, key: GrantKey, rejected: Secret) -> Code | None:
        """Return the code of a store that failed."""
        try:
            if await self._is_refused(app, key, rejected):
                await self._note(key, rejected)
        except BrokerError as error:
            return error.code
        return None

    async def _note(self, key: GrantKey, rejected: Secret) -> None:
        async with self.repository.pair(key):
            versioned = await self.repository.grant(key)
            if versioned is not None and _has(versioned.record, rejected):
                refused = versioned.record.with_credential_rejected(self.clock.now())
                await self.repository.save_grant(refused, expect=versioned.generation)

    def _is_found_good(self, key: GrantKey, rejected: Secret) -> bool:
        """Tell whether its check has just found this credential good."""
        credential, at = self._good.get(key, (None, 0.0))
        return credential == rejected and self.clock.monotonic() - at < CHECKED_SECONDS

    async def _is_refused(self, app: App, key: GrantKey, rejected: Secret) -> bool:
        """Tell whether the credential is certainly refused: by the app's `verify` request, if there is one."""
        if app.credential is None or app.credential.verification is None:
            return True
        try:
            await self.checks.owner_of(app, rejected)
        except BrokerError as error:
            return error.code is Code.CREDENTIAL_REFUSED
        if len(self._good) >= MOST_CHECKED:
            self._good.clear()
        self._good[key] = rejected, self.clock.monotonic()
        return False


def _has(grant: Grant, credential: Secret) -> bool:
    is_in_use = grant.token is not None and grant.token.access_token == credential
    return is_in_use and not grant.revoked and not grant.rejected
