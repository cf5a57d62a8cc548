"""Tell what an error of the authorization step means, and whom it concerns: RFC 6749 section 4.1.2.1, OpenID Connect
Core section 3.1.2.6, and words of single providers.

Only the words listed here are compared, kept as a note, and logged. The provider's text is never passed on: of a
description only Microsoft's number is read, because its words alone do not tell an administrator's consent apart. It is
a hint; without it the word decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from oauthbroker.core.errors import BrokerError, Code

UNKNOWN: Final = "an authorization error outside the known words"
AGREED: Final = "an administrator has agreed, and there is no code yet"
REQUESTED: Final = "setup_action=request"
_NUMBER = re.compile(rb"(AADSTS[0-9]{4,7})(?![0-9])")
_WORDS: Final[Mapping[Code, str]] = {
    # The person, or an administrator in person, said no. "cancel" words are LinkedIn's, the others Microsoft's.
    Code.PROVIDER_DENIED: """access_denied authorization_declined permission_denied user_cancelled_authorize
        user_cancelled_login user_denied AADSTS65004""",
    # Only an administrator at the provider can agree: Google's, Salesforce's, Slack's and Microsoft's words.
    Code.ADMIN_CONSENT_NEEDED: """admin_policy_enforced access_not_configured oauth_app_blocked
        oauth_app_access_denied admin_consent_required unapproved_scope setup_action=request
        AADSTS50105 AADSTS53003 AADSTS650052 AADSTS90093 AADSTS90094 AADSTS90095 AADSTS90099""",
    # The person has to take another step there.
    Code.INTERACTION_NEEDED: """account_selection_required consent_required immediate_unsuccessful
        interaction_required login_required AADSTS16000 AADSTS50058 AADSTS50074 AADSTS50076 AADSTS50079 AADSTS65001""",
    # Our registration or our request is wrong, and only the operator can fix it.
    Code.APP_MISCONFIGURED: """invalid_request unauthorized_client unsupported_response_type invalid_scope
        invalid_client invalid_client_id invalid_target invalid_resource invalid_redirect_uri redirect_uri_mismatch
        redirect_uri_missing bad_redirect_uri invalid_request_uri invalid_request_object invalid_authorization_details
        request_not_supported request_uri_not_supported registration_not_supported unmet_authentication_requirements
        application_suspended unauthorized_scope_error deleted_client disabled_client org_internal
        invalid_team_for_non_distributed_app AADSTS50011 AADSTS650053 AADSTS650056 AADSTS700016""",
    # Trouble of the moment.
    Code.PROVIDER_UNREACHABLE: "server_error temporarily_unavailable rate_limit_exceeded",
}
MEANINGS: Final[Mapping[str, Code]] = {word.lower(): code for code, words in _WORDS.items() for word in words.split()}
"""The code for each known word, in lower case."""
FOR_PERSON: Final = frozenset({Code.PROVIDER_DENIED, Code.ADMIN_CONSENT_NEEDED, Code.INTERACTION_NEEDED})
"""The codes that concern the user or an administrator at the provider."""


def number_of(description: bytes) -> str:
    """Return the number with which Microsoft begins its descriptions, if it is a known one; else nothing."""
    found = _NUMBER.match(description)
    number = found[1].decode("ascii") if found is not None else ""
    return number if number.lower() in MEANINGS else ""


def authorization_error(word: str, number: str = "") -> BrokerError:
    """Return the error for a provider's word; `number` decides where it is known. An unknown word is a refusal."""
    code = MEANINGS.get(word.lower())
    note = word.lower() if code is not None else UNKNOWN
    if number:
        code, note = MEANINGS[number.lower()], f"{note}, {number}"
    return BrokerError(code or Code.PROVIDER_DENIED, note=note)
