"""Device authorization (RFC 8628): request a code for another screen, then poll until the user has agreed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal
from urllib.parse import urlsplit

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import Json
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.protocol.answer_checks import refuse_if_busy
from oauthbroker.protocol.authorization_errors import FOR_PERSON, MEANINGS, authorization_error
from oauthbroker.protocol.authorization_request import RESERVED, requested_scopes
from oauthbroker.protocol.client_auth import refused_request
from oauthbroker.protocol.consent_answer import consent_response
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse, Value
from oauthbroker.protocol.network.crash_guard import validator
from oauthbroker.protocol.token_endpoint import RefusedTokens, TokenResponse, token_request
from oauthbroker.protocol.token_fields import body_members, refusal_word, token_members
from oauthbroker.protocol.unusual_answers import salvaged_members

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:device_code"
DEFAULT_INTERVAL = 5  # section 3.2
MAX_DEVICE_CODE = 4 * 1024
MAX_USER_CODE = 40
MAX_ADDRESS = 1024
MAX_LIFETIME = 365 * 24 * 3600

_RESERVED = RESERVED | {"grant_type", "device_code", "client_secret", "client_assertion", "client_assertion_type"}
_DEVICE_CODE = re.compile(r"[\x21-\x7e]+")
# ASCII letters, digits and single separators, which a user can read out without confusion.
_USER_CODE = re.compile(r"[A-Za-z0-9]+([ ._-][A-Za-z0-9]+)*")
# Addresses that our page can show and link to: a plain host, and no characters that would need quoting.
_ADDRESS = re.compile(
    r"https?://([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?][A-Za-z0-9._~:/?@!$&()*+,;=%-]*)?"
)
_DIGITS = re.compile(r"[0-9]{1,12}")
_KNOWN = frozenset({"unsupported_grant_type", "device_flow_disabled", *MEANINGS})

CheckUrl = Callable[[str], None]


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class DeviceAuthorization:
    """A valid answer of the device authorization endpoint. Times in seconds."""

    device_code: Secret
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None
    lifetime_seconds: int
    interval_seconds: int

    def __repr__(self) -> str:
        return "DeviceAuthorization(...)"


@dataclass(frozen=True, slots=True)
class DevicePending:
    """The user has not agreed yet. `slower`: poll less often (section 3.5)."""

    slower: bool


def device_request(app: App, endpoints: Endpoints, scopes: Sequence[str], *, clock: Clock) -> ProviderRequest:
    """Build the device authorization request (RFC 8628 section 3.1), with RFC 8707 and client authentication.

    It requests the same scopes as an authorization request and carries the app's `authorize` options. Raises
    `appMisconfigured`.
    """
    habits, asked = app.habits, requested_scopes(app, scopes)
    reserved = _RESERVED | {habits.scope_param}
    extra = {name: value for name, value in habits.authorize_params.items() if name not in reserved}
    form: dict[str, Value] = {habits.scope_param: habits.scope_separator.join(asked)} if asked else {}
    return token_request(app, endpoints, endpoints.device_authorization_url, form, extra, clock)


@validator(Code.TOKEN_RESPONSE_INVALID)
def device_response(app: App, answer: ProviderResponse, check_url: CheckUrl) -> DeviceAuthorization:
    """Validate the answer (RFC 8628 section 3.2). `check_url` raises for an address that a user must not be sent to.

    (1) busy or down (2) status 200, format, no error (3) a device code (4) a well-formed user code (5) addresses of one
    origin (6) plausible times.

    Raises `providerRateLimited`, `providerUnreachable`, `appMisconfigured` for a refusal, `tokenResponseInvalid`.
    """
    refuse_if_busy(answer)  # (1)
    word = refusal_word(app, answer)
    if answer.status != 200 or word:  # (2)
        raise _refused(app, word, answer.status)
    members = body_members(app, answer)
    uri = _address(members, "verification_uri", "verification_url", check_url)  # Google keeps the draft's spelling
    if uri is None:
        raise _invalid("no verification address")
    complete = _address(members, "verification_uri_complete", "verification_url_complete", check_url)
    if complete is not None and _origin(complete) != _origin(uri):
        raise _invalid("two verification addresses of different origins")
    lifetime, interval = _times(members)
    return DeviceAuthorization(
        device_code=Secret(_code(members, "device_code", _DEVICE_CODE, MAX_DEVICE_CODE)),  # (3)
        user_code=_code(members, "user_code", _USER_CODE, MAX_USER_CODE),  # (4)
        verification_uri=uri,
        verification_uri_complete=complete,
        lifetime_seconds=lifetime,
        interval_seconds=interval,
    )


def device_token_request(app: App, endpoints: Endpoints, device_code: Secret, *, clock: Clock) -> ProviderRequest:
    """Build the poll for tokens (RFC 8628 section 3.4). Raises `appMisconfigured`."""
    form: dict[str, Value] = {"grant_type": GRANT_TYPE, "device_code": device_code}
    return token_request(app, endpoints, endpoints.token_url, form, app.habits.token_params, clock)


@validator(Code.TOKEN_RESPONSE_INVALID)
def device_token_response(app: App, answer: ProviderResponse) -> TokenResponse | DevicePending:
    """Validate the answer to a poll (RFC 8628 section 3.5): pending, ended, or a token response.

    The four error words of that section count with any 4xx, and with 200 as some providers send them. An answer with
    neither tokens nor an error says nothing about the code, which the user may still enter: `providerUnreachable`.
    Raises `stateExpired`, what `authorization_error` makes of words for the user, and what `consent_response` raises.
    """
    match refusal_word(app, answer):
        case "authorization_pending":
            return DevicePending(slower=False)
        case "slow_down":
            return DevicePending(slower=True)
        case "expired_token":
            raise BrokerError(Code.STATE_EXPIRED, note="the device code has expired")
        case word if MEANINGS.get(word.lower()) in FOR_PERSON:
            raise authorization_error(word)
    try:
        return consent_response(app, answer)
    except RefusedTokens:  # the code is used
        raise
    except BrokerError as error:
        refused = error.with_traceback(None)
    if refused.code is Code.TOKEN_RESPONSE_INVALID and not _brings_token(app, answer):
        raise BrokerError(Code.PROVIDER_UNREACHABLE, note=refused.note)
    raise refused


def _brings_token(app: App, answer: ProviderResponse) -> bool:
    """Tell whether a refused answer holds an access token, also a malformed one: then the code is used."""
    for members in salvaged_members(answer):
        with suppress(Exception):  # an answer that breaks its reader brings none
            if token_members(app, members).get("access_token") not in (None, ""):
                return True
    return False


def _refused(app: App, word: str, status: int) -> BrokerError:
    if not word and not 400 <= status < 500:
        return _invalid("neither a device code nor an error")
    refused = "the device authorization request was refused"
    return refused_request(app, refused, word, _KNOWN, unknown="an error outside RFC 8628")


def _code(members: Mapping[str, Json], name: str, form: re.Pattern[str], longest: int) -> str:
    value = members.get(name)
    if not isinstance(value, str) or len(value) > longest or not form.fullmatch(value):
        raise _invalid(f"the {name.replace('_', ' ')} is not one")
    return value


def _address(members: Mapping[str, Json], name: str, draft: str, check_url: CheckUrl) -> str | None:  # (5)
    """Return an address to send the user to, also under its name in the draft. None if absent."""
    value = members.get(name, members.get(draft))
    if value is None:
        return None
    fits = isinstance(value, str) and len(value) <= MAX_ADDRESS and _ADDRESS.fullmatch(value) is not None
    try:
        check_url(value if isinstance(value, str) else "")
    except BrokerError:
        fits = False
    if not fits or not isinstance(value, str):
        raise _invalid("a verification address is refused")
    return value


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def _times(members: Mapping[str, Json]) -> tuple[int, int]:  # (6)
    """Return (lifetime, interval) in seconds. An interval of 0 means one second; one that exceeds the lifetime is
    invalid."""
    lifetime, interval = _seconds(members, "expires_in"), _seconds(members, "interval")
    if lifetime is None or lifetime < 1:
        raise _invalid("expires_in is not a time to agree in")
    interval = DEFAULT_INTERVAL if interval is None else max(math.ceil(interval), 1)
    if interval >= lifetime:
        raise _invalid("the interval outlives the code")
    return int(lifetime), interval


def _seconds(members: Mapping[str, Json], name: Literal["expires_in", "interval"]) -> float | None:
    value = members.get(name)
    if value is None:
        return None
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise _invalid(f"{name} is not a number of seconds")
    return min(value, MAX_LIFETIME)


def _invalid(note: str) -> BrokerError:
    return BrokerError(Code.TOKEN_RESPONSE_INVALID, note=note)
