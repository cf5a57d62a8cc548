"""MCP, a plug-in: tokens for MCP clients and servers. See README.md."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oauthbroker.plugins import Plugin, PluginCommand, check_extra

if TYPE_CHECKING:
    from oauthbroker.mcp.client_transport import McpTransport
    from oauthbroker.mcp.httpx_transport import httpx_client
    from oauthbroker.mcp.server import McpOAuth
    from oauthbroker.mcp.turn_tokens import TurnTokenVerifier

__all__ = ["PLUGIN", "McpOAuth", "McpTransport", "TurnTokenVerifier", "httpx_client"]

_HOMES = {
    "httpx_client": "httpx_transport",
    "McpOAuth": "server",
    "McpTransport": "client_transport",
    "TurnTokenVerifier": "turn_tokens",
}

PLUGIN = Plugin(
    name="mcp",
    commands={
        "mcp": PluginCommand(help="MCP servers: add, approve, serve, forget.", app="oauthbroker.mcp.commands:app")
    },
    kinds="oauthbroker.mcp.spec:KINDS",
    audit_types="oauthbroker.mcp.audit_types:TYPES",
)


if not TYPE_CHECKING:  # with it, a type checker would accept every name

    def __getattr__(name: str) -> Any:
        """Import the rest when it is first used: `oauthbroker --help` imports only the declaration. Raises
        UnfitExtra if the SDK is missing, or does not fit. The transports need none: they are below older ones, too."""
        if name not in _HOMES:
            raise AttributeError(name)
        if name not in {"httpx_client", "McpTransport"}:
            check_extra("mcp")
        return getattr(import_module(f"oauthbroker.mcp.{_HOMES[name]}"), name)
