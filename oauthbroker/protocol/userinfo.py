"""Messages of the userinfo endpoint (OpenID Connect Core 1.0 section 5.3), and of the calls that stand in for it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import Json, decode_json
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.protocol.answer_checks import not_ok, refuse_if_busy, said_by
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse, with_headers
from oauthbroker.protocol.network.crash_guard import validator
from oauthbroker.protocol.unusual_answers import SUCCESSES, utf8_body


def userinfo_request(app: App, endpoints: Endpoints, access_token: Secret) -> ProviderRequest:
    """Build the request: a GET with `Authorization: Bearer` (RFC 6750 section 2.1), unless the profile says
    otherwise. The token never travels in a URL or a body. Raises `appMisconfigured` without an endpoint."""
    if not endpoints.user_info_url:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the app has no userinfo endpoint")
    habits = app.habits
    header, value = habits.token_proof(access_token, at_user_info=True)
    form = dict(habits.user_info_body) if habits.user_info_body and habits.user_info_method == "POST" else None
    request = ProviderRequest(
        habits.user_info_method, endpoints.user_info_url, headers={header: value}, form=form, encoding="json"
    )
    return with_headers(request, habits.user_info_headers, app.client.client_id)


@validator(Code.SUBJECT_UNVERIFIABLE)
def userinfo_response(
    answer: ProviderResponse, *, lists: bool = False, ok: Mapping[str, bool | int | str] = MappingProxyType({})
) -> Json:
    """Parse the facts: JSON with any label, an object without an error, or with `lists` an array (case 34). `ok` are
    the `okMembers` of the app's profile. Without facts the tokens of a consent are lost, so no answer is refused for
    its form.

    Raises `subjectUnverifiable`; `providerUnreachable` or `providerRateLimited` when a retry may help.
    """
    refuse_if_busy(answer)
    if answer.status not in SUCCESSES:
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="userinfo did not answer with facts")
    facts = decode_json(utf8_body(answer), Code.SUBJECT_UNVERIFIABLE)
    if lists and isinstance(facts, list):
        return facts
    if not isinstance(facts, dict):
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="userinfo did not answer with facts")
    said = said_by(ok)
    failed = (facts.get("error") and "error" not in said) or (facts.get("ok", True) is not True and "ok" not in said)
    if failed or not_ok(ok, facts):
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="userinfo answered with an error")
    return facts
