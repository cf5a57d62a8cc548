"""Parse what a provider publishes: its metadata (OpenID Connect Discovery 1.0 section 4, RFC 8414) and its keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.strict_json import Json, decode_object
from oauthbroker.model.apps import Endpoints
from oauthbroker.protocol.answer_checks import refuse_if_busy
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.protocol.network.crash_guard import validator

if TYPE_CHECKING:
    from joserfc.jwk import Key

_NAMES = {
    "authorization_url": "authorization_endpoint",
    "token_url": "token_endpoint",
    "revoke_url": "revocation_endpoint",
    "user_info_url": "userinfo_endpoint",
    "jwks_url": "jwks_uri",
    "device_authorization_url": "device_authorization_endpoint",
    "pushed_authorization_url": "pushed_authorization_request_endpoint",
}
_OIDC = "openid-configuration"
NO_METADATA = "no metadata at the issuer"
_ISSUER = re.compile(r"https?://[\x21-\x7e]{1,300}")

MAX_KEYS = 100
_PUBLIC = {  # the members we read; a published private part is ignored
    "RSA": ("kty", "n", "e", "kid", "alg", "use"),
    "EC": ("kty", "crv", "x", "y", "kid", "alg", "use"),
    "OKP": ("kty", "crv", "x", "kid", "alg", "use"),
}


class WrongIssuer(BrokerError):
    """The document names another issuer. `found` is that issuer, for the operator; empty if it is not an address."""

    def __init__(self, said: Json) -> None:
        super().__init__(Code.APP_MISCONFIGURED, note="the metadata names another issuer")
        self.found = said if isinstance(said, str) and _ISSUER.fullmatch(said) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderMetadata:
    """The parts of the document that we use. `issuer_promised`: every authorization response carries `iss` (RFC 9207
    section 3). `push_required`: only pushed authorization requests are accepted (RFC 9126 section 5). `s256`: the
    listed PKCE methods include S256; None if none are listed. `registration_url` takes new clients (RFC 7591),
    `client_documents`: a client may be a document at an address of its own, `auth_methods` and `scopes` are the listed
    ones, None for no list. `signed_requests`: every authorization request is signed (RFC 9101 section 10.5)."""

    endpoints: Endpoints
    issuer_promised: bool
    push_required: bool
    s256: bool | None
    registration_url: str = ""
    client_documents: bool = False
    auth_methods: tuple[str, ...] | None = None
    scopes: tuple[str, ...] | None = None
    signed_requests: bool = False


def metadata_addresses(issuer: str, *, mcp: bool = False) -> tuple[str, ...]:
    """Return the addresses of the document: OIDC appends to the issuer's path, RFC 8414 section 3.1 inserts before
    it. MCP has an order of its own, in which OIDC is inserted, too."""
    appended, inserted = f"{urlsplit(issuer).path.rstrip('/')}/.well-known/{_OIDC}", well_known(issuer, _OIDC)
    oidc = urlunsplit((*urlsplit(issuer)[:2], appended, "", ""))
    oauth = well_known(issuer, "oauth-authorization-server")
    return tuple(dict.fromkeys((oauth, inserted, oidc) if mcp else (oidc, oauth)))


def well_known(url: str, name: str) -> str:
    """Return the well-known address of a URL: the name goes between its host and its path (RFC 8414 section 3.1, RFC
    9728 section 3.1)."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, f"/.well-known/{name}{parts.path.rstrip('/')}", parts.query, ""))


@validator(Code.APP_MISCONFIGURED)
def metadata_response(issuer: str, issuer_template: str, answer: ProviderResponse) -> ProviderMetadata:
    """Validate the document: (1) it exists (2) it names this issuer (3) its endpoints are texts.

    Raises `appMisconfigured`, for (2) as `WrongIssuer`; `providerUnreachable` or `providerRateLimited` when a retry may
    help. The transport decides whether an address may be used.
    """
    refuse_if_busy(answer)
    if answer.status != 200:  # (1)
        raise _refused(NO_METADATA)
    document = decode_object(answer.body, Code.APP_MISCONFIGURED)
    if not _is_issuer(document.get("issuer"), issuer, issuer_template):  # (2)
        raise WrongIssuer(document.get("issuer"))
    found = {slot: _address(document, name) for slot, name in _NAMES.items()}  # (3)
    methods = document.get("code_challenge_methods_supported")
    promised = document.get("authorization_response_iss_parameter_supported") is True
    push_required = document.get("require_pushed_authorization_requests") is True
    return ProviderMetadata(
        endpoints=Endpoints(issuer=issuer, **found),
        issuer_promised=promised,
        push_required=push_required,
        s256="S256" in methods if isinstance(methods, list) else None,
        registration_url=_address(document, "registration_endpoint"),
        client_documents=document.get("client_id_metadata_document_supported") is True,
        auth_methods=texts(document.get("token_endpoint_auth_methods_supported")),
        scopes=texts(document.get("scopes_supported")),
        signed_requests=document.get("require_signed_request_object") is True,
    )


def _is_issuer(said: Json, issuer: str, template: str) -> bool:
    """Tell whether the issuer matches byte for byte. A multi-tenant provider may give its template instead, with a
    placeholder of its own."""
    if said == issuer:
        return True
    return bool(template) and isinstance(said, str) and _masked(said) == _masked(template)


def texts(value: Json) -> tuple[str, ...] | None:
    """Return the texts of a list; None for another value."""
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else None


def _masked(text: str) -> str:
    return re.sub(r"\{[^{}]*\}", "{}", text)


def _address(document: Mapping[str, Json], name: str) -> str:
    value = document.get(name, "")
    if not isinstance(value, str):
        raise _refused("the metadata has an endpoint that is not an address")
    return value


def _refused(note: str) -> BrokerError:
    return BrokerError(Code.APP_MISCONFIGURED, note=note)


@validator(Code.APP_MISCONFIGURED)
def keys_response(answer: ProviderResponse) -> tuple[Key, ...]:
    """Return the public signing keys of a JWK Set, in its order. An entry that cannot be read is skipped.

    Raises `appMisconfigured` when there is no key set, `providerUnreachable` or `providerRateLimited` when a retry may
    help. The media type is not checked, because nothing depends on it.
    """
    refuse_if_busy(answer)
    entries = decode_object(answer.body, Code.APP_MISCONFIGURED).get("keys") if answer.status == 200 else None
    if not isinstance(entries, list):
        raise BrokerError(Code.APP_MISCONFIGURED, note="no key set at its address")
    return public_keys(entries)


def public_keys(entries: Json) -> tuple[Key, ...]:
    """Return the public signing keys among the entries of a JWK Set, in their order. Others are skipped."""
    keys = (_usable(entry) for entry in entries[:MAX_KEYS]) if isinstance(entries, list) else ()
    return tuple(key for key in keys if key is not None)


def _usable(entry: Json) -> Key | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    kty = entry.get("kty")
    members = _PUBLIC.get(kty) if isinstance(kty, str) else None
    from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key  # imported here: a broker without ID tokens needs none

    if members is None:  # symmetric keys too: they are not public
        return None
    try:
        key = import_key({name: entry[name] for name in members if name in entry})
        fits = isinstance(key, ECKey | OKPKey) or (isinstance(key, RSAKey) and key.raw_value.key_size >= 2048)
    except Exception:  # noqa: BLE001 - one broken entry must not hide the others
        return None
    return key if fits else None
