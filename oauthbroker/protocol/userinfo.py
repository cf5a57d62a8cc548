"""The userinfo request (OpenID Connect Core 1.0 section 5.3), and the "who am I" call of providers without OIDC."""

from __future__ import annotations

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import Json, decode_json
from oauthbroker.model.apps import Endpoints, OAuthApp
from oauthbroker.protocol.answers import is_json, refuse_if_busy
from oauthbroker.protocol.judging import judge
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse, with_headers


def userinfo_request(app: OAuthApp, endpoints: Endpoints, access_token: Secret) -> ProviderRequest:
    """Build the request: a GET with `Authorization: Bearer` (RFC 6750 section 2.1), unless the profile says
    otherwise. The token never travels in a URL or a body. Raises `appMisconfigured` without an endpoint."""
    if not endpoints.user_info_url:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the app has no userinfo endpoint")
    habits, token = app.habits, access_token.reveal()
    bare = habits.user_info_token_header
    proof = {bare: access_token} if bare else {"Authorization": Secret(f"{habits.user_info_token_scheme} {token}")}
    form = dict(habits.user_info_body) if habits.user_info_body and habits.user_info_method == "POST" else None
    request = ProviderRequest(
        habits.user_info_method, endpoints.user_info_url, headers=proof, form=form, encoding="json"
    )
    return with_headers(request, habits.user_info_headers, app.client.client_id)


@judge(Code.SUBJECT_UNVERIFIABLE)
def userinfo_response(answer: ProviderResponse, *, lists: bool = False) -> Json:
    """Parse the facts: labelled JSON, an object without an error, or with `lists` an array (case 34).

    Raises `subjectUnverifiable`; `providerUnreachable` or `providerRateLimited` when a retry may help.
    """
    refuse_if_busy(answer)
    if answer.status != 200 or not is_json(answer):
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="userinfo did not answer with facts")
    facts = decode_json(answer.body, Code.SUBJECT_UNVERIFIABLE)
    if lists and isinstance(facts, list):
        return facts
    if not isinstance(facts, dict):
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="userinfo did not answer with facts")
    if facts.get("ok", True) is not True or facts.get("error"):
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="userinfo answered with an error")
    return facts
