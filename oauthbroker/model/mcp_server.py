"""MCP servers as resources (RFC 8707): their addresses in the one spelling that is compared and sent."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from oauthbroker.core.dataclasses import dataclass

_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class McpServer:
    """The MCP server of an app by its address. `issuer` is that of its authorization server, if the operator names it;
    `has_client`: the app names a client that is registered there."""

    url: str
    issuer: str = ""
    has_client: bool = False


def canonical_uri(url: str) -> str:
    """Return the URI of a server without a trailing slash and a fragment, with scheme and host in small letters.

    Raises ValueError for a text that is no URL.
    """
    parts = urlsplit(url)
    port = "" if parts.port in {None, _PORTS.get(parts.scheme)} else f":{parts.port}"
    host = (parts.hostname or "").lower()
    netloc = f"[{host}]{port}" if ":" in host else f"{host}{port}"
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), parts.query, ""))


def is_same_or_above(resource: str, url: str) -> bool:
    """Tell whether a canonical URI is the server's own, or lies above it on its origin."""
    return url == resource or (not urlsplit(resource).query and url.startswith(f"{resource}/"))
