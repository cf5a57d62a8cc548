"""Dynamic client registration (RFC 7591)."""

from __future__ import annotations

import json
from typing import Any

from oauthbroker.testing.provider.http import Answer, Request, json_answer
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.types import AuthMethod, Client

_METHODS: tuple[AuthMethod, ...] = ("client_secret_basic", "client_secret_post", "none")


def register(state: State, request: Request) -> Answer:
    """`POST /register`: make a client with a new id, and a secret unless it is a public one. Closed unless the provider
    `takes_clients`."""
    if not state.takes_clients or request.method != "POST":
        return Answer(404)
    asked: dict[str, Any] = json.loads(request.body)
    method = next((each for each in _METHODS if each == asked.get("token_endpoint_auth_method")), None)
    callbacks = asked.get("redirect_uris")
    if method is None or asked.get("application_type") not in {"web", "native"}:
        return json_answer({"error": "invalid_client_metadata"}, 400)
    if not isinstance(callbacks, list) or not callbacks:
        return json_answer({"error": "invalid_redirect_uri"}, 400)
    secret = None if method == "none" else state.canaries.mint("client secret")
    client = Client(f"dynamic-{len(state.clients)}", secret, redirect_uris=tuple(callbacks), auth_method=method)
    state.clients[client.client_id] = client
    kept = {} if secret is None else {"client_secret": secret.reveal(), "client_secret_expires_at": state.secrets_end}
    return json_answer({**asked, "client_id": client.client_id, **kept}, 201)
