"""Become a client of an authorization server that does not know us: by a document at an address of ours (Client ID
Metadata Document), or by dynamic registration (RFC 7591)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, get_args
from urllib.parse import urlsplit

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import Json, decode_object
from oauthbroker.model.apps import App, AuthMethod, Client
from oauthbroker.model.client_key import public_jwk, signing_key
from oauthbroker.model.provider_networks import is_loopback
from oauthbroker.protocol.answer_checks import members_of, refuse_if_busy
from oauthbroker.protocol.authorization_request import requested_scopes
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse
from oauthbroker.protocol.metadata import ProviderMetadata, texts
from oauthbroker.protocol.network.crash_guard import validator

# The body first: servers made with MCP's SDK read it there when a token is revoked, also where they list Basic.
_METHODS: Final[tuple[AuthMethod, ...]] = ("client_secret_post", "client_secret_basic", "none")
_OTHER_METHODS: Final = ("private_key_jwt", "client_secret_jwt", "tls_client_auth", "self_signed_tls_client_auth")
_BINDS: Final = {"dpop_bound_access_tokens": "DPoP", "tls_client_certificate_bound_access_tokens": "mutual TLS"}
_LONGEST: Final = 4096
# RFC 7591 section 3.2.2. Another word is not passed on.
_WORDS: Final = frozenset(
    {"invalid_redirect_uri", "invalid_client_metadata", "invalid_software_statement", "unapproved_software_statement"}
)


def client_document_url(base_url: str, app: str) -> str:
    """Return the address of an app's client, which is its client id. Empty where no server could fetch it."""
    return f"{base_url}/clients/{app}.json" if base_url.startswith("https://") else ""


def client_document(app: App, client_id: str) -> dict[str, Any]:
    """Return the metadata of the client with this id: a public one, or one that signs with the app's keys."""
    method = document_method(app)
    keys = [public_jwk(signing_key(each)) for each in app.client.secrets] if method == "private_key_jwt" else []
    return {"client_id": client_id, **_metadata(app, method), **({"jwks": {"keys": keys}} if keys else {})}


def document_method(app: App) -> AuthMethod:
    """Return how the client of a document proves itself. A document is public, so that it holds no secret."""
    return "private_key_jwt" if app.client.auth_method == "private_key_jwt" else "none"


def takes_document(metadata: ProviderMetadata, method: AuthMethod = "none") -> bool:
    """Tell whether the server fetches the document of a client that proves itself so."""
    return metadata.client_documents and method in (metadata.auth_methods or ("none",))


def has_registration(metadata: ProviderMetadata) -> bool:
    """Tell whether the server registers clients that prove themselves in a way that we know."""
    return bool(metadata.registration_url) and _method(metadata) is not None


def registration_request(app: App, metadata: ProviderMetadata) -> ProviderRequest:
    """Build the request for a new client, with a secret if the server knows one of our ways to send it. Raises
    `mcpRegistrationNeeded`."""
    method = _method(metadata)
    if method is None or not has_registration(metadata):
        raise BrokerError(Code.MCP_REGISTRATION_NEEDED, note=_lack(metadata))
    members = {name: tuple(it) if isinstance(it, list) else it for name, it in _metadata(app, method).items()}
    return ProviderRequest("POST", metadata.registration_url, form=members, encoding="json")


def _lack(metadata: ProviderMetadata) -> str:
    """Return what keeps us from registering: the ways to prove a client that the server lists, as far as they have a
    name of the registry, since a word of its own is not passed on."""
    if not metadata.registration_url:
        return "the authorization server names no endpoint that registers clients"
    named = [each for each in _OTHER_METHODS if each in (metadata.auth_methods or ())]
    return f"the authorization server takes no client with a secret, only: {', '.join(named) or 'other ways'}"


def _method(metadata: ProviderMetadata) -> AuthMethod | None:
    """Return the best way that the server lists. No list means client_secret_basic (RFC 8414 section 2)."""
    listed = ("client_secret_basic",) if metadata.auth_methods is None else metadata.auth_methods
    return next((each for each in _METHODS if each in listed), None)


def _metadata(app: App, method: AuthMethod) -> dict[str, Any]:
    """Return our metadata (RFC 7591 section 2). A callback on this machine makes a native client, as OpenID Connect
    Dynamic Client Registration has it."""
    scopes = " ".join(requested_scopes(app, app.scopes))
    is_native = is_loopback(urlsplit(app.redirect.uri).hostname or "")
    return {
        "client_name": app.display_name,
        "redirect_uris": [app.redirect.uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native" if is_native else "web",
        **({"scope": scopes} if scopes else {}),
    }


@validator(Code.MCP_REGISTRATION_NEEDED)
def registration_response(
    app: App, request: ProviderRequest, answer: ProviderResponse
) -> tuple[Client, datetime | None]:
    """Return the new client and the end of its secret, None for none (RFC 7591 section 3.2.1).

    (1) the server has made a client (2) for our callback (3) that proves itself in a way that we know (4) and gets
    bearer tokens. Raises `mcpRegistrationNeeded`, `mcpUnsupported`; `providerUnreachable` or `providerRateLimited` when
    a retry may help.
    """
    refuse_if_busy(answer)
    if answer.status not in {200, 201}:  # (1)
        word = members_of(answer).get("error")
        is_printable = isinstance(word, str) and word in _WORDS
        raise _refused(str(word) if is_printable else f"the answer has the status {answer.status}")
    made = decode_object(answer.body, Code.MCP_REGISTRATION_NEEDED)
    callbacks = texts(made.get("redirect_uris", [app.redirect.uri]))
    if callbacks is None or app.redirect.uri not in callbacks:  # (2)
        raise _refused("the client has another callback")
    client_id, secret = made.get("client_id"), made.get("client_secret")
    if not _is_word(client_id) or not (secret is None or _is_word(secret)):
        raise _refused("the client has no usable id or secret")
    asked = (request.form or {}).get("token_endpoint_auth_method")
    method = made.get("token_endpoint_auth_method", asked if secret is not None else "none")
    known = next((each for each in get_args(AuthMethod) if each == method and each in _METHODS), None)
    if known is None or (known != "none" and secret is None):  # (3)
        raise _refused("the client has another way to prove itself")
    for name in (name for name in _BINDS if made.get(name) is True):  # (4)
        raise BrokerError(
            Code.MCP_UNSUPPORTED, note=f"the client gets only tokens that are bound to a key ({_BINDS[name]})"
        )
    kept = None if known == "none" else Secret(str(secret))
    return Client(str(client_id), kept, known), _end(made.get("client_secret_expires_at", 0)) if kept else None


def _end(seconds: Json) -> datetime | None:
    """Return the end of a secret. Zero is none (RFC 7591 section 3.2.1)."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise _refused("the end of the secret is no time")
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def _is_word(value: Json) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and all("!" <= char <= "~" for char in value)


def _refused(note: str) -> BrokerError:
    return BrokerError(Code.MCP_REGISTRATION_NEEDED, note=note)
