"""Redeem the code of the broker's own login for the verified claims of its ID token."""

from __future__ import annotations

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.protocol.client_requests import ClientRequests
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.id_token import EXPIRY_LEEWAY_SECONDS, VerifiedClaims
from oauthbroker.protocol.identity import OwnerReader
from oauthbroker.protocol.network.crash_guard import validator
from oauthbroker.protocol.token_endpoint import code_request, token_response
from oauthbroker.records import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginClaims:
    """Asks the login's provider. Nothing of its answer but the claims is used or stored."""

    discovery: Discovery
    asker: ClientRequests
    owners: OwnerReader
    clock: Clock

    async def redeem(self, app: App, attempt: Attempt, code: Secret, *, max_age_seconds: int | None) -> VerifiedClaims:
        """Redeem the code of an attempt once.

        Raises the errors of the exchange and the ID token checks, `subjectUnverifiable`, `appMisconfigured`.
        """
        verifier, nonce = attempt.verifier, attempt.nonce
        if verifier is None or nonce is None:
            raise BrokerError(Code.APP_MISCONFIGURED, note="the login has no way to tell people apart")
        sent_at = self.clock.now()
        endpoints = await self.discovery.endpoints(app)
        answer = await self.asker.ask(
            app, lambda known: code_request(known, endpoints, code, verifier, clock=self.clock), kind="code"
        )
        claims = await self.owners.claims(app, token_response(app, answer), nonce, sent_at)
        _check_recent(claims, max_age_seconds)
        return claims


@validator(Code.ID_TOKEN_INVALID)
def _check_recent(claims: VerifiedClaims, max_age_seconds: int | None) -> None:
    """Check `auth_time` if a maximum age was requested (OpenID Connect Core 1.0 section 3.1.3.7, 13)."""
    if max_age_seconds is None:
        return
    ago = seconds_since_login(claims)
    if ago is None or ago > max_age_seconds + EXPIRY_LEEWAY_SECONDS:
        raise BrokerError(Code.ID_TOKEN_INVALID, note="auth_time")


def seconds_since_login(claims: VerifiedClaims) -> float | None:
    """Return how long ago the person signed in at the provider, by the provider's clock alone; None if it does not
    say."""
    at, issued = claims.get("auth_time"), claims["iat"]
    if isinstance(at, bool) or not isinstance(at, int | float) or not isinstance(issued, int | float):
        return None
    return max(0.0, float(issued - at)) if 0 <= at < _BEYOND else None


_BEYOND = 1e12  # seconds: arithmetic with more may overflow
