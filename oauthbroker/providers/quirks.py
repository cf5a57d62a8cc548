"""What a provider, or an app without a preset, may say about doing things its own way. One schema for both.

Every field has its standard as the default; only the written fields count.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated, Any, Final, Literal, LiteralString, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from oauthbroker.core.header_names import carries_tokens, spelled_text
from oauthbroker.core.secret import is_named_like_a_secret
from oauthbroker.model.provider_habits import (
    NOT_BEARER,
    OUR_HEADERS,
    AccessExchange,
    ErrorWord,
    Habits,
    IdTokenAlgorithm,
    LifetimeForm,
    Revocation,
    TokenMember,
)

SCOPE = r"[\x21\x23-\x5b\x5d-\x7e]{1,256}"  # RFC 6749 section 3.3
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")  # field-name, RFC 9110 section 5.1


class Data(BaseModel):
    """camelCase, no unknown fields, no coercion."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, strict=True, defer_build=True)


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
_OurParam = Literal["client_id", "client_secret", "code", "redirect_uri", "refresh_token"]
_MEMBER = r"(?!.{65})[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"  # or a path to it
Member = Annotated[str, _matching(_MEMBER, "member_name", "not a member's name")]
_OwnParam = Annotated[Member, AfterValidator(_own_param)]
_OkValue = Annotated[bool | int | str, BeforeValidator(_ok_value)]
_Scheme = Annotated[str, _matching(r"[A-Za-z0-9_.-]{0,64}", "scheme", "not a scheme of Authorization")]
_GrantType = Annotated[str, _matching(r"[a-z][a-z0-9_]{0,63}", "grant_type", "not a grant type of a provider's own")]
_TokenParam = Annotated[
    str, _matching(r"(?!client_|grant_type$)[A-Za-z0-9_]{1,64}", "token_param", "not a parameter for the token")
]
_Word = Annotated[str, _matching(r"[!-~](?:[ -~]{0,78}[!-~])?", "error_word", "not an error word")]
_Members = Annotated[list[Member], Field(max_length=20)]
_Scope = Annotated[str, _matching(SCOPE, "scope", "not a scope")]
_Scopes = Annotated[list[_Scope], Field(max_length=200)]
_HeaderName = Annotated[str, AfterValidator(_header)]
_HeaderValue = Annotated[
    str, _matching(r"[\x21-\x7e]([\x20-\x7e]{0,510}[\x21-\x7e])?", "header_value", "not a header's value")
]
Headers = Annotated[dict[_HeaderName, _HeaderValue], Field(max_length=20)]
_Issuer = Annotated[str, _matching(r"https://[A-Za-z0-9._~:/{}-]{1,512}", "issuer_template", "not an issuer")]
_Separator = Literal[" ", ",", ", ", ";", "|"]
_Year = Annotated[int, Field(ge=1, le=31_536_000)]


def _reach_of(written: dict[str, Any]) -> Literal["grant", "none"]:
    return "none" if written.get("kind") == "none" else "grant"


