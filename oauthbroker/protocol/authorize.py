"""The authorization request (RFC 6749 section 4.1.1): the one message that travels through the person's browser."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl, urlsplit

from authlib.common.urls import add_params_to_uri
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from oauthbroker.apps import Endpoints, OAuthApp
from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.messages import reveal
from oauthbroker.secret import Secret

# Ours alone: neither an app's options nor a query that an endpoint already has may name them. The last
# three would move the answer or the parameters out of our sight.
RESERVED = frozenset({
    "response_type", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge",
    "code_challenge_method", "resource", "response_mode", "request", "request_uri",
})  # fmt: skip


def code_challenge(verifier: Secret) -> str:
    """RFC 7636 section 4.2, S256 only."""
    return str(create_s256_code_challenge(verifier.reveal()))


def authorization_url(
    app: OAuthApp,
    endpoints: Endpoints,
    *,
    state: Secret,
    code_challenge: str,
    nonce: Secret | str | None,
    scopes: Sequence[str],
) -> str:
    """Where the browser goes. The URL carries `state`: it is for one browser, not for a log or a chat.

    Asks for `scopes` and the app's `alwaysScopes`. `nonce` is sent only when `openid` is among them. A query that
    the endpoint has is kept. Raises `appMisconfigured` when that query, or the app itself, is unusable.
    """
    asked = requested_scopes(app, scopes)
    extra = {name: value for name, value in app.habits.authorize_params.items() if name not in _reserved(app)}
    pairs = list(extra.items())
    if asked:
        pairs.append((app.habits.scope_param, app.habits.scope_separator.join(asked)))
    pairs += [("code_challenge", code_challenge), ("code_challenge_method", "S256")]
    if nonce is not None and "openid" in asked:
        pairs.append(("nonce", reveal(nonce)))
    pairs += [("resource", resource) for resource in app.resource]
    target = str(add_params_to_uri(_endpoint(app, endpoints), pairs))
    return str(prepare_grant_uri(target, app.client.client_id, "code", app.redirect.uri, state=state.reveal()))


def requested_scopes(app: OAuthApp, scopes: Sequence[str]) -> tuple[str, ...]:
    """What is asked for at the provider: `scopes`, then the preset's `alwaysScopes`, each once."""
    return tuple(dict.fromkeys((*scopes, *app.habits.always_scopes)))


def _reserved(app: OAuthApp) -> frozenset[str]:
    return RESERVED | {app.habits.scope_param}


def _endpoint(app: OAuthApp, endpoints: Endpoints) -> str:
    url = endpoints.authorization_url
    if not url:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the app has no authorization endpoint")
    named = {name for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)}
    if named & _reserved(app):
        raise BrokerError(Code.APP_MISCONFIGURED, note="the authorization endpoint's query names a reserved parameter")
    return url
