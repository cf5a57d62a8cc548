"""Authenticate our client at an endpoint (RFC 6749 section 2.3, RFC 7523). Authlib encodes and signs."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote_plus

from oauthbroker.core.clock import Clock, random_text
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, AssertionAudience, Endpoints
from oauthbroker.model.client_key import signing_key
from oauthbroker.protocol.messages import ProviderRequest, Value, in_their_words

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
PASSING = frozenset({"temporarily_unavailable", "server_error"})  # error words that say nothing against the request
_ASSERTION_SECONDS = 60
CLIENT_PROOF = frozenset({"client_secret", "client_assertion", "client_assertion_type"})
"""The parameters that authenticate the client. An app's own parameters may not use these names."""
_ADVICE = "; the client's assertion names as its audience "
_FORGOTTEN = "; the server may have forgotten our client, and is asked before the next link."
_RAW_ADVICE = (
    "; the client's id or secret has characters that Basic sends encoded (RFC 6749 section 2.3.1). A provider that"
    " reads them raw wants client.authMethod: client_secret_post, or a secret of letters, digits, '-', '_' and '.'"
)
AUDIENCES: Mapping[AssertionAudience, str] = {
    "issuer": "the issuer",
    "tokenEndpoint": "the token endpoint",
    "endpoint": "the endpoint that is asked",
}
"""The audience of a client assertion, in words."""


def authenticated_post(
    app: App, endpoints: Endpoints, url: str, form: Mapping[str, Value], clock: Clock
) -> ProviderRequest:
    """Build a POST of `form` to `url` with the app's client authentication.

    client_secret_basic form-encodes id and secret first (RFC 6749 section 2.3.1); the authorization server of MCP's SDK
    looks for the id in the form too. A client assertion has one audience
    (RFC 7523 section 3): the issuer, so that a malicious endpoint cannot use it elsewhere, unless the app's
    configuration names another. Raises `appMisconfigured`.
    """
    client = app.client
    if not url:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the app has no such endpoint")
    if client.auth_method == "client_secret_basic":
        named = {"client_id": client.client_id} if app.mcp is not None else {}
        return ProviderRequest("POST", url, headers=_basic(app), form=in_their_words(app, {**form, **named}))
    members: dict[str, Value] = {**form, "client_id": client.client_id}
    if client.auth_method == "client_secret_post":
        members["client_secret"] = _secret(app)
    if client.auth_method == "private_key_jwt":
        members["client_assertion_type"] = ASSERTION_TYPE
        members["client_assertion"] = _assertion(app, _audience(app, endpoints, url), clock)
    return ProviderRequest("POST", url, form=in_their_words(app, members))


def _basic(app: App) -> dict[str, str | Secret]:
    from authlib.oauth2.auth import ClientAuth  # imported here: no start needs it

    user, password = quote_plus(app.client.client_id), quote_plus(_secret(app).reveal())
    _, headers, _ = ClientAuth(user, password, "client_secret_basic").prepare("POST", "", {}, "")
    return {name: Secret(value) for name, value in headers.items()}


def _secret(app: App) -> Secret:
    if not app.client.client_secret:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the client secret is missing")
    return app.client.client_secret


def refusal_note(app: App, word: str) -> str:
    """Return the operator's note that the provider refused the client. It names the usual cause: a server that has
    forgotten a client which registered itself, the audience of a signed assertion, or an encoding of Basic that many
    providers do not undo."""
    if app.mcp is not None and not app.mcp.has_client and not app.client.client_id.startswith("https://"):
        return f"{word}{_FORGOTTEN} `oauthbroker mcp forget {app.name}` registers another one"
    if _is_encoded(app):
        return word + _RAW_ADVICE
    if app.client.auth_method != "private_key_jwt":
        return word
    return f"{word}{_ADVICE}{AUDIENCES[app.client.assertion_audience]}; see client.assertionAudience"


def refused_request(app: App, request: str, word: str, known: frozenset[str], *, unknown: str) -> BrokerError:
    """Return the error for a request that the provider refused before any user was involved: the cause is our
    registration or our request. `unknown` replaces a word that is not `known`, which is not passed on."""
    if word in PASSING:
        return BrokerError(Code.PROVIDER_UNREACHABLE, note=word)
    note = refusal_note(app, word) if word == "invalid_client" else word if word in known else unknown
    return BrokerError(Code.APP_MISCONFIGURED, note=f"{request}: {note}")


def _is_encoded(app: App) -> bool:
    client = app.client
    if client.auth_method != "client_secret_basic":
        return False
    return any(quote_plus(text) != text for text in (client.client_id, *(each.reveal() for each in client.secrets)))


def _audience(app: App, endpoints: Endpoints, url: str) -> str:
    wanted = app.client.assertion_audience
    found = {"issuer": endpoints.issuer, "tokenEndpoint": endpoints.token_url, "endpoint": url}[wanted]
    if not found:
        raise BrokerError(Code.APP_MISCONFIGURED, note=f"private_key_jwt needs {AUDIENCES[wanted]}")
    return found


def _assertion(app: App, audience: str, clock: Clock) -> Secret:
    from authlib.oauth2.rfc7523 import private_key_jwt_sign

    signer = signing_key(_secret(app))
    signed = private_key_jwt_sign(
        signer.key,
        client_id=app.client.client_id,
        token_endpoint=audience,  # Authlib's name for `aud`
        alg=signer.algorithm,
        claims={"jti": random_text(clock, 256)},
        header={"typ": app.client.assertion_type, **({"kid": signer.kid} if signer.kid else {})},
        issued_at=int(clock.now().timestamp()),
        expires_in=_ASSERTION_SECONDS,
    )
    return Secret(str(signed))