class RevocationQuirk(Data):
    """As `Revocation`. What only an `own` way needs is refused elsewhere, so that a typing error is noticed."""

    kind: Literal["rfc7009", "own", "none"] = "rfc7009"
    reach: Literal["token", "grant", "none"] = Field(default_factory=_reach_of)
    method: Literal["POST", "DELETE", "GET"] = "POST"
    authenticate: Literal["client", "basic", "bearer", "none"] = "client"
    body: Literal["form", "json", "none"] = "form"
    token_field: Member = "token"
    params: Annotated[dict[Member, str], Field(max_length=20)] = Field(default_factory=dict)
    headers: Headers = Field(default_factory=dict)
    tokens: Literal["access", "refresh", "both"] = "both"
    ok_field: Member | Literal[""] = ""
    error_field: Member = "error"
    dead_words: Annotated[list[str], Field(max_length=20)] = Field(default_factory=list)
    dead_statuses: Annotated[list[int], Field(max_length=20)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        """Raises PydanticCustomError for what could never work, or would be ignored."""
        said = self.model_fields_set - {"kind", "reach"}
        if self.kind == "none" and (said or self.reach != "none"):
            raise PydanticCustomError("revoke_none", "none means reach none and nothing else")
        if self.kind == "rfc7009" and said - {"tokens", "dead_words", "dead_statuses", "error_field"}:
            raise PydanticCustomError("revoke_rfc7009", "RFC 7009 leaves nothing of that to say; write kind: own")
        if self.kind != "none" and self.reach == "none":
            raise PydanticCustomError("revoke_reach", "a way to revoke that ends nothing is none")
        if self.kind == "own" and self.method == "GET" and self.body != "none":
            raise PydanticCustomError("revoke_get", "a GET has no body")
        if self.kind == "own" and self.body == "none" and {"token_field", "params"} & said:
            raise PydanticCustomError("revoke_body", "nothing can be put into a body that is not there")
        return self

    def way(self) -> Revocation:
        return Revocation(
            **self.model_dump(exclude={"dead_words", "dead_statuses"}),
            dead_words=tuple(self.dead_words),
            dead_statuses=tuple(self.dead_statuses),
        )


class SecondExchangeQuirk(Data):
    """As `AccessExchange`, after the consent."""

    url: Annotated[str, Field(max_length=512)]
    method: Literal["GET", "POST"] = "GET"
    grant_type: _GrantType
    token_param: _TokenParam = "access_token"

    def way(self) -> AccessExchange:
        return AccessExchange(**self.model_dump())


class RefreshWithQuirk(Data):
    """As `AccessExchange`, in place of a refresh token: a GET of `endpoints.refreshUrl`."""

    token: Literal["access"]
    grant_type: _GrantType
    min_age_seconds: Annotated[int, Field(ge=0, le=2_592_000)] = 0

    def way(self) -> AccessExchange:
        return AccessExchange(**self.model_dump(exclude={"token"}))


class Quirks(Data):
    """The names are those of `apps.Habits`."""

    scope_separator: _Separator = " "
    answer_scope_separator: _Separator | None = None
    scope_param: Member = "scope"
    param_names: dict[_OurParam, _OwnParam] = Field(default_factory=dict)
    code_param: Annotated[Member, AfterValidator(_code_param)] = "code"
    always_scopes: _Scopes = Field(default_factory=list)
    scope_aliases: Annotated[dict[_Scope, _Scope], Field(max_length=200)] = Field(default_factory=dict)
    scope_prefixes: Annotated[list[str], Field(max_length=20)] = Field(default_factory=list)
    unlisted_scopes: _Scopes = Field(default_factory=list)
    extra_scopes: Literal["reject", "ignore"] = "reject"
    scopeless: bool = False
    token_request_format: Literal["form", "json", "query"] = "form"
    token_headers: Headers = Field(default_factory=dict)
    refresh_scope: Literal["omit", "send"] = "omit"
    second_exchange: SecondExchangeQuirk | None = None
    refresh_with: RefreshWithQuirk | None = None
    token_response_format: Literal["json", "form", "list"] = "json"
    token_path: _Members = Field(default_factory=list)
    refresh_token_path: _Members | None = None
    token_names: dict[TokenMember, Member] = Field(default_factory=dict)
    token_type_aliases: Annotated[list[Annotated[str, AfterValidator(_bearer_alias)]], Field(max_length=20)] = Field(
        default_factory=list
    )
    token_type_optional: bool = False
    lifetime_field: Member = "expires_in"
    lifetime_form: LifetimeForm = "seconds"
    default_lifetime_seconds: _Year | None = None
    refresh_token_end_field: Member | None = None
    refresh_token_days: Annotated[int, Field(ge=1, le=3650)] | None = None
    error_members: _Members = Field(default_factory=list)
    ok_members: Annotated[dict[Member, _OkValue], Field(max_length=5)] = Field(default_factory=dict)
    error_words: Annotated[dict[_Word, ErrorWord], Field(max_length=50)] = Field(default_factory=dict)
    id_token_algorithms: Annotated[list[IdTokenAlgorithm], Field(min_length=1)] = Field(
        default_factory=lambda: list(Habits().id_token_algorithms)
    )
    issuer_template: _Issuer | None = None
    issuer_promised: bool = False
    user_info_method: Literal["GET", "POST"] = "GET"
    user_info_body: Annotated[dict[Member, str], Field(max_length=20)] = Field(default_factory=dict)
    user_info_headers: Headers = Field(default_factory=dict)
    user_info_kind: Literal["oidc", "own"] = "oidc"
    user_info_token_scheme: _Scheme | None = None
    token_header: Annotated[str, AfterValidator(_token_header)] | None = None
    token_scheme: _Scheme | None = None
    api_headers: Headers = Field(default_factory=dict)
    keeps: _Members = Field(default_factory=list)
    tool_data: Annotated[list[Annotated[Member, AfterValidator(_tool_member)]], Field(max_length=20)] = Field(
        default_factory=list
    )
    revoke: RevocationQuirk | None = None

    @model_validator(mode="after")
    def _names_each_parameter_once(self) -> Self:
        """Raises PydanticCustomError for two parameters of one name."""
        names = [name.lower() for name in (*self.param_names.values(), self.scope_param)]
        if len({*names}) < len(names):
            raise PydanticCustomError("param_twice", "two parameters of one name")
        return self

    def over(self, habits: Habits) -> Habits:
        """`habits` with everything that was written here in its place."""
        names = self.model_fields_set & set(Habits.__slots__)
        said = {name: _settled(value) for name in names if (value := getattr(self, name)) is not None}
        return dataclasses.replace(habits, **said)


def _settled(value: Any) -> Any:
    if isinstance(value, SecondExchangeQuirk | RefreshWithQuirk):
        return value.way()
    return tuple(value) if isinstance(value, list) else dict(value) if isinstance(value, dict) else value


def quirks_of(habits: Habits) -> list[str]:
    """Return the names of the quirks that are not the standard's, as they are written."""
    names = (name for name in Quirks.model_fields if name in Habits.__slots__)
    return sorted(to_camel(name) for name in names if getattr(habits, name) != getattr(_STANDARD, name))


_STANDARD: Final = Habits()
