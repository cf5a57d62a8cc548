"""The values that a quirk may have: names, scopes, headers, words."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, LiteralString

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from oauthbroker.core.header_names import carries_tokens, spelled_text
from oauthbroker.core.secret import is_named_like_a_secret
from oauthbroker.model.provider_habits import NOT_BEARER, OUR_HEADERS

SCOPE = r"[\x21\x23-\x5b\x5d-\x7e]{1,256}"  # RFC 6749 section 3.3
LINE = r"^[^\x00-\x1f\x7f]+$"
AWS_HOST = r"^[a-z0-9-]+\.([a-z0-9-]+|\{[A-Za-z0-9]+\})\.amazonaws\.com(\.cn)?$"
ADDRESS = r"^https://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[!-~]*)?$"
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")  # field-name, RFC 9110 section 5.1


def _matching(pattern: str, kind: LiteralString, what: LiteralString) -> AfterValidator:
    """Accept a text that matches as a whole. Another one is an error of this type of pydantic's."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise PydanticCustomError(kind, what)
        return text

    return AfterValidator(check)


def _header(name: str) -> str:
    if not _HEADER.fullmatch(name) or spelled_text(name) in OUR_HEADERS:
        raise PydanticCustomError("header_name", "not a header that may be set")
    return name


def _token_header(name: str) -> str:
    if not _HEADER.fullmatch(name) or not carries_tokens(spelled_text(name).encode()):
        raise PydanticCustomError("token_header", "not a header for a token")
    return name


def _own_param(name: str) -> str:
    if name.lower() in OUR_PARAMS:
        raise PydanticCustomError("our_param", "a parameter that is ours to set")
    return name


def _code_param(name: str) -> str:
    return name if name == "code" else _own_param(name)


def _ok_value(value: Any) -> Any:
    if not isinstance(value, bool | int) and not (isinstance(value, str) and len(value) <= 64):
        raise PydanticCustomError("ok_value", "not a value that can be compared")
    return value


def _bearer_alias(word: str) -> str:
    if word.strip().lower() in NOT_BEARER:
        raise PydanticCustomError("bound_token", "a token of this type does not work as Bearer")
    return word


def _kept(name: str) -> str:
    if is_named_like_a_secret(name):
        raise PydanticCustomError("kept_secret", "named like a secret, which is not kept")
    return name


def _each_once(headers: dict[str, str]) -> dict[str, str]:
    if len({spelled_text(name) for name in headers}) < len(headers):
        raise PydanticCustomError("header_twice", "the same header twice")
    return headers


def _filling(*known: str) -> AfterValidator:
    """Accept a text whose `{names}` are all filled in. Another one would be sent as it is written."""

    def check(text: str) -> str:
        if {*_PLACEHOLDER.findall(text)} - {*known}:
            raise PydanticCustomError("placeholder", "a name in braces that is not filled in")
        return text

    return AfterValidator(check)


def _tool_member(name: str) -> str:
    """Return a member that every tool with a token may read: never one that is named like a secret."""
    if is_named_like_a_secret(name):
        raise PydanticCustomError("tool_data", "named like a secret, which no tool is told")
    return name


# Parameters that we set or read ourselves. No other one may go by such a name.
OUR_PARAMS = frozenset({
    "response_type", "client_id", "client_secret", "client_assertion", "client_assertion_type", "redirect_uri", "scope",
    "state", "nonce", "code", "code_challenge", "code_challenge_method", "code_verifier", "grant_type", "refresh_token",
    "device_code", "resource", "response_mode", "request", "request_uri", "dpop_jkt", "iss", "error",
    "error_description", "error_uri", "admin_consent", "setup_action", "hmac", "token",
})  # fmt: skip
OurParam = Literal["client_id", "client_secret", "code", "redirect_uri", "refresh_token"]
_MEMBER = r"(?!.{65})[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"  # or a path to it
Member = Annotated[str, _matching(_MEMBER, "member_name", "not a member's name")]
OwnParam = Annotated[Member, AfterValidator(_own_param)]
OkValue = Annotated[bool | int | str, BeforeValidator(_ok_value)]
Scheme = Annotated[str, _matching(r"[A-Za-z0-9_.-]{0,64}", "scheme", "not a scheme of Authorization")]
GrantType = Annotated[str, _matching(r"[a-z][a-z0-9_]{0,63}", "grant_type", "not a grant type of a provider's own")]
TokenParam = Annotated[
    str, _matching(r"(?!client_|grant_type$)[A-Za-z0-9_]{1,64}", "token_param", "not a parameter for the token")
]
Word = Annotated[str, _matching(r"[!-~](?:[ -~]{0,78}[!-~])?", "error_word", "not an error word")]
Members = Annotated[list[Member], Field(max_length=20)]
Scope = Annotated[str, _matching(SCOPE, "scope", "not a scope")]
Scopes = Annotated[list[Scope], Field(max_length=200)]
_HeaderName = Annotated[str, AfterValidator(_header)]
_HeaderValue = Annotated[
    str, _matching(r"[\x21-\x7e]([\x20-\x7e]{0,510}[\x21-\x7e])?", "header_value", "not a header's value")
]
_ClientHeader = Annotated[_HeaderValue, _filling("client_id")]
Headers = Annotated[dict[_HeaderName, _ClientHeader], Field(max_length=20), AfterValidator(_each_once)]
RevokeText = Annotated[str, Field(max_length=512), _filling("client_id", "client_secret", "token")]
_RevokeHeader = Annotated[_HeaderValue, _filling("client_id", "client_secret", "token")]
RevokeHeaders = Annotated[dict[_HeaderName, _RevokeHeader], Field(max_length=20), AfterValidator(_each_once)]
TokenType = Annotated[
    str,
    AfterValidator(_bearer_alias),
    _matching(r"[!-~](?:[ -~]{0,62}[!-~])?", "token_type", "not a token type"),
]
Issuer = Annotated[str, _matching(r"https://[A-Za-z0-9._~:/{}-]{1,512}", "issuer_template", "not an issuer")]
Separator = Literal[" ", ",", ", ", ";", "|"]
Year = Annotated[int, Field(ge=1, le=31_536_000)]


CodeParam = Annotated[Member, AfterValidator(_code_param)]
TokenHeader = Annotated[str, AfterValidator(_token_header)]
ToolMember = Annotated[Member, AfterValidator(_tool_member)]
KeptMember = Annotated[Member, AfterValidator(_kept)]
