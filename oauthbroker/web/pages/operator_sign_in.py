"""The sign-in of one operator's browser: a cookie of minutes from which all values of the attempt are derived.

Nothing is stored until the operator is known, so strangers fill no store. The cookie holds random bits, its end and the
page to come back to, under a MAC; state, nonce and code verifier are MACs over it. The provider redeems a code once,
and the cookie ends with its callback.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from starlette.requests import Request

from oauthbroker.admin.operator_login import attempt_from
from oauthbroker.core.clock import random_text
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.records import Attempt
from oauthbroker.web.gate import csrf
from oauthbroker.web.gate.browsers import Browsers, is_prefetch

SIGN_IN_SECONDS: Final = 600
_NAME: Final = "admin-sign-in"
_COOKIE: Final = re.compile(r"([0-9]{12})([01])[A-Za-z0-9_-]{43}([A-Za-z0-9_-]{0,300})")
_PATH: Final = re.compile(r"(/[A-Za-z0-9_.~%:-]+){0,6}(\?[A-Za-z0-9_.~%=&:+-]*)?")
_MOST_PATH: Final = 200
_TAG_LENGTH: Final = 43


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """One sign-in. `to` is the path below `/admin` at which it ends; `again`: the person must prove anew who they
    are. `cookie` is this browser's proof that it began."""

    to: str
    again: bool
    cookie: str = field(repr=False)
    attempt: Attempt


class SignIns:
    """The sign-ins of operators' browsers."""

    def __init__(self, browsers: Browsers, mac: csrf.Mac) -> None:
        self._browsers, self._clock, self._mac = browsers, browsers.clock, mac

    def begin(self, to: str, *, again: bool) -> SignIn:
        """Begin a sign-in. An address that is none of ours becomes the first page."""
        until = int((self._clock.now() + timedelta(seconds=SIGN_IN_SECONDS)).timestamp())
        path = path_of(to)
        coded = urlsafe_b64encode(path.encode()).rstrip(b"=").decode()
        return self._made(f"{until:012}{int(again)}{random_text(self._clock, 256)}{coded}", path, again=again)

    def cookie(self, sign_in: SignIn) -> str:
        return self._browsers.session_cookie(_NAME, sign_in.cookie, SIGN_IN_SECONDS)

    def forget(self) -> Sequence[str]:
        """Return the cookies that end a sign-in."""
        return (self._browsers.session_cookie(_NAME, "", 0),)

    def returned(self, request: Request) -> SignIn:
        """Return the sign-in that this browser began. Raises `callbackMalformed` for a prefetch, and `stateUnknown` for
        a browser that began none, or too long ago."""
        if is_prefetch(request):
            raise BrokerError(Code.CALLBACK_MALFORMED, note="prefetch")
        sign_in = self._known(self._browsers.session(request, _NAME))
        if sign_in is None:
            raise BrokerError(Code.STATE_UNKNOWN)
        return sign_in

    def _known(self, cookie: str | None) -> SignIn | None:
        value, proof = (cookie or "")[:-_TAG_LENGTH], (cookie or "")[-_TAG_LENGTH:]
        found = _COOKIE.fullmatch(value)
        if found is None or not hmac.compare_digest(self._tag("cookie", value), proof):
            return None
        left = int(found[1]) - self._clock.now().timestamp()  # more than any had: the clock was set back since
        if not 0 < left <= SIGN_IN_SECONDS:
            return None
        path = urlsafe_b64decode(found[3] + "=" * (-len(found[3]) % 4)).decode()
        return self._made(value, path, again=found[2] == "1")

    def _made(self, value: str, to: str, *, again: bool) -> SignIn:
        attempt = attempt_from(lambda label: self._tag(label, value))
        return SignIn(to=to, again=again, cookie=value + self._tag("cookie", value), attempt=attempt)

    def _tag(self, label: str, value: str) -> str:
        return csrf.tag(self._mac, f"sign-in {label}", value)


def path_of(to: str) -> str:
    """Return the path below `/admin` that an address names; empty for anything else."""
    return to if len(to) <= _MOST_PATH and _PATH.fullmatch(to) else ""
