"""The token endpoint (RFC 6749 sections 4.1.3 and 5): build requests, validate answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NoReturn

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import Json
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.model.provider_habits import NOT_BEARER
from oauthbroker.protocol.answer_checks import asks_to_slow_down, refuse_if_busy
from oauthbroker.protocol.client_auth import PASSING, authenticated_post, refusal_note
from oauthbroker.protocol.issued_tokens import IssuedTokens
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse, Value, with_headers
from oauthbroker.protocol.network.crash_guard import crashed, validator
from oauthbroker.protocol.refresh_token_end import stated_ends
from oauthbroker.protocol.token_fields import (
    FORM,
    YEAR_SECONDS,
    body_members,
    check_usable_as_bearer,
    error_word,
    facts_of,
    lifetime_of,
    optional_token,
    refusal_word,
    scopes_of,
    states_lifetime,
    tells_error,
    text_of,
    token_members,
)
from oauthbroker.protocol.unusual_answers import SUCCESSES, Unusual, unusual_members
from oauthbroker.records import Token
from oauthbroker.records.refresh_end import NO_ENDS, StatedEnds

_RESERVED = frozenset({
    "grant_type", "code", "redirect_uri", "code_verifier", "client_id", "client_secret", "client_assertion",
    "client_assertion_type", "refresh_token", "scope", "resource",
})  # fmt: skip

# The known error words, which a profile may map to. Any other word is a plain refusal. The provider's own text is not
# passed on.
_OPERATOR = frozenset({"unauthorized_client", "unsupported_grant_type", "invalid_target"})
_BOUND = frozenset({"invalid_dpop_proof", "use_dpop_nonce"})  # RFC 9449 sections 5 and 8
BOUND = "the provider gives this client only tokens that are bound to a key (DPoP)"
GONE = "invalid_grant"
CLIENT_REFUSED = "invalid_client"
CLIENT_UNKNOWN = "the provider does not know this client"
_KNOWN = _OPERATOR | PASSING | {GONE, CLIENT_REFUSED, "invalid_request", "invalid_scope", "access_denied"}


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class TokenResponse:
    """A valid token response.

    `token_type` is always "bearer". `lifetime_seconds` counts from the sending of the request; 0 is "expired now", None
    is "unknown"; `end_stated` tells that the answer itself states it. `scopes` is None when the provider did not send
    any. `ends` are those that it states, of refresh token and consent. `facts` is the rest of the answer without
    members that look like secrets, for identity templates and `keeps`. `unusual` names what the operator is to be told
    of.
    """

    access_token: Secret
    token_type: str
    refresh_token: Secret | None
    lifetime_seconds: int | None
    scopes: tuple[str, ...] | None
    id_token: Secret | None
    facts: Mapping[str, Json] = field(default_factory=dict)
    end_stated: bool = False
    unusual: tuple[Unusual, ...] = ()
    ends: StatedEnds = NO_ENDS

    @property
    def issued(self) -> IssuedTokens:
        """Return the tokens to revoke if the answer is not kept."""
        return IssuedTokens.of(self.refresh_token, self.access_token)

    def token(self, sent_at: datetime, refresh_token: Secret | None) -> Token:
        """Return the token to store, beside the `refresh_token` of the grant. Its lifetime counts from `sent_at`."""
        lifetime = self.lifetime_seconds
        return Token(
            access_token=self.access_token,
            token_type=self.token_type,
            refresh_token=refresh_token,
            expires_at=None if lifetime is None else sent_at + timedelta(seconds=lifetime),
            lifetime_seconds=lifetime,
            end_stated=self.end_stated,
        )

    def __repr__(self) -> str:
        return "TokenResponse(...)"


class RefusedTokens(BrokerError):
    """A refused answer contained usable tokens, which are to be revoked."""

    def __init__(self, code: Code, issued: IssuedTokens, *, note: str = "") -> None:
        super().__init__(code, note=note)
        self.issued = issued

    @property
    def tokens(self) -> tuple[Secret, ...]:
        """Return the tokens to revoke, in order."""
        return self.issued.secrets


def code_request(app: App, endpoints: Endpoints, code: Secret, verifier: Secret, *, clock: Clock) -> ProviderRequest:
    """Build the code exchange (RFC 6749 section 4.1.3, RFC 7636 section 4.5, RFC 8707). `clock` dates a client
    assertion.

    The app's own extra parameters never override ours. Raises `appMisconfigured`.
    """
    form: dict[str, Value] = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": app.redirect.uri_name or app.redirect.uri,
    }
    if app.habits.pkce != "refused":
        form["code_verifier"] = verifier
    return token_request(app, endpoints, endpoints.token_url, form, app.habits.token_params, clock)


def token_request(
    app: App, endpoints: Endpoints, url: str, form: Mapping[str, Value], extra: Mapping[str, str], clock: Clock
) -> ProviderRequest:
    """Complete a token request of any grant type: `extra` (never overrides ours), RFC 8707 `resource`, client
    authentication, the formats of both bodies, and the provider's own headers. Raises `appMisconfigured`."""
    members: dict[str, Value] = {name: value for name, value in extra.items() if name not in _RESERVED}
    members |= form
    if app.resource:
        members["resource"] = app.resource
    request = authenticated_post(app, endpoints, url, members, clock)
    accept = FORM if app.habits.token_response_format == "form" else request.accept
    request = replace(request, accept=accept, encoding=app.habits.token_request_format)
    if request.encoding == "query":
        request = replace(request, method="GET")
    return with_headers(request, app.habits.token_headers, app.client.client_id)


