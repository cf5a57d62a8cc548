"""The authorization response (RFC 6749 section 4.1.2): read strictly, then judged against the session it names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from urllib.parse import unquote_to_bytes

from oauthbroker.apps import OAuthApp
from oauthbroker.errors import BrokerError, Code
from oauthbroker.records import Attempt, AuthSession
from oauthbroker.secret import Secret

LOCATOR_LENGTH = 22
STATE = re.compile(r"[A-Za-z0-9_-]{65}")
MAX_QUERY = 32 * 1024  # room for a chatty error_description, which is never read (case 8); what we read is far smaller
MAX_CODE = 4 * 1024
MAX_ERROR = 128


@dataclass(frozen=True, slots=True)
class CallbackParams:
    """What came in, single-valued and of sane size. Exactly one of `code` and `denied` is set."""

    state: Secret
    code: Secret | None
    denied: bool
    issuer: str | None

    @property
    def locator(self) -> str:
        return self.state.reveal()[:LOCATOR_LENGTH]


@dataclass(frozen=True, slots=True)
class ValidCallback:
    """A code that belongs to this session, this app and this browser. Only `check_response` makes one, at the end
    of every check of a callback, and `unparked` out of one that passed them."""

    code: Secret


def parse_callback(query: bytes) -> CallbackParams:
    """Reads the raw query string of a callback.

    One `state`, then one `code` or one `error`; `error` beats `code` (case 9); anything twice, missing, too long or
    unprintable raises `callbackMalformed`, before any store is asked. The provider's `error_description` is not read.
    """
    values = _single_values(query)
    state, code, error = values.get("state", ""), values.get("code"), values.get("error")
    if not STATE.fullmatch(state):
        raise BrokerError(Code.CALLBACK_MALFORMED, note="state")
    if error is not None:
        return CallbackParams(Secret(state), None, True, values.get("iss"))
    if not code or len(code) > MAX_CODE or not _is_vschar(code):
        raise BrokerError(Code.CALLBACK_MALFORMED, note="code")
    return CallbackParams(Secret(state), Secret(code), False, values.get("iss"))


def validate_callback(
    params: CallbackParams,
    session: AuthSession | None,
    app: OAuthApp,
    cookie: str | None,
    *,
    issuer: str,
    issuer_promised: bool,
    now: datetime,
) -> ValidCallback:
    """Judges in this order (cases 1 to 17):

    (1) the session exists and its state is this one, compared in constant time
    (2) it was opened for this very app
    (3) it has not ended, (4) nobody has come back with it, (5) it has not expired
    (6) the browser is the one that left for the provider
    (7) the response's issuer is the provider's (RFC 9207)
    (8) the person agreed

    Raises stateUnknown, appMismatch, stateUsed, stateExpired, ownerBindingFailed, issuerMismatch, providerDenied.
    """
    if session is None or not session.attempt.state.matches(params.state.reveal()):  # (1)
        raise BrokerError(Code.STATE_UNKNOWN)
    if session.app != app.name:  # (2)
        raise BrokerError(Code.APP_MISMATCH)
    if session.status == "expired":
        raise BrokerError(Code.STATE_EXPIRED)
    if not session.open or session.taken:  # (3) (4)
        raise BrokerError(Code.STATE_USED)
    if now >= session.expires_at:  # (5)
        raise BrokerError(Code.STATE_EXPIRED)
    if (needs_cookie(session) or app.owner.vouching is not None) and not cookie_fits(session, cookie):  # (6)
        raise BrokerError(Code.OWNER_BINDING_FAILED)
    return check_response(params, issuer, promised=issuer_promised)  # (7) (8)


def check_response(params: CallbackParams, issuer: str, *, promised: bool) -> ValidCallback:
    """Judge what is left of a response whose session and browser are known: who it is from (RFC 9207 section 2.4),
    and whether the person agreed. Raises issuerMismatch, providerDenied.

    A promised `iss` may be missing from an error: some providers leave it out there, and an error has no code that
    could go to the wrong provider.
    """
    if params.issuer is not None and (not issuer or params.issuer != issuer):
        raise BrokerError(Code.ISSUER_MISMATCH)
    if params.code is None:
        raise BrokerError(Code.PROVIDER_DENIED)
    if params.issuer is None and promised:
        raise BrokerError(Code.ISSUER_MISMATCH)
    return ValidCallback(params.code)


def unparked(session: AuthSession, now: datetime) -> ValidCallback:
    """The code that was parked when its callback was found valid. Raises `stateUnknown` when there is none, or when
    its time is over."""
    if not session.open or session.parked is None or now >= session.parked.until:
        raise BrokerError(Code.STATE_UNKNOWN)
    return ValidCallback(session.parked.code)


def needs_cookie(session: AuthSession) -> bool:
    """All but a direct link that nobody has taken through the connect page."""
    return session.link != "direct" or session.attempt.cookie is not None


def cookie_fits(session: AuthSession, cookie: str | None) -> bool:
    """Whether this browser is the one that pressed the button; only the cookie's hash is kept."""
    return attempt_cookie_fits(session.attempt, cookie)


def attempt_cookie_fits(attempt: Attempt, cookie: str | None) -> bool:
    """Whether this browser is the one that took this attempt along."""
    if cookie is None or attempt.cookie is None:
        return False
    return Secret(attempt.cookie).matches(cookie_hash(cookie))


def cookie_hash(cookie: str) -> str:
    return sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest()


def _single_values(query: bytes) -> dict[str, str]:
    """Decodes name=value pairs; the parameters we read may come once only. Others are ignored (RFC 6749 4.1.2)."""
    if len(query) > MAX_QUERY:
        raise BrokerError(Code.REQUEST_TOO_LARGE)
    values: dict[str, str] = {}
    for pair in query.split(b"&"):
        raw_name, _, raw_value = pair.partition(b"=")
        name = _text(raw_name)
        if name not in {"state", "code", "error", "iss"}:
            continue
        value = _text(raw_value)
        if name in values or value is None or (name == "error" and len(value) > MAX_ERROR):
            raise BrokerError(Code.CALLBACK_MALFORMED, note=name)
        values[name] = value
    return values


def _text(raw: bytes) -> str | None:
    try:
        text = unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _is_vschar(text: str) -> bool:
    """RFC 6749 appendix A.11: visible ASCII and space."""
    return all(" " <= char <= "~" for char in text)
