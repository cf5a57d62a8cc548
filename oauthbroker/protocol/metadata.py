"""A provider's metadata document (OpenID Connect Discovery 1.0 section 4, RFC 8414)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from oauthbroker.apps import Endpoints
from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.answers import refuse_if_busy
from oauthbroker.protocol.judging import judge
from oauthbroker.protocol.messages import Answer
from oauthbroker.strict_json import decode_object
from oauthbroker.turn import Json

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


class WrongIssuer(BrokerError):
    """The document names another issuer. `found` is that one, for an operator; empty if it is no address."""

    def __init__(self, said: Json) -> None:
        super().__init__(Code.APP_MISCONFIGURED, note="the metadata names another issuer")
        self.found = said if isinstance(said, str) and _ISSUER.fullmatch(said) else ""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What we use of it. `issuer_promised`: every authorization response carries `iss` (RFC 9207 section 3).
    `push_required`: only pushed authorization requests are taken (RFC 9126 section 5). `s256`: PKCE with S256 is
    among the methods it lists, or it lists none."""

    endpoints: Endpoints
    issuer_promised: bool
    push_required: bool
    s256: bool


def metadata_addresses(issuer: str) -> tuple[str, str]:
    """Where the document may lie: OIDC appends to the issuer's path, RFC 8414 section 3.1 inserts before it."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    oidc = f"{path}/.well-known/openid-configuration"
    oauth = f"/.well-known/oauth-authorization-server{path}"
    return (
        urlunsplit((parts.scheme, parts.netloc, oidc, "", "")),
        urlunsplit((parts.scheme, parts.netloc, oauth, "", "")),
    )


@judge(Code.APP_MISCONFIGURED)
def metadata_response(issuer: str, issuer_template: str, answer: Answer) -> Metadata:
    """Judges the document: (1) there is one (2) it names this very issuer (3) its endpoints are texts.

    Raises `appMisconfigured`, for (2) as `WrongIssuer`; `providerUnreachable` or `providerRateLimited` when asking
    again may help. Whether an address may be used is the transport's word.
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
    return Metadata(Endpoints(issuer=issuer, **found), promised, push_required, s256)


def _is_issuer(said: Json, issuer: str, template: str) -> bool:
    """Byte for byte. A provider of many tenants may say its template instead, with a placeholder of its own."""
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
