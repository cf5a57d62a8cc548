"""Telling the provider that a token has had its day (RFC 7009)."""

from __future__ import annotations

from typing import Literal

from oauthbroker.apps import Endpoints, OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.answers import refuse_if_busy
from oauthbroker.protocol.client_auth import authenticated_post
from oauthbroker.protocol.messages import Answer, Request
from oauthbroker.protocol.strict_json import decode_object
from oauthbroker.secret import Secret
from oauthbroker.turn import Json

Hint = Literal["refresh_token", "access_token"]


def revoke_request(app: OAuthApp, endpoints: Endpoints, token: Secret, hint: Hint, *, clock: Clock) -> Request:
    """RFC 7009 section 2.1. Revoke the refresh token before the access token: it is the one that lives on.

    `clock` dates a client assertion. Raises `appMisconfigured`, for an app without a revocation endpoint too.
    """
    form = {"token": token, "token_type_hint": hint}
    return authenticated_post(app, endpoints, endpoints.revoke_url, form, clock)


def revoke_response(answer: Answer) -> bool:
    """True: the token is dead. False: this provider does not revoke tokens of that kind.

    A token that the provider does not know is as dead as one can be (RFC 7009 section 2.2). Raises
    `providerUnreachable` or `providerRateLimited` (try again later: section 2.2.1), `appMisconfigured`.
    """
    refuse_if_busy(answer)
    if answer.status in {200, 202, 204}:
        return True
    word = _error_word(answer) if answer.status == 400 else None
    if word == "unsupported_token_type":
        return False
    if word in {"invalid_token", "invalid_grant"}:  # not RFC 7009, but what several say of a token that is gone
        return True
    raise BrokerError(Code.APP_MISCONFIGURED, note="the provider refused the revocation")


def _error_word(answer: Answer) -> Json:
    try:
        return decode_object(answer.body, Code.TOKEN_RESPONSE_INVALID).get("error")
    except BrokerError:
        return None
