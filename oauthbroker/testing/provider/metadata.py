"""The public documents: metadata and key set."""

from __future__ import annotations

from typing import Any

from oauthbroker.testing.provider.http import Answer, Request, json_answer
from oauthbroker.testing.provider.script import DEVICE_GRANT
from oauthbroker.testing.provider.state import State

GRANT_TYPES = ["authorization_code", "refresh_token", "client_credentials", DEVICE_GRANT]
_AUTH_METHODS = ["client_secret_basic", "client_secret_post", "private_key_jwt", "none"]


def jwks(state: State, request: Request) -> Answer:  # noqa: ARG001 - every endpoint has this shape
    """`GET /jwks`."""
    return json_answer(state.keys.jwks())


def discovery(state: State, request: Request) -> Answer:  # noqa: ARG001 - every endpoint has this shape
    """`GET /.well-known/openid-configuration` and the RFC 8414 twin."""
    base = state.base_url
    document: dict[str, Any] = {
        "issuer": base,
        "authorization_endpoint": f"{base}/authorize",
        "token_endpoint": f"{base}/token",
        "userinfo_endpoint": f"{base}/userinfo",
        "jwks_uri": f"{base}/jwks",
        "revocation_endpoint": f"{base}/revoke",
        "device_authorization_endpoint": f"{base}/device_authorization",
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": GRANT_TYPES,
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256", "ES256"],
        "token_endpoint_auth_methods_supported": _AUTH_METHODS,
        "code_challenge_methods_supported": ["S256"],
        "scopes_supported": ["openid", "profile", "email", "offline_access"],
        "authorization_response_iss_parameter_supported": True,
    }
    if state.takes_clients:
        document["registration_endpoint"] = f"{base}/register"
    return json_answer({**document, **_par(state)})


def protected_resource(state: State, request: Request) -> Answer:  # noqa: ARG001 - every endpoint has this shape
    """`GET /.well-known/oauth-protected-resource/mcp` (RFC 9728): an MCP server that would trust this provider."""
    return json_answer({"resource": f"{state.base_url}/mcp", "authorization_servers": [state.base_url]})


def _par(state: State) -> dict[str, Any]:
    """Return the members of RFC 9126 section 5."""
    if state.par == "off":
        return {}
    return {
        "pushed_authorization_request_endpoint": f"{state.base_url}/par",
        "require_pushed_authorization_requests": state.par == "required",
    }
