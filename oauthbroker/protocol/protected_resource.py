"""Find the authorization server of an MCP server by what the server publishes (RFC 9728). All of it is untrusted."""

from __future__ import annotations

from typing import Final

from oauthbroker.core.bearer_challenge import bearer_challenge
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.strict_json import decode_object
from oauthbroker.model.apps import App
from oauthbroker.model.mcp_server import canonical_uri
from oauthbroker.model.settings import Limits
from oauthbroker.protocol.answer_checks import refuse_if_busy
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse
from oauthbroker.protocol.metadata import texts, well_known
from oauthbroker.protocol.network.crash_guard import validator
from oauthbroker.protocol.network.transport import Transport, TransportFailed, send_for

_NONE: Final = "no metadata of the server"
OFFLINE: Final = "offline_access"  # with it some servers give a refresh token
_NAME: Final = "oauth-protected-resource"
_PING: Final = {"jsonrpc": "2.0", "id": "oauthbroker", "method": "ping"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedResource:
    """What a server says of itself: its resource (RFC 8707), the issuers that it trusts, its scopes, and those of its
    challenge."""

    resource: str
    issuers: tuple[str, ...]
    scopes: tuple[str, ...] | None
    challenged: tuple[str, ...] = ()

    def first_scopes(self, app: App, listed: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return the scopes to begin with, within the app's: those of the challenge, else those that the server lists,
        and `offline_access` where the authorization server lists it. Empty if that names none of the app's."""
        wanted = {*(self.challenged or self.scopes or ())} & app.scope_set
        offline = {OFFLINE} & {*(listed or ())} if wanted else set()
        return tuple(each for each in app.scopes if each in wanted - {OFFLINE} | offline)

    def issuer_for(self, app: App, before: str = "") -> str:
        """Return the issuer to use: the one that the operator names, else the one of before while the server names
        it, else the server's first. Raises `appMisconfigured` for one that the server does not name."""
        named = app.mcp.issuer if app.mcp is not None else ""
        if named and named not in self.issuers:
            raise BrokerError(Code.APP_MISCONFIGURED, note="the MCP server does not name the issuer in mcp.issuer")
        return named or (before if before in self.issuers else self.issuers[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedResources:
    """Asks MCP servers for their metadata."""

    transport: Transport
    limits: Limits

    async def of(self, app: App, url: str) -> ProtectedResource:
        """Return the metadata of the server at `url`: from the address that its challenge names, else from the
        well-known ones. Raises `mcpMetadataMissing`, `mcpUnsupported`, and what `Transport.send` raises."""
        challenge = await self._challenge(app, url)
        named = challenge.get("resource_metadata", "")
        if named and self.transport.proxy_resolves and _origin(named).lower() != _origin(url).lower():
            raise _missing("its challenge names an address at another host, which the proxy may not look up")
        addresses = [named] if named else dict.fromkeys([well_known(url, _NAME), well_known(_origin(url), _NAME)])
        refused = _missing(_NONE)
        for address in addresses:
            try:
                answer = await self._send(app, ProviderRequest("GET", address))
                found = resource_response(app.resource, answer)
                return replace(found, challenged=tuple(challenge.get("scope", "").split()))
            except BrokerError as error:
                refused = refused if not refused.note.startswith(_NONE) and not error.retryable else error
            if refused.retryable:
                break
        if refused.code is Code.APP_MISCONFIGURED:  # an address that is refused
            raise BrokerError(Code.MCP_METADATA_MISSING, note=refused.note)
        raise refused

    async def _challenge(self, app: App, url: str) -> dict[str, str]:
        """Send the server a request without a token. Return the parameters of its challenge."""
        ping = ProviderRequest("POST", url, form=_PING, encoding="json", accept="application/json, text/event-stream")
        try:
            answer = await self._send(app, ping)
        except TransportFailed as failed:
            if not failed.sent:
                raise
            return {}  # an answer that does not end: a server that asks for no token
        return (bearer_challenge(answer.challenge) if answer.status == 401 else None) or {}

    async def _send(self, app: App, request: ProviderRequest) -> ProviderResponse:
        return await send_for(app, request, "metadata", self.transport, self.limits)


@validator(Code.MCP_METADATA_MISSING)
def resource_response(resources: tuple[str, ...], answer: ProviderResponse) -> ProtectedResource:
    """Validate the document (RFC 9728 section 3.3): (1) it exists (2) it is about the resource that the app asks
    tokens for (3) it names an issuer (4) it takes bearer tokens, in a header.

    Raises `mcpMetadataMissing`, `mcpUnsupported`; `providerUnreachable` or `providerRateLimited` when a retry may help.
    """
    refuse_if_busy(answer)
    if answer.status != 200:  # (1)
        raise _missing(_NONE)
    document = decode_object(answer.body, Code.MCP_METADATA_MISSING)
    said = document.get("resource")
    if not isinstance(said, str) or "#" in said or canonical_uri(said) not in resources:  # (2)
        raise _missing("the metadata is about another resource")
    issuers = texts(document.get("authorization_servers"))
    if not issuers:  # (3)
        raise _missing("the metadata names no authorization server")
    ways = texts(document.get("bearer_methods_supported"))
    if document.get("dpop_bound_access_tokens_required") is True:  # (4)
        raise BrokerError(Code.MCP_UNSUPPORTED, note="the server takes only tokens that are bound to a key (DPoP)")
    if ways is not None and "header" not in ways:
        raise BrokerError(Code.MCP_UNSUPPORTED, note="the server takes no bearer token in a header")
    return ProtectedResource(
        resource=canonical_uri(said), issuers=issuers, scopes=texts(document.get("scopes_supported"))
    )


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3])


def _missing(note: str) -> BrokerError:
    return BrokerError(Code.MCP_METADATA_MISSING, note=note)
