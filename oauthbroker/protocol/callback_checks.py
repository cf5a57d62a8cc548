"""Parse the authorization response (RFC 6749 section 4.1.2) and validate it against its session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import unquote_to_bytes

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret, has_digest
from oauthbroker.model.apps import App
from oauthbroker.protocol.authorization_errors import AGREED, REQUESTED, authorization_error, number_of
from oauthbroker.records import Attempt, AuthSession

LOCATOR_LENGTH = 22
LOCATED = re.compile(r"[A-Za-z0-9_-]{65}")  # a session's locator and 256 bits: a state, a ticket, a handle
MAX_QUERY = 32 * 1024  # space for a long error_description, whose text is never read (case 8)
MAX_CODE = 4 * 1024
MAX_ERROR = 128
READ = frozenset({"state", "error", "iss", "admin_consent", "setup_action"})
"""The parameters of a callback that are read for any app, beside its code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackParams:
    """The parsed parameters, single-valued and bounded in size. For an error `code` is None, and `refused` is set."""

    state: Secret
    code: Secret | None
    issuer: str | None
    refused: BrokerError | None = None
    query: bytes = field(default=b"", compare=False, repr=False)

    @property
    def locator(self) -> str:
        return self.state.reveal()[:LOCATOR_LENGTH]


@dataclass(frozen=True, slots=True)
class ValidCallback:
    """A code that belongs to this session, app and browser. Only `check_response` (after all checks of a callback)
    and `confirmed_callback` (for a code that passed them) create one. The app's facts are in `query`, or were read
    before."""

    code: Secret
    _: KW_ONLY
    query: bytes = field(default=b"", compare=False, repr=False)
    facts: Mapping[str, str] | None = None


def parse_callback(query: bytes, code_param: str = "code") -> CallbackParams:
    """Parse the raw query string of a callback. `code_param` is the provider's name for `code`.

    It has one `state`, then one `code` or one `error`; `error` beats `code` (case 9). A duplicate, missing, too long or
    unprintable value raises `callbackMalformed`, before any store access. Of the provider's `error_description` only a
    known number is read. The consent of an administrator alone raises `connectionUnfinished`: it comes from
    another link, with any state or none, and uses nothing up. An installation that awaits one is an error.
    """
    values = _single_values(query, code_param)
    state, code, error = values.get("state", ""), values.get(code_param), values.get("error")
    if error is None and not code and values.get("admin_consent", "").lower() == "true":
        raise BrokerError(Code.CONNECTION_UNFINISHED, note=AGREED)
    if not LOCATED.fullmatch(state):
        raise _malformed("state", is_there=bool(state))
    if error is None and not code and values.get("setup_action") == "request":
        error = REQUESTED
    if error is not None:
        refused = authorization_error(error, values.get("number", ""))
        return CallbackParams(state=Secret(state), code=None, issuer=values.get("iss"), refused=refused, query=query)
    if not code or len(code) > MAX_CODE or not _is_vschar(code):
        raise _malformed(code_param, is_there=bool(code))
    return CallbackParams(state=Secret(state), code=Secret(code), issuer=values.get("iss"), query=query)


