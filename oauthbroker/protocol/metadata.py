"""Parse what a provider publishes: its metadata (OpenID Connect Discovery 1.0 section 4, RFC 8414) and its keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from joserfc.jwk import ECKey, Key, OKPKey, RSAKey, import_key

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.strict_json import Json, decode_object
from oauthbroker.model.apps import Endpoints
from oauthbroker.protocol.answers import refuse_if_busy
from oauthbroker.protocol.crash_guard import judge
from oauthbroker.protocol.messages import ProviderResponse

_NAMES = {
    "authorization_url": "authorization_endpoint",
    "token_url": "token_endpoint",
    "revoke_url": "revocation_endpoint",
    "user_info_url": "userinfo_endpoint",
    "jwks_url": "jwks_uri",
    "device_authorization_url": "device_authorization_endpoint",
    "pushed_authorization_url": "pushed_authorization_request_endpoint",
}
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


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    """The parts of the document that we use. `issuer_promised`: every authorization response carries `iss` (RFC 9207
    section 3). `push_required`: only pushed authorization requests are accepted (RFC 9126 section 5). `s256`: the
    listed PKCE methods include S256, or none are listed."""

    endpoints: Endpoints
    issuer_promised: bool
    push_required: bool
    s256: bool


def metadata_addresses(issuer: str) -> tuple[str, str]:
    """Return the addresses of the document: OIDC appends to the issuer's path, RFC 8414 section 3.1 inserts before
    it."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    oidc = f"{path}/.well-known/openid-configuration"
    oauth = f"/.well-known/oauth-authorization-server{path}"
    return (
        urlunsplit((parts.scheme, parts.netloc, oidc, "", "")),
        urlunsplit((parts.scheme, parts.netloc, oauth, "", "")),
    )


@judge(Code.APP_MISCONFIGURED)
def metadata_response(issuer: str, issuer_template: str, answer: ProviderResponse) -> ProviderMetadata:
    """Validate the document: (1) it exists (2) it names this issuer (3) its endpoints are texts.

    Raises `appMisconfigured`, for (2) as `WrongIssuer`; `providerUnreachable` or `providerRateLimited` when a retry may
    help. The transport decides whether an address may be used.
    """
    refuse_if_busy(answer)
    if answer.status != 200:  # (1)
        raise _refused("no metadata at the issuer")
    document = decode_object(answer.body, Code.APP_MISCONFIGURED)
    if not _is_issuer(document.get("issuer"), issuer, issuer_template):  # (2)
        raise WrongIssuer(document.get("issuer"))
    found = {slot: _address(document, name) for slot, name in _NAMES.items()}  # (3)
    methods = document.get("code_challenge_methods_supported")
    s256 = not isinstance(methods, list) or "S256" in methods
    promised = document.get("authorization_response_iss_parameter_supported") is True
    push_required = document.get("require_pushed_authorization_requests") is True
    return ProviderMetadata(Endpoints(issuer=issuer, **found), promised, push_required, s256)


def _is_issuer(said: Json, issuer: str, template: str) -> bool:
    """Tell whether the issuer matches byte for byte. A multi-tenant provider may give its template instead, with a
    placeholder of its own."""
    if said == issuer:
        return True
    return bool(template) and isinstance(said, str) and _masked(said) == _masked(template)


def _masked(text: str) -> str:
    return re.sub(r"\{[^{}]*\}", "{}", text)


def _address(document: Mapping[str, Json], name: str) -> str:
    value = document.get(name, "")
    if not isinstance(value, str):
        raise _refused("the metadata has an endpoint that is not an address")
    return value


def _refused(note: str) -> BrokerError:
    return BrokerError(Code.APP_MISCONFIGURED, note=note)


@judge(Code.APP_MISCONFIGURED)
def keys_response(answer: ProviderResponse) -> tuple[Key, ...]:
    """Return the public signing keys of a JWK Set, in its order. An entry that cannot be read is skipped.

    Raises `appMisconfigured` when there is no key set, `providerUnreachable` or `providerRateLimited` when a retry may
    help. The media type is not checked, because nothing depends on it.
    """
    refuse_if_busy(answer)
    entries = decode_object(answer.body, Code.APP_MISCONFIGURED).get("keys") if answer.status == 200 else None
    if not isinstance(entries, list):
        raise BrokerError(Code.APP_MISCONFIGURED, note="no key set at its address")
    keys = (_usable(entry) for entry in entries[:MAX_KEYS])
    return tuple(key for key in keys if key is not None)


def _usable(entry: Json) -> Key | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    kty = entry.get("kty")
    members = _PUBLIC.get(kty) if isinstance(kty, str) else None
    if members is None:  # symmetric keys too: they are not public
        return None
    try:
        key = import_key({name: entry[name] for name in members if name in entry})
        fits = isinstance(key, ECKey | OKPKey) or (isinstance(key, RSAKey) and key.raw_value.key_size >= 2048)
    except Exception:  # noqa: BLE001 - one broken entry must not hide the others
        return None
    return key if fits else None
