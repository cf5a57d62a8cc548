"""Where a browser goes with an attempt: to a URL that says all, or to one that names what was pushed (RFC 9126)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from oauthbroker.apps import Endpoints, OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.asker import Asker
from oauthbroker.protocol.authorize import authorization_url
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.par import par_request, par_response, pushed_url
from oauthbroker.records import Attempt
from oauthbroker.secret import Secret


@dataclass(frozen=True, slots=True)
class WayOut:
    """Builds authorization URLs. They carry the state, or what stands for it: Secrets."""

    asker: Asker
    discovery: Discovery
    clock: Clock

    async def check(self, app: OAuthApp) -> None:
        """Raise `appMisconfigured` where no browser could be sent off, as far as the provider's metadata tells; and
        what asking for that raises."""
        endpoints = await self.discovery.endpoints(app)
        if not endpoints.authorization_url:
            raise BrokerError(Code.APP_MISCONFIGURED, note="the app has no authorization endpoint")
        await self._check_push(app, endpoints)

    async def pushes(self, app: OAuthApp) -> bool:
        """Whether building one costs the provider a request. Raises as `Discovery.endpoints` does."""
        return _pushes(app, await self.discovery.endpoints(app))

    async def lasting(self, app: OAuthApp, attempt: Attempt, scopes: Sequence[str]) -> Secret:
        """A URL that may lie about until somebody follows it.

        Raises `appMisconfigured` where the provider takes only what was pushed: that would be dead before.
        """
        if await self.discovery.push_required(app):
            raise BrokerError(Code.APP_MISCONFIGURED, note="a direct link to a provider that requires pushed requests")
        return Secret(authorization_url(app, await self.discovery.endpoints(app), **_asked(attempt, scopes)))

    async def now(self, app: OAuthApp, attempt: Attempt, scopes: Sequence[str]) -> Secret:
        """Where the browser goes right now: with all that is asked in the URL, or with the number of a request that
        was pushed (RFC 9126) where the provider takes those and the app does not say `never`.

        Raises `providerUnreachable`, `providerRateLimited`, `appMisconfigured`.
        """
        endpoints, asked = await self.discovery.endpoints(app), _asked(attempt, scopes)
        if _pushes(app, endpoints):
            answer = await self.asker.ask(
                app, lambda known: par_request(known, endpoints, **asked, clock=self.clock), kind="push"
            )
            return Secret(pushed_url(app, endpoints, par_response(app, answer)))
        await self._check_push(app, endpoints)
        return Secret(authorization_url(app, endpoints, **asked))

    async def _check_push(self, app: OAuthApp, endpoints: Endpoints) -> None:
        if app.pushed_authorization == "never" or _pushes(app, endpoints):
            return
        if await self.discovery.push_required(app):
            raise BrokerError(Code.APP_MISCONFIGURED, note="requests must be pushed, and there is nowhere to")


class _Asked(TypedDict):
    """What an authorization request is built from, however it travels."""

    state: Secret
    code_challenge: str
    nonce: Secret | None
    scopes: Sequence[str]


def _asked(attempt: Attempt, scopes: Sequence[str]) -> _Asked:
    return _Asked(state=attempt.state, code_challenge=attempt.challenge, nonce=attempt.nonce, scopes=scopes)


def _pushes(app: OAuthApp, endpoints: Endpoints) -> bool:
    return app.pushed_authorization != "never" and bool(endpoints.pushed_authorization_url)
