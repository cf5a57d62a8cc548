"""Get the broker a client at the authorization server of an MCP server, and another one when that server has forgotten
it."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from oauthbroker.core.clock import Clock, has_passed, random_text
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.settings import Limits
from oauthbroker.observability.logging import Log
from oauthbroker.protocol.client_registration import (
    client_document_url,
    document_method,
    registration_request,
    registration_response,
    takes_document,
)
from oauthbroker.protocol.client_requests import refuses_client
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.network.transport import Transport, send_for
from oauthbroker.protocol.token_endpoint import code_request
from oauthbroker.records.registered_client import RegisteredClient

RESTS: Final = timedelta(days=1)  # without a registration at a server that refuses new clients, too


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRegistrations:
    """Registers clients. `document_base` is where the documents of clients are served."""

    discovery: Discovery
    transport: Transport
    clock: Clock
    limits: Limits
    log: Log
    document_base: str

    async def new(self, app: App, blank: RegisteredClient) -> RegisteredClient:
        """Return `blank` with a client at its issuer: none for an app that has its own, else a document, else one that
        is registered now. Raises `mcpRegistrationNeeded`, `mcpPkceMissing`, `mcpUnsupported`, and the codes of provider
        calls."""
        at_issuer = app.learnt(blank.issuer, app.client)
        metadata = await self.discovery.metadata(at_issuer)
        if app.mcp is not None and app.mcp.has_client:
            return blank
        document, method = client_document_url(self.document_base, app.name), document_method(app)
        if document and takes_document(metadata, method):
            return replace(blank, client_id=document, auth_method=method)
        if method != "none":
            raise BrokerError(Code.MCP_REGISTRATION_NEEDED, note="no document of a client that signs is taken")
        request = registration_request(at_issuer, metadata)
        answer = await send_for(app, request, "register", self.transport, self.limits)
        client, ends_at = registration_response(app, request, answer)
        return replace(
            blank,
            client_id=client.client_id,
            client_secret=client.client_secret,
            auth_method=client.auth_method,
            ends_at=ends_at,
            scopes=app.scopes,
        )

    async def checked(self, app: App, old: RegisteredClient, blank: RegisteredClient) -> RegisteredClient:
        """Return the client of before, or another one if it was registered by us and its server has forgotten it.

        The other one is asked about, too: a server that refuses both says nothing by it, and the first one stays.
        Raises as `new`.
        """
        kept = replace(old, looked_at=blank.looked_at, first_scopes=blank.first_scopes)
        if not old.is_registered or not await self._is_refused(app, old):
            return replace(kept, refused_at=None)
        if old.refused_at is not None and not has_passed(old.refused_at + RESTS, old.refused_at, blank.looked_at):
            return kept
        new = replace(await self.new(app, blank), replaced_at=blank.looked_at)
        if await self._is_refused(app, new):
            self.log.warning("a registered client is refused by its server, and so is a new one", app=app.name)
            return replace(kept, refused_at=blank.looked_at)
        self.log.warning("a registered client is unknown to its server, and is replaced by a new one", app=app.name)
        return new

    async def _is_refused(self, app: App, client: RegisteredClient) -> bool:
        """Tell whether the token endpoint refuses a client. It is sent a code that is worth nothing, so that a client
        which it knows is answered `invalid_grant`."""
        app = client.complete(app)
        code, verifier = (Secret(random_text(self.clock, 256)) for _ in range(2))
        request = code_request(app, await self.discovery.endpoints(app), code, verifier, clock=self.clock)
        return refuses_client(app, await send_for(app, request, "register", self.transport, self.limits))
