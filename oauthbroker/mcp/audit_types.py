"""The plug-in's entries in the audit log. Each is written before its act, and none has arguments or results."""

from __future__ import annotations

from oauthbroker.plugins import PluginAuditEntry


class ServerCalled(PluginAuditEntry, plugin="mcp"):
    """The gateway is about to pass a request on to an MCP server, or to ask for a list (`tools/list`). Only a tool is
    named: a URI may hold a secret."""

    server: str
    method: str
    tool: str | None
    agent: str
    instance: str


class ToolApproved(PluginAuditEntry, plugin="mcp"):
    """An operator approves the new texts of a tool that has changed, and the gateway shows it again."""

    server: str
    tool: str


TYPES = (ServerCalled, ToolApproved)
