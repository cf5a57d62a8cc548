"""What tokens open: userinfo, and a small API as a tool would call it. And what everybody may read: JWKS, metadata."""

from __future__ import annotations

from oauthbroker.testing.provider.dialects import profile
from oauthbroker.testing.provider.http import Answer, Request, json_answer
from oauthbroker.testing.provider.ledger import Token
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.tokens import bearer


def userinfo(state: State, request: Request) -> Answer:
    """`GET /userinfo` (OIDC Core 5.3), also `/user`: who the token's person is, in its client's dialect."""
    token = state.ledger.living(bearer(request))
    if token is None:
        return _no_token(request)
    dialect = state.clients[token.agreement.client_id].dialect
    return json_answer(profile(dialect, token.agreement.account, token.agreement.scopes))


def me(state: State, request: Request) -> Answer:
    """`GET /api/me`: the account behind the token."""
    token = state.ledger.living(bearer(request))
    refused = _refused(state, request, token)
    if refused or token is None:
        return refused or _no_token(request)
    account = token.agreement.account
    scopes = list(token.scopes)
    return json_answer({"login": account.login, "name": account.display, "team": account.team, "scopes": scopes})


def messages(state: State, request: Request) -> Answer:
    """`GET /api/messages`: something worth fetching."""
    token = state.ledger.living(bearer(request))
    refused = _refused(state, request, token)
    if refused or token is None:
        return refused or _no_token(request)
    name = token.agreement.account.display.split()[0]
    texts = (f"Good morning, {name}.", "The build is green.", "Lunch at noon?")
    return json_answer({"messages": [{"id": number, "text": text} for number, text in enumerate(texts, 1)]})


def _refused(state: State, request: Request, token: Token | None) -> Answer | None:
    if token is None:
        return _no_token(request)
    if state.resource_scope and state.resource_scope not in token.scopes:
        challenge = f'Bearer error="insufficient_scope", scope="{state.resource_scope}"'
        return Answer(403, (("www-authenticate", challenge), ("content-type", "application/json")), b"{}")
    return None


def _no_token(request: Request) -> Answer:
    """RFC 6750 3: no reason to somebody who sent none."""
    challenge = 'Bearer error="invalid_token"' if request.header("authorization") else "Bearer"
    return Answer(401, (("www-authenticate", challenge), ("content-type", "application/json")), b"{}")


def jwks(state: State, request: Request) -> Answer:  # noqa: ARG001 - every endpoint has this shape
    """`GET /jwks`."""
    return json_answer(state.keys.jwks())


def discovery(state: State, request: Request) -> Answer:  # noqa: ARG001 - every endpoint has this shape
    """`GET /.well-known/openid-configuration` and the RFC 8414 twin."""
    base = state.base_url
    return json_answer(
        {
            "issuer": base,
            "authorization_endpoint": f"{base}/authorize",
            "token_endpoint": f"{base}/token",
            "userinfo_endpoint": f"{base}/userinfo",
            "jwks_uri": f"{base}/jwks",
            "revocation_endpoint": f"{base}/revoke",
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256", "ES256"],
            "token_endpoint_auth_methods_supported": [
                "client_secret_basic",
                "client_secret_post",
                "private_key_jwt",
                "none",
            ],
            "code_challenge_methods_supported": ["S256"],
            "scopes_supported": ["openid", "profile", "email", "offline_access"],
            "authorization_response_iss_parameter_supported": True,
        }
    )