def validate_callback(
    params: CallbackParams,
    session: AuthSession | None,
    app: App,
    cookie: str | None,
    *,
    issuer: str,
    issuer_promised: bool,
    now: datetime,
) -> ValidCallback:
    """Validate the callback in this order (cases 1 to 17):

    (1) the session exists and its state is this one, compared in constant time
    (2) the session was opened for this app
    (3) it has not ended, (4) no callback has claimed it, (5) it has not expired
    (6) the browser is the one that was sent to the provider
    (7) the response's issuer is the provider's (RFC 9207)
    (8) the user agreed

    Raises stateUnknown, appMismatch, stateUsed, stateExpired, ownerBindingFailed, issuerMismatch, and the codes of
    `authorization_error`.
    """
    if session is None or not session.attempt.state.matches(params.state.reveal()):  # (1)
        raise BrokerError(Code.STATE_UNKNOWN)
    if session.app != app.name:  # (2)
        raise BrokerError(Code.APP_MISMATCH)
    if session.status == "expired":
        raise BrokerError(Code.STATE_EXPIRED)
    if not session.open or session.taken:  # (3) (4)
        raise BrokerError(Code.STATE_USED)
    if session.is_past(now):  # (5)
        raise BrokerError(Code.STATE_EXPIRED)
    if (needs_cookie(session) or app.owner.confirmation is not None) and not cookie_fits(
        session.attempt, cookie
    ):  # (6)
        raise BrokerError(Code.OWNER_BINDING_FAILED)
    return check_response(params, issuer, promised=issuer_promised)  # (7) (8)


def check_response(params: CallbackParams, issuer: str, *, promised: bool) -> ValidCallback:
    """Check the issuer of a response (RFC 9207 section 2.4) and that the user agreed. Raises issuerMismatch,
    and the codes of `authorization_error`.

    The session and the browser were checked before. A promised `iss` may be missing from an error: some providers leave
    it out there, and an error has no code that could go to the wrong provider.
    """
    if params.issuer is not None and params.issuer != (issuer or None):
        note = "iss is another issuer" if issuer else "iss came, and the app has no endpoints.issuer to compare it with"
        raise BrokerError(Code.ISSUER_MISMATCH, note=note)
    if params.code is None:
        raise params.refused or BrokerError(Code.PROVIDER_DENIED)
    if params.issuer is None and promised:
        raise BrokerError(Code.ISSUER_MISMATCH, note="iss is missing, and the provider promises it")
    return ValidCallback(params.code, query=params.query)


def confirmed_callback(session: AuthSession, now: datetime) -> ValidCallback:
    """Return the pending code of a session, whose callback was valid. Raises `stateUnknown` when there is none or it
    has expired."""
    if not session.open or session.pending_code is None or session.is_past(now):
        raise BrokerError(Code.STATE_UNKNOWN)
    return ValidCallback(session.pending_code.code, facts=session.pending_code.facts)


def needs_cookie(session: AuthSession) -> bool:
    """Tell whether the callback needs a cookie: always, except for a direct link that skipped the connect page."""
    return session.link != "direct" or session.attempt.cookie is not None


def cookie_fits(attempt: Attempt, cookie: str | None) -> bool:
    """Tell whether this browser started this attempt. Only the hash of its cookie is stored."""
    return has_digest(cookie, attempt.cookie)


def _malformed(name: str, *, is_there: bool = True) -> BrokerError:
    """Return the error about a parameter. `name` is one that we read."""
    note = f"the callback's {name}" if is_there else f"the callback has no {name}"
    return BrokerError(Code.CALLBACK_MALFORMED, note=note)


def _single_values(query: bytes, code_param: str) -> dict[str, str]:
    """Decode name=value pairs. The parameters we read may occur once; others are ignored (RFC 6749 section 4.1.2)."""
    if len(query) > MAX_QUERY:
        raise BrokerError(Code.REQUEST_TOO_LARGE)
    values: dict[str, str] = {}
    for pair in query.split(b"&"):
        raw_name, _, raw_value = pair.partition(b"=")
        name = decoded(raw_name)
        if name == "error_description":
            values["number"] = number_of(raw_value)
        if name is None or (name not in READ and name != code_param):
            continue
        value = decoded(raw_value)
        if name in values or value is None or (name == "error" and len(value) > MAX_ERROR):
            raise _malformed(name)
        values[name] = value
    return values


def decoded(raw: bytes) -> str | None:
    """Decode a name or a value. None for text that is no printable UTF-8."""
    try:
        text = unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _is_vschar(text: str) -> bool:
    """Tell whether the text is visible ASCII and space (RFC 6749 appendix A.11)."""
    return all(" " <= char <= "~" for char in text)
