"""The token answer after a consent: a refusal names every token that came with it, so that none is forgotten."""

from __future__ import annotations

from contextlib import suppress

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.protocol.issued_tokens import IssuedTokens
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.protocol.token_endpoint import RefusedTokens, TokenResponse, token_response
from oauthbroker.protocol.token_fields import optional_token, token_members
from oauthbroker.protocol.unusual_answers import salvaged_members


def consent_response(app: App, answer: ProviderResponse) -> TokenResponse:
    """Validate an answer as `token_response` does. Raises `RefusedTokens` also for one that is refused as a whole and
    holds tokens: one with another label, with `NaN`, with a member twice, with an error beside its tokens."""
    try:
        return token_response(app, answer)
    except RefusedTokens:
        raise
    except BrokerError as error:
        refused = error.with_traceback(None)
    if answer.status < 500 and (issued := salvaged_tokens(app, answer)):
        raise RefusedTokens(refused.code, issued, note=refused.note)
    raise refused


def salvaged_tokens(app: App, answer: ProviderResponse) -> IssuedTokens:
    """Return the tokens in a refused answer, in any form and with any label. Of a member that comes twice, both values
    count. Raises nothing."""
    refresh, access = dict[str, Secret](), dict[str, Secret]()
    for members in salvaged_members(answer):
        with suppress(Exception):  # an answer that breaks its reader holds none
            found = token_members(app, members)
            for name, kept in (("refresh_token", refresh), ("access_token", access)):
                with suppress(BrokerError):
                    token = optional_token(found, name)
                    if token is not None:
                        kept[token.reveal()] = token
    return IssuedTokens(tuple(refresh.values()), tuple(access.values()))
