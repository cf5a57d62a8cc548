"""Build the URL for one browser: with all parameters, or with the `request_uri` of a pushed request (RFC 9126)."""

from __future__ import annotations

from collections.abc import Sequence

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.protocol.authorization_request import authorization_url
from oauthbroker.protocol.client_requests import ClientRequests
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.par import par_request, par_response, pushed_url
from oauthbroker.records import Attempt


@dataclass(frozen=True, slots=True)
class AuthorizationUrls:
    """Builds authorization URLs. They carry the state or a `request_uri`, so they are Secrets."""

    asker: ClientRequests
    discovery: Discovery
    clock: Clock

    async def check(self, app: App) -> None:
        """Check that an authorization URL can be built, as far as the provider's metadata tells.

        Raises `appMisconfigured`, and what `Discovery.endpoints` raises.
        """
        endpoints = await self._endpoints(app)
        if not endpoints.authorization_url:
            raise BrokerError(Code.APP_MISCONFIGURED, note="the app has no authorization endpoint")

    async def pushes(self, app: App) -> bool:
        """Tell whether building a URL sends a pushed request to the provider. Raises as `Discovery.endpoints` does."""
        return _pushes(app, await self.discovery.endpoints(app))

    async def lasting(self, app: App, attempt: Attempt, scopes: Sequence[str]) -> Secret:
        """Build a URL that stays valid until the user follows it.

        Raises `appMisconfigured` where the provider requires pushed requests: their `request_uri` expires too soon.
        """
        endpoints, must_push = await self.discovery.for_authorization(app)
        if must_push:
            raise BrokerError(Code.APP_MISCONFIGURED, note="a direct link to a provider that requires pushed requests")
        return Secret(authorization_url(app, endpoints, attempt, scopes))

    async def now(self, app: App, attempt: Attempt, scopes: Sequence[str]) -> Secret:
        """Build a URL for immediate use. The request is pushed (RFC 9126) where the provider supports it and the app
        does not say `never`; else the URL carries all parameters.

        Raises `providerUnreachable`, `providerRateLimited`, `appMisconfigured`.
        """
        endpoints = await self._endpoints(app)
        if _pushes(app, endpoints):
            answer = await self.asker.ask(
                app, lambda known: par_request(known, endpoints, attempt, scopes, clock=self.clock), kind="push"
            )
            return Secret(pushed_url(app, endpoints, par_response(app, answer)))
        return Secret(authorization_url(app, endpoints, attempt, scopes))

    async def _endpoints(self, app: App) -> Endpoints:
        """Return the app's endpoints, with one for requests that must be pushed."""
        endpoints, must_push = await self.discovery.for_authorization(app)
        if must_push and app.pushed_authorization != "never" and not endpoints.pushed_authorization_url:
            raise BrokerError(
                Code.APP_MISCONFIGURED, note="requests must be pushed, and the app has no endpoint for them"
            )
        return endpoints


def _pushes(app: App, endpoints: Endpoints) -> bool:
    return app.pushed_authorization != "never" and bool(endpoints.pushed_authorization_url)
