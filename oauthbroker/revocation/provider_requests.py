"""Send the requests of a revocation to the provider."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.observability.tracing import Span, span
from oauthbroker.protocol.client_requests import ClientRequests
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.protocol.refresh_messages import refresh_request, refresh_response
from oauthbroker.protocol.revocation_messages import Hint, also_in_body, revoke_request, revoke_response, takes
from oauthbroker.protocol.token_endpoint import TokenResponse
from oauthbroker.revocation.pending_revocations import RevocationOutcome

MaySend = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class RevocationRequests:
    """Requests to the provider that issued a token. They read and change no record."""

    asker: ClientRequests
    discovery: Discovery
    clock: Clock

    async def tell(
        self, app: App, tokens: list[tuple[Hint, Secret]], may_send: MaySend | None = None
    ) -> RevocationOutcome:
        """Revoke the tokens (RFC 7009 section 2.1, or the app's own way). Return `done` if the provider revoked the
        longest-lived token, `none` if it cannot be told of that, `later` if `may_send`, which is asked before each
        request, refuses one. Raises the error that the provider's answer means."""
        with span(Span.REVOKE, app=app.name) as spanned:
            outcome = await self._tell_each(app, tokens, may_send)
            spanned.set(outcome=outcome)
            return outcome

    async def _tell_each(
        self, app: App, tokens: list[tuple[Hint, Secret]], may_send: MaySend | None
    ) -> RevocationOutcome:
        wanted = [(hint, token) for hint, token in tokens if takes(app.revocation, hint)]
        endpoints = await self.discovery.endpoints(app)
        if not wanted or not endpoints.revoke_url:
            return "none"
        took_note = list[bool]()
        for hint, token in wanted:
            if may_send is not None and not await may_send():
                return "later"
            try:
                took_note.append(await self._revoked(app, endpoints, token, hint))
            except BrokerError as error:
                if error.retryable or hint == "refresh_token" or not (took_note and took_note[0]):
                    raise  # else what the access token is good for ended with the refresh token
        return "done" if took_note[0] else "none"

    async def _revoked(self, app: App, endpoints: Endpoints, token: Secret, hint: Hint) -> bool:
        """Revoke one token, in a second way if the first is refused. Return whether it is dead."""
        answer = await self._ask(app, endpoints, token, hint)
        try:
            return revoke_response(app, answer)
        except BrokerError:
            if answer.status not in {400, 401} or not also_in_body(app):
                raise
        return revoke_response(app, await self._ask(app, endpoints, token, hint, in_body=True))

    async def _ask(
        self, app: App, endpoints: Endpoints, token: Secret, hint: Hint, *, in_body: bool = False
    ) -> ProviderResponse:
        """Send one token. A bearer token that authenticates itself is sent once, also when the client has several
        secrets."""
        if app.revocation.authenticate == "bearer":
            app = replace(app, client=replace(app.client, later_secrets=()))
        build = partial(revoke_request, endpoints=endpoints, token=token, hint=hint, clock=self.clock, in_body=in_body)
        return await self.asker.ask(app, build, kind="revoke")

    async def refresh(self, app: App, refresh: Secret, scopes: tuple[str, ...]) -> TokenResponse:
        """Refresh the token that authenticates a revocation. Raises `RefreshRefused`."""
        endpoints = await self.discovery.endpoints(app)
        answer = await self.asker.ask(
            app,
            lambda known: refresh_request(known, endpoints, refresh, clock=self.clock, scopes=scopes),
            kind="refresh",
        )
        return refresh_response(app, answer)
