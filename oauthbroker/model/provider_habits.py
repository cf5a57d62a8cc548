"""The habits of a provider: where it leaves the standards, and how it revokes tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.core.secret import Secret

Pkce = Literal["supported", "ignored", "unknown", "refused"]
LifetimeForm = Literal[
    "seconds", "milliseconds", "minutes", "hours", "epochSeconds", "epochMilliseconds", "iso", "date", "none"
]
TokenMember = Literal["access_token", "refresh_token", "id_token", "token_type", "scope"]
ErrorWord = Literal[
    "access_denied", "invalid_client", "invalid_grant", "invalid_request", "invalid_scope", "invalid_target",
    "server_error", "temporarily_unavailable", "unauthorized_client", "unsupported_grant_type",
]  # fmt: skip
IdTokenAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"
]
# What says who we are, what the body is, or where it goes: no quirk may say it.
OUR_HEADERS = frozenset(
    {"authorization", "accept-encoding", "connection", "content-length", "content-type", "cookie", "host", "te",
     "transfer-encoding", "upgrade"}
)  # fmt: skip

# Token types that never work as Bearer, also where a profile calls them so: bound to a key (RFC 9449, the drafts of MAC
# and of proof of possession), or no access token at all (`N_A` of a token exchange). In lower case.
NOT_BEARER = frozenset({"dpop", "mac", "n_a", "pop"})


@dataclass(frozen=True, slots=True)
class Revocation:
    """How a token is revoked at a provider, and what `reach` it has: that token, the whole grant (everything that the
    user gave this client), or none.

    `rfc7009` is a form POST by the client; `own` is a request that the other fields describe. `{client_id}` is filled
    into the endpoint's address, `{client_secret}` and `{token}` into `params` and `headers`. `tokens` are the accepted
    kinds. An answer is a success by its status and, where `ok_field` is set, by that member being true; `dead_words`
    (in the member `error_field`) and `dead_statuses` are refusals that say the token was dead already.
    """

    kind: Literal["rfc7009", "own", "none"] = "rfc7009"
    reach: Literal["token", "grant", "none"] = "grant"
    _: KW_ONLY
    method: Literal["POST", "DELETE", "GET"] = "POST"
    authenticate: Literal["client", "basic", "bearer", "none"] = "client"
    body: Literal["form", "json", "none"] = "form"
    token_field: str = "token"
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    tokens: Literal["access", "refresh", "both"] = "both"
    ok_field: str = ""
    error_field: str = "error"
    dead_words: tuple[str, ...] = ()
    dead_statuses: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessExchange:
    """A request that exchanges an access token for a later one: once after the consent, to `url` and with the client's
    id and secret; or as the provider's way to refresh, to the refresh endpoint, once the token is old enough. The
    members are those of the query of a GET, or of a POST's form."""

    url: str = ""
    method: Literal["GET", "POST"] = "GET"
    grant_type: str
    token_param: str = "access_token"
    min_age_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What a provider does its own way. The defaults are the standards; docs/providers.md has every word. `pkce` is
    sent unless an app says `refused`, which no preset can."""

    scope_separator: str = " "
    answer_scope_separator: str = ""
    scope_param: str = "scope"
    param_names: Mapping[str, str] = field(default_factory=dict)
    code_param: str = "code"
    pkce: Pkce = "unknown"
    always_scopes: tuple[str, ...] = ()
    scope_aliases: Mapping[str, str] = field(default_factory=dict)
    unlisted_scopes: tuple[str, ...] = ()
    extra_scopes: Literal["reject", "ignore"] = "reject"
    scopeless: bool = False
    token_request_format: Literal["form", "json", "query"] = "form"
    token_headers: Mapping[str, str] = field(default_factory=dict)
    token_path: tuple[str, ...] = ()
    refresh_token_path: tuple[str, ...] | None = None
    token_names: Mapping[TokenMember, str] = field(default_factory=dict)
    issuer_template: str = ""
    issuer_promised: bool = False
    token_response_format: Literal["json", "form", "list"] = "json"
    token_type_aliases: tuple[str, ...] = ()
    token_type_optional: bool = False
    lifetime_field: str = "expires_in"
    lifetime_form: LifetimeForm = "seconds"
    error_members: tuple[str, ...] = ()
    ok_members: Mapping[str, bool | int | str] = field(default_factory=dict)
    error_words: Mapping[str, ErrorWord] = field(default_factory=dict)
    default_lifetime_seconds: int | None = None
    refresh_token_end_field: str = ""
    refresh_token_days: int | None = None
    id_token_algorithms: tuple[IdTokenAlgorithm, ...] = ("RS256", "ES256", "PS256", "EdDSA")
    keeps: tuple[str, ...] = ()
    tool_data: tuple[str, ...] = ()
    authorize_params: Mapping[str, str] = field(default_factory=dict)
    token_params: Mapping[str, str] = field(default_factory=dict)
    refresh_params: Mapping[str, str] = field(default_factory=dict)
    refresh_scope: Literal["omit", "send"] = "omit"
    second_exchange: AccessExchange | None = None
    refresh_with: AccessExchange | None = None
    user_info_method: Literal["GET", "POST"] = "GET"
    user_info_body: Mapping[str, str] = field(default_factory=dict)
    user_info_headers: Mapping[str, str] = field(default_factory=dict)
    user_info_kind: Literal["oidc", "own"] = "oidc"
    user_info_token_scheme: str | None = None
    token_header: str = ""
    token_scheme: str | None = None
    api_headers: Mapping[str, str] = field(default_factory=dict)

    def headers_for_api(self, client_id: str) -> list[tuple[bytes, bytes]]:
        """Return the headers that the provider's API wants beside the token."""
        filled = {name: value.replace("{client_id}", client_id) for name, value in self.api_headers.items()}
        return [(name.encode("ascii"), value.encode("ascii")) for name, value in filled.items()]

    def token_proof(self, token: Secret, *, at_user_info: bool = False) -> tuple[str, Secret]:
        """Return the header that carries a token to the provider's API, and its value (RFC 6750 section 2.1). A header
        that is not `Authorization` has the bare token, unless a scheme is written for it."""
        scheme = self.user_info_token_scheme if at_user_info else None
        if scheme is None:
            scheme = self.token_scheme
        if scheme is None:
            scheme = "" if self.token_header else "Bearer"
        return self.token_header or "Authorization", Secret(f"{scheme} {token.reveal()}") if scheme else token
