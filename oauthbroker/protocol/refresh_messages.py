"""Refresh an access token (RFC 6749 section 6): build the request, and check from the answer if the refresh token
lives."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.protocol.answer_checks import is_json
from oauthbroker.protocol.authorization_request import requested_scopes
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse, Value
from oauthbroker.protocol.token_endpoint import GONE, RefusedTokens, TokenResponse, token_request, token_response
from oauthbroker.protocol.token_fields import error_word_of, optional_token, token_members
from oauthbroker.protocol.unusual_answers import SUCCESSES, salvaged_members

Ambiguity = Literal["", "token", "any"]
"""What a refusal may mean, beside what its code says. `token`: its words are about the refresh token or the request,
and leave open whether that token is dead; `any`: they may be about the token, our client, or a wall in front of the
provider. "" where the answer is plain, or says nothing of the token (a rate limit, 5xx, no answer)."""
_TOKEN_WORDS = frozenset({"invalid_token", "expired_token"})  # RFC 6750 section 3.1, RFC 8628 section 3.5
_EARLY = frozenset({408, 425})  # statuses that say nothing of the request


class RefreshRefused(BrokerError):
    """The provider answered without tokens that we accept. `spent`: the request may have used up the refresh token
    (RFC 9700 section 4.14.2). `spare` is the refresh token of a refused answer; it may be the only valid one.
    `access` is the access token of that answer, to be revoked. `reached` is false where no request was sent."""

    def __init__(
        self,
        code: Code,
        *,
        spent: bool,
        note: str = "",
        retry_after_seconds: int | None = None,
        spare: Secret | None = None,
        access: Secret | None = None,
        ambiguity: Ambiguity = "",
        reached: bool = True,
    ) -> None:
        super().__init__(code, note=note, retry_after_seconds=retry_after_seconds)
        self.spent = spent
        self.spare = spare
        self.access = access
        self.ambiguity = ambiguity
        self.reached = reached


def refresh_request(
    app: App, endpoints: Endpoints, refresh_token: Secret, *, clock: Clock, scopes: Sequence[str] = ()
) -> ProviderRequest:
    """Build the refresh request (RFC 6749 section 6), to the profile's `refreshUrl` where it has one.

    Sends no `scope`: the granted scopes stay, and several providers refuse a repeated list. `scopes` (the granted ones)
    are sent only where the profile says `refreshScope: send`. Raises `appMisconfigured`.
    """
    habits = app.habits
    form: dict[str, Value] = {"grant_type": "refresh_token", "refresh_token": refresh_token}
    if habits.refresh_scope == "send" and scopes:
        form["scope"] = habits.scope_separator.join(requested_scopes(app, scopes))
    url = endpoints.refresh_url or endpoints.token_url
    return token_request(app, endpoints, url, form, habits.refresh_params, clock)


def refresh_response(app: App, answer: ProviderResponse, *, worked: bool = False) -> TokenResponse:
    """Validate an answer to a refresh: as `token_response`, with codes that tell whether the refresh token is lost.

    `worked`: the same request has refreshed this grant before. Then `invalid_request` and `invalid_scope` cannot be
    about the request's form; several providers send them for a dead refresh token.

    Raises `RefreshRefused` and nothing else. Its codes:
    - `reauthRequired`: the refresh token is dead, by RFC 6749's or the provider's own error word
    - `exchangeFailed`: refused with an ambiguous error word, or none; the token may be dead
    - `appMisconfigured`: the refusal is about our client or our request, not about this grant
    - `providerRateLimited`, `providerUnreachable`: a rate limit and 503 have not touched the refresh token
    - `tokenResponseInvalid`: an answer that we do not understand, or tokens that we do not accept
    """
    try:
        return token_response(app, answer, refreshed=True)
    except RefusedTokens as refused:
        failed = RefreshRefused(
            refused.code, spent=True, note=refused.note, spare=_spare(app, answer), access=refused.tokens[-1]
        )
    except BrokerError as refused:
        failed = _validated(app, answer, refused, worked=worked)
        if answer.status in SUCCESSES and failed.spent and (spare := _spare(app, answer)) is not None:
            failed.spare, failed.ambiguity = spare, ""
    raise failed


def _spare(app: App, answer: ProviderResponse) -> Secret | None:
    """Return the refresh token in an otherwise invalid answer. A rotating provider has spent the old one, so the
    answer is read leniently. The old token is tried after it."""
    for members in salvaged_members(answer):
        with suppress(Exception):  # an answer that breaks its reader holds none
            if token := optional_token(token_members(app, members, refreshed=True), "refresh_token"):
                return token
    return None


def _validated(app: App, answer: ProviderResponse, refused: BrokerError, *, worked: bool) -> RefreshRefused:
    code, spent, status, note = refused.code, False, answer.status, refused.note
    ambiguity: Ambiguity = ""
    match code:
        case Code.EXCHANGE_FAILED if note == GONE:
            code = Code.REAUTH_REQUIRED
        case Code.EXCHANGE_FAILED if note in {"invalid_request", "invalid_scope"} and not worked:
            code, ambiguity = Code.APP_MISCONFIGURED, "any"
        case Code.EXCHANGE_FAILED:
            ambiguity = "token"
        case Code.APP_MISCONFIGURED:
            ambiguity = "token" if error_word_of(app, answer) in _TOKEN_WORDS else "any"
        case Code.TOKEN_RESPONSE_INVALID if status == 400 and (is_json(answer) or not answer.body):
            code, ambiguity = Code.EXCHANGE_FAILED, "token"
        case Code.TOKEN_RESPONSE_INVALID if 400 <= status < 500:  # perhaps sent by a proxy in front of the provider
            code, spent, ambiguity = Code.PROVIDER_UNREACHABLE, True, "" if status in _EARLY else "any"
        case Code.TOKEN_RESPONSE_INVALID:
            spent, ambiguity = True, "any"
        case Code.PROVIDER_UNREACHABLE if status >= 500 and error_word_of(app, answer) == GONE:
            code, ambiguity = Code.EXCHANGE_FAILED, "token"  # not the end at once: by its status the server failed
        case Code.PROVIDER_UNREACHABLE:
            spent = (status >= 500 and status != 503) or note == "server_error"
    return RefreshRefused(
        code, spent=spent, note=note, retry_after_seconds=refused.retry_after_seconds, ambiguity=ambiguity
    )
