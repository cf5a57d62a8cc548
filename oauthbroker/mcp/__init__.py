"""MCP, a plug-in: tokens for MCP clients and servers. See README.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oauthbroker.plugins import Plugin, PluginCommand, lazily

if TYPE_CHECKING:
    from oauthbroker.mcp.client_transport import McpTransport
    from oauthbroker.mcp.httpx_transport import httpx_client
    from oauthbroker.mcp.server import McpOAuth
    from oauthbroker.mcp.turn_tokens import TurnTokenVerifier

__all__ = ["PLUGIN", "McpOAuth", "McpTransport", "TurnTokenVerifier", "httpx_client"]

PLUGIN = Plugin(
    name="mcp",
    commands={
        "mcp": PluginCommand(help="MCP servers: add, approve, serve, forget.", app="oauthbroker.mcp.commands:app")
    },
    kinds="oauthbroker.mcp.spec:KINDS",
    audit_types="oauthbroker.mcp.audit_types:TYPES",
)

if not TYPE_CHECKING:  # with it, a type checker would accept every name
    __getattr__ = lazily(
        __name__,
        {
            "mcp.client_transport": {"McpTransport"},
            "mcp.httpx_transport": {"httpx_client"},
            "mcp.server": {"McpOAuth"},
            "mcp.turn_tokens": {"TurnTokenVerifier"},
        },
        {"mcp.server": "mcp", "mcp.turn_tokens": "mcp"},  # the transports are below clients of older SDKs, too
    )
