"""Client credentials (RFC 6749 section 4.4): our client asks for itself, so there is no person, no code, no session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oauthbroker.apps import Endpoints, OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.messages import Answer, Request, Value
from oauthbroker.protocol.token import TokenResponse, token_request, token_response


def client_credentials_request(app: OAuthApp, endpoints: Endpoints, scopes: Sequence[str], *, clock: Clock) -> Request:
    """RFC 6749 section 4.4.2, with RFC 8707 and the app's `token` options. Without scopes none are named.

    Ask for all of the app's: one token serves every tool, and no tool takes another one's away. `clock` dates a
    client assertion. Raises `appMisconfigured`, for a public client too (section 4.4).
    """
    if app.client.auth_method == "none":
        raise BrokerError(Code.APP_MISCONFIGURED, note="a public client has no credentials")
    form: dict[str, Value] = {"grant_type": "client_credentials"}
    if scopes:
        form["scope"] = app.habits.scope_separator.join(scopes)
    return token_request(app, endpoints, endpoints.token_url, form, app.habits.token_params, clock)


def client_credentials_response(app: OAuthApp, answer: Answer) -> TokenResponse:
    """As `token_response`, without what does not belong here: a refresh token, which section 4.4.3 advises against and
    nobody needs, and an ID token, which would be about no person. Neither is kept.

    A refusal is `appMisconfigured` whatever its word: no person's answer could be the reason.
    """
    try:
        tokens = token_response(app, answer)
    except BrokerError as error:
        refused = error
    else:
        return replace(tokens, refresh_token=None, id_token=None)
    if refused.code is Code.EXCHANGE_FAILED:
        refused = BrokerError(Code.APP_MISCONFIGURED, note=refused.note)
    raise refused.with_traceback(None)  # the frames in which the answer lay would come along
