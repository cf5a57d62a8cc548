"""What a provider, or an app without a preset, may say about doing things its own way. One schema for both.

Every field has its standard as the default; only the written fields count.
"""

import dataclasses
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from oauthbroker.model.provider_habits import (
    AccessExchange,
    ErrorWord,
    Habits,
    IdTokenAlgorithm,
    LifetimeForm,
    Revocation,
    TokenMember,
)
from oauthbroker.providers.quirk_values import (
    CodeParam,
    GrantType,
    Headers,
    Issuer,
    KeptMember,
    Member,
    Members,
    OkValue,
    OurParam,
    OwnParam,
    RevokeHeaders,
    RevokeText,
    Scheme,
    Scope,
    Scopes,
    Separator,
    TokenHeader,
    TokenParam,
    TokenType,
    ToolMember,
    Word,
    Year,
)


class Data(BaseModel):
    """camelCase, no unknown fields, no coercion."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, strict=True, defer_build=True)


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
    params: Annotated[dict[Member, RevokeText], Field(max_length=20)] = Field(default_factory=dict)
    headers: RevokeHeaders = Field(default_factory=dict)
    tokens: Literal["access", "refresh", "both"] = "both"
    ok_field: Member | Literal[""] = ""
    error_field: Member = "error"
    dead_words: Annotated[list[Word], Field(max_length=20)] = Field(default_factory=list)
    dead_statuses: Annotated[list[Annotated[int, Field(ge=400, le=499)]], Field(max_length=20)] = Field(
        default_factory=list
    )

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
        if self.kind == "own" and not self._has_the_token():
            raise PydanticCustomError("revoke_no_token", "no part of this request has the token")
        if self.kind == "own" and self.token_field in self.params:
            raise PydanticCustomError("revoke_param", "this member has the token")
        return self

    def _has_the_token(self) -> bool:
        texts = (*self.headers.values(), *self.params.values())
        in_body = self.body != "none" and bool(self.token_field)
        return in_body or self.authenticate == "bearer" or any("{token}" in text for text in texts)

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
    grant_type: GrantType
    token_param: TokenParam = "access_token"

    def way(self) -> AccessExchange:
        return AccessExchange(**self.model_dump())


class RefreshWithQuirk(Data):
    """As `AccessExchange`, in place of a refresh token: a GET of `endpoints.refreshUrl`."""

    token: Literal["access"]
    grant_type: GrantType
    min_age_seconds: Annotated[int, Field(ge=0, le=2_592_000)] = 0

    def way(self) -> AccessExchange:
        return AccessExchange(**self.model_dump(exclude={"token"}))


class Quirks(Data):
    """The names are those of `apps.Habits`."""

    scope_separator: Separator = " "
    answer_scope_separator: Separator | None = None
    scope_param: Member = "scope"
    param_names: dict[OurParam, OwnParam] = Field(default_factory=dict)
    code_param: CodeParam = "code"
    always_scopes: Scopes = Field(default_factory=list)
    scope_aliases: Annotated[dict[Scope, Scope], Field(max_length=200)] = Field(default_factory=dict)
    scope_prefixes: Annotated[list[Scope], Field(max_length=20)] = Field(default_factory=list)
    unlisted_scopes: Scopes = Field(default_factory=list)
    extra_scopes: Literal["reject", "ignore"] = "reject"
    scopeless: bool = False
    token_request_format: Literal["form", "json", "query"] = "form"
    token_headers: Headers = Field(default_factory=dict)
    refresh_scope: Literal["omit", "send"] = "omit"
    second_exchange: SecondExchangeQuirk | None = None
    refresh_with: RefreshWithQuirk | None = None
    token_response_format: Literal["json", "form", "list"] = "json"
    token_path: Members = Field(default_factory=list)
    refresh_token_path: Members | None = None
    token_names: dict[TokenMember, Member] = Field(default_factory=dict)
    token_type_aliases: Annotated[list[TokenType], Field(max_length=20)] = Field(default_factory=list)
    token_type_optional: bool = False
    lifetime_field: Member = "expires_in"
    lifetime_form: LifetimeForm = "seconds"
    default_lifetime_seconds: Year | None = None
    refresh_token_end_field: Member | None = None
    refresh_token_days: Annotated[int, Field(ge=1, le=3650)] | None = None
    error_members: Members = Field(default_factory=list)
    ok_members: Annotated[dict[Member, OkValue], Field(max_length=5)] = Field(default_factory=dict)
    error_words: Annotated[dict[Word, ErrorWord], Field(max_length=50)] = Field(default_factory=dict)
    id_token_algorithms: Annotated[list[IdTokenAlgorithm], Field(min_length=1)] = Field(
        default_factory=lambda: list(Habits().id_token_algorithms)
    )
    issuer_template: Issuer | None = None
    issuer_promised: bool = False
    user_info_method: Literal["GET", "POST"] = "GET"
    user_info_body: Annotated[dict[Member, Annotated[str, Field(max_length=4096)]], Field(max_length=20)] = Field(
        default_factory=dict
    )
    user_info_headers: Headers = Field(default_factory=dict)
    user_info_kind: Literal["oidc", "own"] = "oidc"
    user_info_token_scheme: Scheme | None = None
    token_header: TokenHeader | None = None
    token_scheme: Scheme | None = None
    api_headers: Headers = Field(default_factory=dict)
    keeps: Annotated[list[KeptMember], Field(max_length=20)] = Field(default_factory=list)
    tool_data: Annotated[list[ToolMember], Field(max_length=20)] = Field(default_factory=list)
    revoke: RevocationQuirk | None = None

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        """Raises PydanticCustomError for two parameters of one name, and for two members of a token answer."""
        names = [name.lower() for name in (*self.param_names.values(), self.scope_param)]
        if len({*names}) < len(names):
            raise PydanticCustomError("param_twice", "two parameters of one name")
        members = [self.token_names.get(member, member) for member in get_args(TokenMember)]
        if len({*members}) < len(members):
            raise PydanticCustomError("token_member_twice", "two members of one name")
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