def token_response(app: App, answer: ProviderResponse, *, refreshed: bool = False) -> TokenResponse:
    """Validate an answer as `_tokens` does. A refusal without tokens whose words ask to slow down is a rate limit,
    with any status: `providerRateLimited`."""
    try:
        return _tokens(app, answer, refreshed=refreshed)
    except RefusedTokens:
        raise
    except BrokerError as error:
        refused = error
    if refused.code is not Code.PROVIDER_RATE_LIMITED and answer.status < 500 and _is_limit(app, answer):
        refused = BrokerError(
            Code.PROVIDER_RATE_LIMITED, note="a rate limit in other words", retry_after_seconds=answer.retry_after
        )
    raise refused.with_traceback(None)  # its frames hold the answer


def _is_limit(app: App, answer: ProviderResponse) -> bool:
    if answer.status in SUCCESSES:  # an answer that may hold tokens is none: a scope may have such a name
        names = ("access_token", "refresh_token", *app.habits.token_names.values())
        if any(name.encode() in answer.body for name in names):
            return False
    return asks_to_slow_down(answer)


@validator(Code.TOKEN_RESPONSE_INVALID)
def _tokens(app: App, answer: ProviderResponse, *, refreshed: bool) -> TokenResponse:
    """Validate an answer of the token endpoint; `refreshed`: to a refresh (cases 19 to 31). An unusual status, label,
    encoding or lifetime is a mark of the result; nothing that was issued is thrown away for it.

    (1) busy or down (2) status 200 to 203 (3) format (4) no error member (5) an access token (6) its type
    (7) its lifetime (8) its scopes.

    Raises `providerRateLimited`, `providerUnreachable`, `appMisconfigured`, `exchangeFailed` (its note is the RFC's
    error word, if there was one), `tokenResponseInvalid`; from (6) on as `RefusedTokens`. Nothing else.
    """
    refuse_if_busy(answer)  # (1)
    if answer.status not in SUCCESSES:  # (2)
        _raise_error_word(app, refusal_word(app, answer), answer.status)
    members, unusual = _members(app, answer)  # (3)
    if tells_error(app, members):  # (4)
        _raise_error_word(app, error_word(app, members), answer.status)
    found = token_members(app, members, refreshed=refreshed)
    access = optional_token(found, "access_token")  # (5)
    if access is None:
        raise BrokerError(Code.TOKEN_RESPONSE_INVALID, note="no access token")
    refresh: Secret | None = None
    try:
        refresh = optional_token(found, "refresh_token")
        id_token = optional_token(found, "id_token") or optional_token(members, "id_token")
        check_usable_as_bearer(app, members, refreshed=refreshed)  # (6)
        _check_type(app, text_of(found, "token_type"))
        lifetime, end_stated, is_odd = _lifetime(app, found, answer.date)  # (7)
        scopes = scopes_of(app, found)  # (8)
        facts = facts_of(app, members)
    except BrokerError as error:
        refused = error
    except Exception as error:  # noqa: BLE001 - the tokens that came along must not be lost with it
        refused = crashed(error)
    else:
        return TokenResponse(
            access_token=access,
            token_type="bearer",
            refresh_token=refresh,
            lifetime_seconds=lifetime,
            scopes=scopes,
            id_token=id_token,
            facts=facts,
            end_stated=end_stated,
            unusual=(*unusual, "lifetime") if is_odd else unusual,
            ends=stated_ends(app, found),
        )
    raise RefusedTokens(refused.code, IssuedTokens.of(refresh, access), note=refused.note)


