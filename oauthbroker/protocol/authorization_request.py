"""Build the authorization request (RFC 6749 section 4.1.1), which travels through the user's browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oauthbroker.core.clock import Clock, random_text
from oauthbroker.core.endpoint_query import parameters_in
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret, digest_of
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.protocol.messages import Value, in_their_words, pairs_of
from oauthbroker.records import Attempt

# Reserved names: neither an app's options nor the query of an endpoint may set them. The last three would
# send the answer or the parameters elsewhere.
RESERVED = frozenset({
    "response_type", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge",
    "code_challenge_method", "resource", "dpop_jkt", "response_mode", "request", "request_uri",
})  # fmt: skip


def code_challenge(verifier: str) -> str:
    """Return the S256 code challenge (RFC 7636 section 4.2)."""
    from authlib.oauth2.rfc7636 import create_s256_code_challenge  # imported here: no start needs it

    return str(create_s256_code_challenge(verifier))


def new_attempt(clock: Clock, locator: str, *, cookie: Secret | None) -> Attempt:
    """Create the values of one authorization attempt: a 256-bit code verifier (RFC 7636 section 4.1), state and
    nonce."""
    verifier, state, nonce = random_text(clock, 256), random_text(clock, 256), random_text(clock, 256)
    return attempt_of(verifier, locator + state, nonce, cookie=cookie)


def attempt_of(verifier: str, state: str, nonce: str, *, cookie: Secret | None = None) -> Attempt:
    """Return the attempt that has these values, and the challenge of its verifier."""
    return Attempt(
        challenge=code_challenge(verifier),
        verifier=Secret(verifier),
        state=Secret(state),
        nonce=Secret(nonce),
        cookie=digest_of(cookie.reveal()) if cookie is not None else None,
    )


def authorization_url(app: App, endpoints: Endpoints, attempt: Attempt, scopes: Sequence[str]) -> str:
    """Build the authorization URL for one browser. It carries `state`: keep it out of logs and chats.

    The endpoint's own query is kept. Raises `appMisconfigured` for an unusable query or app.
    """
    return with_params(app, endpoints, authorization_params(app, attempt, scopes))


def authorization_params(app: App, attempt: Attempt, scopes: Sequence[str]) -> dict[str, Value]:
    """Return the parameters of an authorization request, for the URL or for a pushed request (`par`).

    The scopes are `scopes` and the app's `alwaysScopes`. The nonce is sent only when `openid` is among them.
    """
    asked = requested_scopes(app, scopes)
    reserved = _reserved(app)
    params: dict[str, Value] = {
        name: value for name, value in app.habits.authorize_params.items() if name not in reserved
    }
    if asked:
        params[app.habits.scope_param] = app.habits.scope_separator.join(asked)
    if app.habits.pkce != "refused":
        params |= {"code_challenge": attempt.challenge, "code_challenge_method": "S256"}
    if attempt.nonce is not None and "openid" in asked:
        params["nonce"] = attempt.nonce
    if app.resource:
        params["resource"] = app.resource
    redirect_uri = app.redirect.uri_name or app.redirect.uri
    own: dict[str, Value] = {"client_id": app.client.client_id, "redirect_uri": redirect_uri}
    return params | {"response_type": "code", **in_their_words(app, own), "state": attempt.state}


def with_params(app: App, endpoints: Endpoints, params: Mapping[str, Value]) -> str:
    """Append the parameters to the authorization endpoint and its own query. Raises `appMisconfigured`."""
    from authlib.common.urls import add_params_to_uri

    return str(add_params_to_uri(_endpoint(app, endpoints), pairs_of(params)))


def requested_scopes(app: App, scopes: Sequence[str]) -> tuple[str, ...]:
    """Return the scopes to request: `openid`, the preset's `alwaysScopes`, then `scopes`, each once.

    The order has no meaning (RFC 6749 section 3.3), but some providers look for `openid` in the first place.
    """
    asked = dict.fromkeys((*app.habits.always_scopes, *scopes))
    return tuple(sorted(asked, key=lambda scope: scope != "openid"))


def _reserved(app: App) -> frozenset[str]:
    return RESERVED | {app.habits.scope_param, *app.habits.param_names.values()}


def _endpoint(app: App, endpoints: Endpoints) -> str:
    url = endpoints.authorization_url
    if not url:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the app has no authorization endpoint")
    if parameters_in(url) & _reserved(app):
        raise BrokerError(Code.APP_MISCONFIGURED, note="the authorization endpoint's query names a reserved parameter")
    return url
