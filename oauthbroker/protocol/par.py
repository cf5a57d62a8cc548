"""Pushed authorization requests (RFC 9126): we send the parameters to the provider, the browser carries a reference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import Json, decode_object
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.protocol.answer_checks import is_json, members_of, refuse_if_busy
from oauthbroker.protocol.authorization_errors import MEANINGS
from oauthbroker.protocol.authorization_request import authorization_params, with_params
from oauthbroker.protocol.client_auth import CLIENT_PROOF, authenticated_post, refused_request
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse, in_their_words
from oauthbroker.protocol.network.crash_guard import validator
from oauthbroker.records import Attempt

MAX_REQUEST_URI: Final = 1024
_URI = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:[\x21-\x7e]{{1,{MAX_REQUEST_URI}}}")


def par_request(
    app: App, endpoints: Endpoints, attempt: Attempt, scopes: Sequence[str], *, clock: Clock
) -> ProviderRequest:
    """Build the pushed request (RFC 9126 section 2.1): the authorization request as a form, with client authentication.

    An app's own parameters never replace that authentication. `clock` dates a client assertion. Raises
    `appMisconfigured`, also for an app without this endpoint.
    """
    params = authorization_params(app, attempt, scopes)
    form = {name: value for name, value in params.items() if name not in CLIENT_PROOF}
    return authenticated_post(app, endpoints, endpoints.pushed_authorization_url, form, clock)


@validator(Code.APP_MISCONFIGURED)
def par_response(app: App, answer: ProviderResponse) -> Secret:
    """Validate the answer and return its `request_uri`, which any holder may use once: (1) busy or down (2) 201, or 200
    as some providers send (3) JSON without an error (4) an absolute URI of visible ASCII (5) a lifetime of at least
    1 second.

    Raises `providerRateLimited`, `providerUnreachable`, else `appMisconfigured`: only the operator can fix a refusal or
    an invalid answer. Its note is the RFC's error word, if there was one.
    """
    refuse_if_busy(answer)  # (1)
    if answer.status not in {200, 201}:  # (2)
        raise _refused(app, members_of(answer).get("error"))
    if not is_json(answer):
        raise _unreadable("it is not labelled as JSON")
    members = decode_object(answer.body, Code.APP_MISCONFIGURED)  # (3)
    if "error" in members:
        raise _refused(app, members["error"])
    uri = members.get("request_uri")
    if not isinstance(uri, str) or len(uri) > MAX_REQUEST_URI or not _URI.fullmatch(uri):  # (4)
        raise _unreadable("request_uri is not a URI")
    lifetime = members.get("expires_in")
    if isinstance(lifetime, bool) or not isinstance(lifetime, int) or lifetime < 1:  # (5)
        raise _unreadable("expires_in is not a number of seconds")
    return Secret(uri)


def pushed_url(app: App, endpoints: Endpoints, request_uri: Secret) -> str:
    """Build the authorization URL with `client_id` and `request_uri` only (RFC 9126 section 4). Raises
    `appMisconfigured`.

    The `request_uri` stands for `state` too: keep it out of logs and chats.
    """
    return with_params(
        app, endpoints, in_their_words(app, {"client_id": app.client.client_id, "request_uri": request_uri})
    )


def _refused(app: App, word: Json) -> BrokerError:
    refused, known = "the provider refused the pushed request", word if isinstance(word, str) else ""
    return refused_request(app, refused, known, frozenset(MEANINGS), unknown="for a reason outside RFC 9126")


def _unreadable(why: str) -> BrokerError:
    return BrokerError(Code.APP_MISCONFIGURED, note=f"the answer to a pushed request: {why}")
