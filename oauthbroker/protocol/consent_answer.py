"""The token answer after a consent: a refusal names every token that came with it, so that none is forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import parse_qsl

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import Json, decode_leniently
from oauthbroker.model.apps import OAuthApp
from oauthbroker.protocol.issued_tokens import IssuedTokens
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.protocol.token_endpoint import RefusedTokens, TokenResponse, token_response
from oauthbroker.protocol.token_fields import optional_token, token_members

_MOST_FIELDS = 1000


def consent_response(app: OAuthApp, answer: ProviderResponse) -> TokenResponse:
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


def salvaged_tokens(app: OAuthApp, answer: ProviderResponse) -> IssuedTokens:
    """Return the tokens in a refused answer, in any form and with any label. Of a member that comes twice, both values
    count. Raises nothing."""
    refresh, access = dict[str, Secret](), dict[str, Secret]()
    for members in _readings(answer.body):
        with suppress(Exception):  # an answer that breaks its reader holds none
            found = token_members(app, members)
            for name, kept in (("refresh_token", refresh), ("access_token", access)):
                with suppress(BrokerError):
                    token = optional_token(found, name)
                    if token is not None:
                        kept[token.reveal()] = token
    return IssuedTokens(tuple(refresh.values()), tuple(access.values()))


def _readings(body: bytes) -> Iterator[Mapping[str, Json]]:
    """Yield what the body may mean: as JSON and as a form, with the last and with the first of equal names."""
    for is_first in (False, True):
        with suppress(ValueError, RecursionError):
            yield decode_leniently(body, first_wins=is_first)
    with suppress(ValueError):
        pairs = parse_qsl(body.decode("ascii"), max_num_fields=_MOST_FIELDS)
        yield dict(pairs)
        yield dict(reversed(pairs))
