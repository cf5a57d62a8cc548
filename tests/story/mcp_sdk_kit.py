"""A server of the `mcp` SDK with an authorization server of its own, which is the SDK's too."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

from oauthbroker.testing import Canaries


@dataclass
class Sessions(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """What the SDK's authorization server keeps. It agrees to every request, and rotates refresh tokens."""

    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    access: dict[str, AccessToken] = field(default_factory=dict)
    refresh: dict[str, RefreshToken] = field(default_factory=dict)
    refreshes: int = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        if client_info.client_secret:
            Canaries.active().add(client_info.client_secret, "client secret")
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe(32)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=2**40,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._tokens(authorization_code, authorization_code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        self.refreshes += 1
        self.access.clear()
        return self._tokens(refresh_token, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    def _tokens(self, of: AuthorizationCode | RefreshToken, scopes: list[str]) -> OAuthToken:
        mint, facts = Canaries.active().mint, {"client_id": of.client_id, "scopes": scopes, "resource": of.resource}
        access, refresh = mint("access token").reveal(), mint("refresh token").reveal()
        self.access[access] = AccessToken.model_validate({"token": access, **facts})
        self.refresh[refresh] = RefreshToken.model_validate({"token": refresh, **facts})
        return OAuthToken(access_token=access, expires_in=3600, refresh_token=refresh, scope=" ".join(scopes))


def for_what() -> str:
    """Return the resource of the request's token."""
    token = get_access_token()
    assert token is not None
    return str(token.resource)


def sdk_server(sessions: Sessions, port: int) -> MCPServer:
    """Make the server for this port of loopback, with the tool `for_what`."""
    auth = AuthSettings(
        issuer_url=AnyHttpUrl(f"http://127.0.0.1:{port}"),
        resource_server_url=AnyHttpUrl(f"http://127.0.0.1:{port}/mcp"),
        validate_token_resource=True,
        required_scopes=["read"],
        client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["read"]),
        revocation_options=RevocationOptions(enabled=True),
    )
    server = MCPServer("tickets", auth_server_provider=sessions, auth=auth)
    server.tool()(for_what)
    return server
