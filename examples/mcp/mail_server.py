"""An MCP server whose tool needs a token of a third party: `python mail_server.py CONFIG ISSUER MAIL`.

The hosts bring access tokens of ISSUER. The tool reads the caller's mail at MAIL with a token of the broker. One port
serves the server, at /mcp, and the broker's pages.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress
from pathlib import Path

import httpx2
import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer

from oauthbroker import Broker, open_broker
from oauthbroker.mcp import McpOAuth


class Introspection:
    """Asks the issuer about access tokens (RFC 7662). The SDK compares the resource."""

    def __init__(self, issuer: str) -> None:
        self._url = f"{issuer}/introspect"

    async def verify_token(self, token: str) -> AccessToken | None:
        async with httpx2.AsyncClient(trust_env=False) as http:
            said = (await http.post(self._url, data={"token": token})).json()
        if not said["active"]:
            return None
        return AccessToken(
            token=token,
            client_id=said["client_id"],
            scopes=said["scope"].split(),
            resource=said["aud"][0] if said["aud"] else None,
            subject=said["sub"],
            claims={"iss": said["iss"]},
        )


def mail_server(broker: Broker, issuer: str, url: str, mail: str) -> MCPServer:
    """Make the server of `url`. Its caller is known by the claim `sub` of the issuer, as the owner of the app is."""
    said = {"issuer_url": issuer, "resource_server_url": url, "required_scopes": ["read"]}
    auth = AuthSettings.model_validate({**said, "validate_token_resource": True})
    server = MCPServer("mail", token_verifier=Introspection(issuer), auth=auth)
    oauth = McpOAuth(broker, subject="demo:user:{sub}", issuer=issuer)

    @server.tool()
    @oauth.asks("OAuthApp/mail", ["read"])
    async def inbox(ctx: Context) -> str:
        """Read the newest mail."""
        async with oauth.client(ctx, "OAuthApp/mail", ["read"]) as http:
            return (await http.get(mail)).text

    return server


async def main(config: Path, issuer: str, mail: str) -> None:
    async with open_broker(config) as broker:
        settings = broker.bundle.settings
        app = mail_server(broker, issuer, f"{settings.public_base_url}/mcp", mail).streamable_http_app()
        app.mount("/", broker.asgi.app)
        host, port = settings.listen_host, settings.listen_port
        await uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_level="warning")).serve()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path, help="The folder of the server's configuration.")
    parser.add_argument("issuer", help="The address of the provider whose access tokens are taken.")
    parser.add_argument("mail", help="The address of the API that the tool reads.")
    given = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(main(given.config, given.issuer, given.mail))
