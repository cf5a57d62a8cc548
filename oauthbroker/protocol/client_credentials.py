"""The client credentials grant (RFC 6749 section 4.4): build the request, validate the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse, Value
from oauthbroker.protocol.token_endpoint import RefusedTokens, TokenResponse, token_request, token_response


def client_credentials_request(
    app: App, endpoints: Endpoints, scopes: Sequence[str], *, clock: Clock
) -> ProviderRequest:
    """Build the request (RFC 6749 section 4.4.2), with RFC 8707 and the app's `token` options. Empty `scopes` are not
    sent.

    Pass all scopes of the app: one token then serves every tool, and no tool replaces the token of another. `clock`
    dates a client assertion. Raises `appMisconfigured`, also for a public client (section 4.4).
    """
    if app.client.auth_method == "none":
        raise BrokerError(Code.APP_MISCONFIGURED, note="a public client has no credentials")
    form: dict[str, Value] = {"grant_type": "client_credentials"}
    if scopes:
        form["scope"] = app.habits.scope_separator.join(scopes)
    return token_request(app, endpoints, endpoints.token_url, form, app.habits.token_params, clock)


def client_credentials_response(app: App, answer: ProviderResponse) -> TokenResponse:
    """Validate the answer as `token_response` does, and drop its refresh token (section 4.4.3 advises against one) and
    ID token.

    Every refusal is `appMisconfigured`: no user's answer could be the reason. An unusual answer is refused, because
    the request can be repeated; a lifetime that can be read is not.
    """
    try:
        tokens = token_response(app, answer)
        if tokens.unusual and not (tokens.unusual == ("lifetime",) and tokens.end_stated):
            note = f"unusual: {' '.join(tokens.unusual)}"
            raise RefusedTokens(Code.TOKEN_RESPONSE_INVALID, tokens.issued, note=note)
    except BrokerError as error:
        refused = error
    else:
        return replace(tokens, refresh_token=None, id_token=None)
    if refused.code is Code.EXCHANGE_FAILED:
        refused = BrokerError(Code.APP_MISCONFIGURED, note=refused.note)
    raise refused.with_traceback(None)  # its frames hold the answer
