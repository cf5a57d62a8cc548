"""The provider's routes and the record of requests."""

from __future__ import annotations

import json
from collections.abc import Callable

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.secret import Secret
from oauthbroker.testing.provider import (
    authorize,
    device,
    exchanges,
    metadata,
    registration,
    requests,
    resources,
    revocation,
    tokens,
)
from oauthbroker.testing.provider.client_auth import who_says
from oauthbroker.testing.provider.http import Answer, Request
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.types import SECRET_FIELDS, SeenRequest


@dataclass(frozen=True, slots=True)
class Route:
    """A route. `endpoint` is the name to count, `script` the one whose misbehaviour applies."""

    endpoint: str
    work: Callable[[State, Request], Answer]
    script: str


ROUTES = {
    "/authorize": Route("authorize", authorize.authorize, "authorize"),
    "/login": Route("login", authorize.login, "authorize"),
    "/consent": Route("consent", authorize.consent, "authorize"),
    "/register": Route("register", registration.register, "register"),
    "/par": Route("par", requests.push, "par"),
    "/token": Route("token", tokens.token, "token"),
    "/access_token": Route("exchange", exchanges.exchange, "exchange"),
    "/refresh_access_token": Route("exchange_again", exchanges.renew, "exchange_again"),
    "/device_authorization": Route("device", device.authorization, "device"),
    "/device": Route("verification", device.verification, "authorize"),
    "/revoke": Route("revoke", revocation.revoke, "revoke"),
    "/api/auth.revoke": Route("revoke", revocation.slack_revoke, "revoke"),
    "/api/token/revoke": Route("revoke", revocation.bearer_revoke, "revoke"),
    "/applications/{client_id}/token": Route("revoke", revocation.application_revoke, "revoke"),
    "/applications/{client_id}/grant": Route("revoke", revocation.application_revoke, "revoke"),
    "/userinfo": Route("userinfo", resources.userinfo, "userinfo"),
    "/user": Route("userinfo", resources.userinfo, "userinfo"),
    "/introspect": Route("introspect", resources.introspect, "resource"),
    "/jwks": Route("jwks", metadata.jwks, "jwks"),
    "/.well-known/openid-configuration": Route("discovery", metadata.discovery, "discovery"),
    "/.well-known/oauth-authorization-server": Route("discovery", metadata.discovery, "discovery"),
    "/.well-known/oauth-protected-resource/mcp": Route("discovery", metadata.protected_resource, "server"),
    "/api/me": Route("resource", resources.me, "resource"),
    "/api/messages": Route("resource", resources.messages, "resource"),
}


COUNTED = frozenset(
    {"unknown", *(each.endpoint for each in ROUTES.values()), *metadata.GRANT_TYPES, *exchanges.EXCHANGES}
)
"""The endpoints and grant types by which a test finds requests."""


def route_of(path: str) -> Route | None:
    """Return the route of a path; the second part of `/applications/...` is a client."""
    parts = path.split("/")
    if path.startswith("/applications/") and len(parts) == 4:
        path = f"/applications/{{client_id}}/{parts[3]}"
    return ROUTES.get(path)


def seen(state: State, request: Request, endpoint: str) -> SeenRequest:
    """Record a request for the test; a PKCE verifier becomes a canary."""
    fields = request.query_fields + request.form_fields + _json_fields(request)
    kept = tuple((name, Secret(value) if name in SECRET_FIELDS else value) for name, value in fields)
    for name, value in fields:
        if name == "code_verifier" and len(value) >= 16:
            state.canaries.add(value, "code verifier")
    headers = {name: _without_credentials(name, value) for name, value in request.headers}
    presented = state.token_table.tokens.get(dict(fields).get("refresh_token", ""))
    generation = presented.generation if presented else 0
    client_id = who_says(state, request)
    return SeenRequest(
        endpoint=endpoint,
        method=request.method,
        path=request.path,
        fields=kept,
        headers=headers,
        at=state.clock.now(),
        client_id=client_id,
        generation=generation,
    )


def _json_fields(request: Request) -> list[tuple[str, str]]:
    """Return the members of a JSON body; other values than texts are written as JSON."""
    if "json" not in request.header("content-type"):
        return []
    try:
        found = json.loads(request.body)
    except ValueError:
        return []
    members = found.items() if isinstance(found, dict) else ()
    return [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in members]


def _without_credentials(name: str, value: str) -> str:
    if name == "authorization":
        return value.partition(" ")[0] + " ***"
    if name == "cookie":
        return "; ".join(part.partition("=")[0].strip() + "=***" for part in value.split(";"))
    return value
