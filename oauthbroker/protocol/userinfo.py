"""The userinfo request (OpenID Connect Core 1.0 section 5.3), and the "who am I" call of those who have no OIDC."""

from __future__ import annotations

from oauthbroker.apps import Endpoints, OAuthApp
from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.answers import is_json, refuse_if_busy
from oauthbroker.protocol.messages import Answer, Request
from oauthbroker.protocol.strict_json import decode_object
from oauthbroker.secret import Secret
from oauthbroker.turn import Json

_OURS = frozenset({"authorization", "accept-encoding", "host", "content-length", "content-type"})


def userinfo_request(app: OAuthApp, endpoints: Endpoints, access_token: Secret) -> Request:
    """GET with the token in the header (RFC 6750 section 2.1) and the headers the preset adds.

    Raises `appMisconfigured` without an endpoint.
    """
    if not endpoints.user_info_url:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the app has no userinfo endpoint")
    headers: dict[str, str | Secret] = {"Authorization": Secret(f"Bearer {access_token.reveal()}")}
    accept = "application/json"
    for name, value in app.habits.user_info_headers.items():
        if name.lower() == "accept":
            accept = value
        elif name.lower() not in _OURS:
            headers[name] = value
    return Request("GET", endpoints.user_info_url, headers=headers, accept=accept)


def userinfo_response(answer: Answer) -> dict[str, Json]:
    """The facts: a JSON object, labelled so, without an error in it. Case 34.

    Raises `subjectUnverifiable`; `providerUnreachable` or `providerRateLimited` when asking again may help.
    """
    refuse_if_busy(answer)
    if answer.status != 200 or not is_json(answer):
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="userinfo did not answer with facts")
    facts = decode_object(answer.body, Code.SUBJECT_UNVERIFIABLE)
    if facts.get("ok", True) is not True or facts.get("error"):
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="userinfo answered with an error")
    return facts
