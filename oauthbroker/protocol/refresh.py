"""Renewing an access token (RFC 6749 section 6): the request, and what its answer says of the refresh token sent."""

from __future__ import annotations

from collections.abc import Sequence

from oauthbroker.apps import Endpoints, OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.answers import is_json
from oauthbroker.protocol.authorize import requested_scopes
from oauthbroker.protocol.client_auth import refused_word
from oauthbroker.protocol.messages import Answer, Request, Value
from oauthbroker.protocol.token import (
    CLIENT_REFUSED,
    CLIENT_UNKNOWN,
    GONE,
    RefusedTokens,
    TokenResponse,
    token_request,
    token_response,
)
from oauthbroker.protocol.token_fields import optional_token, salvaged_members, token_members
from oauthbroker.secret import Secret


class RenewalRefused(BrokerError):
    """No token that we take. `spent`: the refresh token may have been used up by the request (RFC 9700 section
    4.14.2). `spare` is the refresh token of an answer that we refuse: it may be the only one that still lives.
    `access` is the access token that came with it, which nobody wants."""

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
        """Whether the refusal is about our client and not about the token that was sent."""
        return refused_word(self.note) in {CLIENT_REFUSED, CLIENT_UNKNOWN}


def refresh_request(
    app: OAuthApp, endpoints: Endpoints, refresh_token: Secret, *, clock: Clock, scopes: Sequence[str] = ()
) -> Request:
    """RFC 6749 section 6, at the profile's `refreshUrl` where it has one.

    No `scope`: what was granted stays granted, and several providers refuse to hear it again. `scopes` (what was
    granted) are sent only where the profile says `refreshScope: send`. Raises `appMisconfigured`.
    """
    habits = app.habits
    form: dict[str, Value] = {"grant_type": "refresh_token", "refresh_token": refresh_token}
    if habits.refresh_scope == "send" and scopes:
        form["scope"] = habits.scope_separator.join(requested_scopes(app, scopes))
    url = endpoints.refresh_url or endpoints.token_url
    return token_request(app, endpoints, url, form, habits.refresh_params, clock)


def refresh_response(app: OAuthApp, answer: Answer, *, worked: bool = False) -> TokenResponse:
    """Judges an answer to a refresh: `token_response`, in the words of somebody who has a refresh token to lose.

    `worked`: this grant was refreshed before, by the very same request. Then `invalid_request` and `invalid_scope` can
    not be about the request's form; several providers say them of a refresh token that is dead.

    Raises `RenewalRefused` and nothing else. Its codes:
    - `reauthRequired`: the refresh token is dead, the provider says so in words of its own or of RFC 6749
    - `exchangeFailed`: refused in words that may mean anything, or in none; perhaps dead
    - `appMisconfigured`: it is about our client or our request, not about this grant
    - `providerRateLimited`, `providerUnreachable`: 429 and 503 have surely not touched the refresh token
    - `tokenResponseInvalid`: no answer that we understand, or tokens that we do not take
    """
    try:
        return token_response(app, answer, refreshed=True)
    except RefusedTokens as refused:
        failed = RenewalRefused(
            refused.code, spent=True, note=refused.note, spare=_spare(app, answer), access=refused.tokens[-1]
        )
    except BrokerError as refused:
        failed = _judged(answer, refused, worked=worked)
        if answer.status == 200 and failed.spent:
            failed.spare = _spare(app, answer)
    raise failed


def _spare(app: OAuthApp, answer: Answer) -> Secret | None:
    """The refresh token in an answer that is wrong in some other way. A provider that rotates has spent the old one, so
    it is read leniently; the old one is tried after it."""
    try:
        return optional_token(token_members(app, salvaged_members(app, answer), refreshed=True), "refresh_token")
    except Exception:  # noqa: BLE001 - an answer that breaks its reader holds none
        return None


def _judged(answer: Answer, refused: BrokerError, *, worked: bool) -> RenewalRefused:
    code, spent, status = refused.code, False, answer.status
    match code:
        case Code.EXCHANGE_FAILED if refused.note in GONE:
            code = Code.REAUTH_REQUIRED
        case Code.EXCHANGE_FAILED if refused.note in {"invalid_request", "invalid_scope"} and not worked:
            code = Code.APP_MISCONFIGURED
        case Code.TOKEN_RESPONSE_INVALID if status == 400 and (is_json(answer) or not answer.body):
            code = Code.EXCHANGE_FAILED
        case Code.TOKEN_RESPONSE_INVALID if 400 <= status < 500:  # a wall in front of the provider, not the provider
            code, spent = Code.PROVIDER_UNREACHABLE, True
        case Code.TOKEN_RESPONSE_INVALID:
            spent = True
        case Code.PROVIDER_UNREACHABLE:
            spent = (status >= 500 and status != 503) or refused.note == "server_error"
    return RenewalRefused(code, spent=spent, note=refused.note, retry_after_seconds=refused.retry_after_seconds)
