"""A configuration of `oauthbroker mcp serve` for one server on loopback."""

from __future__ import annotations

import socket

from oauthbroker.testing import IdentityProvider
from tests.kit.cli import BROKER, Desk
from tests.kit.docs import code_blocks


def configure(desk: Desk, idp: IdentityProvider, port: int) -> None:
    desk.ready_to_serve(idp)
    path = desk.folder / "config" / "mail.yaml"
    text = path.read_text("utf-8")
    path.write_text(
        text.partition("  owner:")[0]
        + f"  owner: {{binding: localOperator}}\n  api: {{hosts: ['http://127.0.0.1:{port}'], methods: [GET, POST, DELETE]}}\n"
    )
    desk.write("broker", BROKER.format(base=desk.base, port=desk.port) + "  plugins: [mcp]\n")
    (server,) = (block for block in code_blocks("docs/mcp.md", "yaml") if "\nkind: McpServer" in block)
    for old, new in (
        ("https://mcp.example.com/tickets", f"http://127.0.0.1:{port}/mcp"),
        ("tickets}", "mail}"),
        ("OAuthApp/tickets", "OAuthApp/mail"),
        ("[list_tickets, close_ticket]", "[whose]"),
    ):
        assert old in server
        server = server.replace(old, new)
    desk.write("server", server)


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