def _members(app: App, answer: ProviderResponse) -> tuple[dict[str, Json], tuple[Unusual, ...]]:
    """Return the answer's members, and the unusual parts of its form. Raises `tokenResponseInvalid`."""
    status: tuple[Unusual, ...] = () if answer.status == 200 else ("status",)
    try:
        return body_members(app, answer), status
    except BrokerError as error:
        refused = error
    found = unusual_members(app, answer)
    if found is None:
        raise refused.with_traceback(None)  # its frames hold the answer
    return found[0], (*status, *found[1])


def _lifetime(app: App, members: Mapping[str, Json], date: datetime | None) -> tuple[int | None, bool, bool]:
    """Return the lifetime, whether the answer states it, and whether the stated one is odd: not readable, then as if it
    were absent; not positive; or cut at a year."""
    try:
        seconds = lifetime_of(app, members, date)
    except BrokerError:
        return app.habits.default_lifetime_seconds, False, True
    if not states_lifetime(app, members):
        return seconds, False, False
    is_a_year = str(members[app.habits.lifetime_field]) == str(YEAR_SECONDS)
    return seconds, True, seconds == 0 or (seconds == YEAR_SECONDS and not is_a_year)


def _check_type(app: App, token_type: str | None) -> None:
    """Check the token type: required, case-insensitive (RFC 6749 section 5.1). Aliases of "bearer" must be in the
    app's profile."""
    if token_type is None:
        if app.habits.token_type_optional:
            return
        raise BrokerError(Code.TOKEN_RESPONSE_INVALID, note="no token type")
    is_alias = token_type in app.habits.token_type_aliases and token_type.strip().lower() not in NOT_BEARER
    if token_type.lower() != "bearer" and not is_alias:
        raise BrokerError(Code.TOKEN_RESPONSE_INVALID, note="a token type that was not asked for")


def _raise_error_word(app: App, word: str, status: int) -> NoReturn:
    """Raise the error of an answer with this word (RFC 6749 section 5.2)."""
    if word in _BOUND:
        raise BrokerError(Code.APP_MISCONFIGURED, note=BOUND)
    if word == CLIENT_REFUSED or (not word and status == 401):
        raise BrokerError(Code.APP_MISCONFIGURED, note=refusal_note(app, word or CLIENT_UNKNOWN))
    if not word:
        raise BrokerError(Code.TOKEN_RESPONSE_INVALID, note="neither a token nor an error")
    note = word if word in _KNOWN else "an error outside RFC 6749"
    if word in _OPERATOR or (status == 401 and word not in _KNOWN):
        raise BrokerError(Code.APP_MISCONFIGURED, note=note)
    if word in PASSING:
        raise BrokerError(Code.PROVIDER_UNREACHABLE, note=note)
    raise BrokerError(Code.EXCHANGE_FAILED, note=note)
