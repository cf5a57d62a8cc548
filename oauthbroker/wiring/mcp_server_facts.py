"""Look at an MCP server from outside, for an operator who wants to add it: `oauthbroker mcp add`."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit, urlunsplit

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.mcp_server import McpServer, canonical_uri
from oauthbroker.model.settings import Limits
from oauthbroker.protocol.client_registration import has_registration, takes_document
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.network.transport import Transport
from oauthbroker.protocol.protected_resource import ProtectedResources
from oauthbroker.wiring.outside_transport import asking_app, transport_to

MOST_SCOPES: Final = 100
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")  # RFC 6749 section 3.3
Registration = Literal["document", "dynamic", "byHand"]


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerFacts:
    """What an MCP server and its authorization server publish. `issuers`: the first one is used. `registration` is how
    the broker gets a client; a document needs a public https address."""

    url: str
    resource: str
    issuers: tuple[str, ...]
    scopes: tuple[str, ...]
    registration: Registration

    @property
    def app_name(self) -> str:
        """Return a name made of the host without the labels that say nothing: `tickets` for mcp.tickets.example."""
        host = urlsplit(self.url).hostname or ""
        labels = [each for each in host.split(".")[:-1] if each not in {"mcp", "www", "api"}]
        return (labels or ["mcp"])[-1] if re.search("[a-z]", host) else "mcp"

    @property
    def app_members(self) -> dict[str, Any]:
        """Return the members of an OAuthApp that follow from the server: its address, its resource, its scopes."""
        scopes = [each for each in self.scopes if _SCOPE.fullmatch(each) and "," not in each][:MOST_SCOPES]
        resource = {} if self.resource == self.url else {"resource": self.resource}
        return {"mcp": {"url": self.url, "issuer": self.issuers[0]}, **resource, "scopes": scopes}


async def look_at_mcp_server(url: str, networks: Collection[str] = (), bundle: Path | None = None) -> McpServerFacts:
    """Ask a server as the broker does, and take the resource of a parent too. `networks` and `bundle` are as in
    `transport_to`.

    Raises `requestInvalid` for a text that is no address, or has a user or a password, and the errors of a server that
    the broker cannot use.
    """
    try:
        address, has_user = canonical_uri(url), "@" in urlsplit(url).netloc
    except ValueError:
        raise BrokerError(Code.REQUEST_INVALID, note="not the address of a server") from None
    if has_user:
        note = "the address has a user or a password, which no request would carry. Leave out all up to the @"
        raise BrokerError(Code.REQUEST_INVALID, note=note)
    async with transport_to(address, networks, bundle) as transport:
        return await _facts(address, transport)


async def _facts(url: str, transport: Transport) -> McpServerFacts:
    app = asking_app("mcp", resource=_with_parents(url), mcp=McpServer(url))
    limits = Limits()
    resource = await ProtectedResources(transport=transport, limits=limits).of(app, url)
    at_issuer = app.learnt(resource.issuers[0], app.client)
    metadata = await Discovery(transport, SystemClock(), limits).metadata(at_issuer)
    scopes = metadata.scopes or () if resource.scopes is None else resource.scopes
    if "offline_access" in (metadata.scopes or ()):
        scopes = (*scopes, "offline_access")
    way: Registration = "dynamic" if has_registration(metadata) else "byHand"
    return McpServerFacts(
        url=url,
        resource=resource.resource,
        issuers=resource.issuers,
        scopes=tuple(dict.fromkeys(scopes)),
        registration="document" if takes_document(metadata) else way,
    )


def _with_parents(url: str) -> tuple[str, ...]:
    """Return the resources that a token for this server may be for, the server's own first."""
    scheme, netloc, path, query, _ = urlsplit(url)
    steps = path.split("/")
    above = ["/".join(steps[:end]) for end in range(len(steps) - (not query), 0, -1)]
    return (url, *(urlunsplit((scheme, netloc, each, "", "")) for each in above))
