"""Refresh an access token (RFC 6749 section 6): build the request, and judge from the answer if the refresh token
lives."""

from __future__ import annotations

from collections.abc import Sequence

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import Endpoints, OAuthApp
from oauthbroker.protocol.answer_checks import is_json
from oauthbroker.protocol.authorization_request import requested_scopes
from oauthbroker.protocol.client_auth import refused_word
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse, Value
from oauthbroker.protocol.token_endpoint import (
    CLIENT_REFUSED,
    CLIENT_UNKNOWN,
    GONE,
    RefusedTokens,
    TokenResponse,
    token_request,
    token_response,
)
from oauthbroker.protocol.token_fields import optional_token, salvaged_members, token_members


class RefreshRefused(BrokerError):
    """The provider answered without tokens that we accept. `spent`: the request may have used up the refresh token
    (RFC 9700 section 4.14.2). `spare` is the refresh token of a refused answer; it may be the only valid one.
    `access` is the access token of that answer, to be revoked."""

    def __init__(
        self,
        code: Code,
        *,
        spent: bool,
        note: str = "",
        retry_after_seconds: int | None = None,
        spare: Secret | None = None,
        access: Secret | None = None,
    ) -> None:
        super().__init__(code, note=note, retry_after_seconds=retry_after_seconds)
        self.spent = spent
        self.spare = spare
        self.access = access

    @property
    def of_client(self) -> bool:
        """Tell whether the provider refused our client, not the refresh token."""
        return refused_word(self.note) in {CLIENT_REFUSED, CLIENT_UNKNOWN}


def refresh_request(
    app: OAuthApp, endpoints: Endpoints, refresh_token: Secret, *, clock: Clock, scopes: Sequence[str] = ()
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


def refresh_response(app: OAuthApp, answer: ProviderResponse, *, worked: bool = False) -> TokenResponse:
    """Validate an answer to a refresh: as `token_response`, with codes that tell whether the refresh token is lost.

    `worked`: the same request has refreshed this grant before. Then `invalid_request` and `invalid_scope` cannot be
    about the request's form; several providers send them for a dead refresh token.

    Raises `RefreshRefused` and nothing else. Its codes:
    - `reauthRequired`: the refresh token is dead, by RFC 6749's or the provider's own error word
    - `exchangeFailed`: refused with an ambiguous error word, or none; the token may be dead
    - `appMisconfigured`: the refusal is about our client or our request, not about this grant
    - `providerRateLimited`, `providerUnreachable`: 429 and 503 have not touched the refresh token
    - `tokenResponseInvalid`: an answer that we do not understand, or tokens that we do not accept
    """
    try:
        return token_response(app, answer, refreshed=True)
    except RefusedTokens as refused:
        failed = RefreshRefused(
            refused.code, spent=True, note=refused.note, spare=_spare(app, answer), access=refused.tokens[-1]
        )
    except BrokerError as refused:
        failed = _judged(answer, refused, worked=worked)
        if answer.status == 200 and failed.spent:
            failed.spare = _spare(app, answer)
    raise failed


def _spare(app: OAuthApp, answer: ProviderResponse) -> Secret | None:
    """Return the refresh token in an otherwise invalid answer. A rotating provider has spent the old one, so the
    answer is read leniently. The old token is tried after it."""
    try:
        return optional_token(token_members(app, salvaged_members(app, answer), refreshed=True), "refresh_token")
    except Exception:  # noqa: BLE001 - an answer that breaks its reader holds none
        return None


def _judged(answer: ProviderResponse, refused: BrokerError, *, worked: bool) -> RefreshRefused:
    code, spent, status = refused.code, False, answer.status
    match code:
        case Code.EXCHANGE_FAILED if refused.note in GONE:
            code = Code.REAUTH_REQUIRED
        case Code.EXCHANGE_FAILED if refused.note in {"invalid_request", "invalid_scope"} and not worked:
            code = Code.APP_MISCONFIGURED
        case Code.TOKEN_RESPONSE_INVALID if status == 400 and (is_json(answer) or not answer.body):
            code = Code.EXCHANGE_FAILED
        case Code.TOKEN_RESPONSE_INVALID if 400 <= status < 500:  # sent by a proxy in front of the provider
            code, spent = Code.PROVIDER_UNREACHABLE, True
        case Code.TOKEN_RESPONSE_INVALID:
            spent = True
        case Code.PROVIDER_UNREACHABLE:
            spent = (status >= 500 and status != 503) or refused.note == "server_error"
    return RefreshRefused(code, spent=spent, note=refused.note, retry_after_seconds=refused.retry_after_seconds)
