"""The cookie of a browser that just came from a session: only that browser is told on a clean page how it ended.

It holds the session's public locator and its own end, under a MAC; nothing is stored.
"""

from __future__ import annotations

import hmac
import re
from datetime import datetime, timedelta

from starlette.datastructures import Headers

from oauthbroker.core.clock import SET_BACK
from oauthbroker.web import csrf

SECONDS = 300  # time to get there, by way of a runtime's page too, and to look again
_VALUE = re.compile(r"([0-9]{1,12})-([A-Za-z0-9_-]{22})-([A-Za-z0-9_-]{43})")


def cookie_header(mac: csrf.Mac, locator: str, now: datetime, *, secure: bool) -> str:
    """The Set-Cookie value for a browser that came from the session `locator`. A later session replaces it."""
    until = str(int((now + timedelta(seconds=SECONDS)).timestamp()))
    value = f"{until}-{locator}-{csrf.tag(mac, 'arrival', until, locator)}"
    return csrf.cookie_header(_name(secure=secure), value, secure=secure, max_age=SECONDS)


def locator_of(mac: csrf.Mac, headers: Headers, now: datetime, *, secure: bool) -> str | None:
    """The session that this browser just came from; None for a browser that came from none, or too long ago."""
    found = _VALUE.fullmatch(csrf.read_cookie(headers, _name(secure=secure)) or "")
    if found is None:
        return None
    until, locator, proof = found.groups()
    if not hmac.compare_digest(csrf.tag(mac, "arrival", until, locator), proof):
        return None
    left = int(until) - now.timestamp()  # more than any had: the clock was set back since
    return locator if 0 < left <= SECONDS + SET_BACK.total_seconds() else None


def _name(*, secure: bool) -> str:
    """No session's cookie is called so: theirs end in a locator, after `oab-`."""
    return "__Host-oab_arrival" if secure else "oab_arrival"
