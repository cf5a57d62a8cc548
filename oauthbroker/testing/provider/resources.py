"""Protected resources: userinfo, and a small API for tools."""

from __future__ import annotations

from oauthbroker.testing.provider.dialects import profile
from oauthbroker.testing.provider.http import Answer, Request, json_answer
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.token_table import Token


def userinfo(state: State, request: Request) -> Answer:
    """`GET /userinfo` (OIDC Core section 5.3), also `/user`: the token's user, in the client's dialect."""
    token = state.token_table.living(bearer(request))
    if token is None:
        return no_token(request)
    dialect = state.clients[token.agreement.client_id].dialect
    return json_answer(profile(dialect, token.agreement.account, token.agreement.scopes))


def me(state: State, request: Request) -> Answer:
    """`GET /api/me`: the account of the token."""
    token = _admitted(state, request)
    if isinstance(token, Answer):
        return token
    account = token.agreement.account
    scopes = list(token.scopes)
    return json_answer({"login": account.login, "name": account.display, "team": account.team, "scopes": scopes})


def messages(state: State, request: Request) -> Answer:
    """`GET /api/messages`: some data to fetch."""
    token = _admitted(state, request)
    if isinstance(token, Answer):
        return token
    name = token.agreement.account.display.split()[0]
    texts = (f"Good morning, {name}.", "The build is green.", "Lunch at noon?")
    return json_answer({"messages": [{"id": number, "text": text} for number, text in enumerate(texts, 1)]})


def introspect(state: State, request: Request) -> Answer:
    """`POST /introspect` (RFC 7662): what an access token is, for a resource server. It asks for no credentials."""
    token = state.token_table.living(dict(request.form_fields).get("token", ""))
    if token is None:
        return json_answer({"active": False})
    about, agreement = {"active": True, "iss": state.base_url, "aud": list(token.resources)}, token.agreement
    return json_answer(
        {**about, "scope": " ".join(token.scopes), "client_id": agreement.client_id, "sub": agreement.account.sub}
    )


def _admitted(state: State, request: Request) -> Token | Answer:
    """Return the token of a request to the API, or the refusal."""
    token = state.token_table.living(bearer(request))
    if token is None:
        return no_token(request)
    if state.resource_scope and state.resource_scope not in token.scopes:
        challenge = f'Bearer error="insufficient_scope", scope="{state.resource_scope}"'
        return Answer(403, (("www-authenticate", challenge), ("content-type", "application/json")), b"{}")
    return token


def bearer(request: Request) -> str:
    """Return the token of the Authorization header (RFC 6750 section 2.1), or an empty text."""
    scheme, _, text = request.header("authorization").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


def no_token(request: Request) -> Answer:
    """Answer a request without a token, without an error code (RFC 6750 section 3)."""
    challenge = 'Bearer error="invalid_token"' if request.header("authorization") else "Bearer"
    return Answer(401, (("www-authenticate", challenge), ("content-type", "application/json")), b"{}")
