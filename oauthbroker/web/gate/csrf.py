"""Proof that a form was sent by the browser that was shown it: a MAC bound to cookie and ticket, and Origin.

Stateless: nothing is stored, so showing a page changes nothing (chat apps prefetch links).
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from oauthbroker.core.clock import Clock, random_text

Mac = Callable[[bytes], bytes]  # a keyed function of the keyring, its key used for nothing else
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")  # 256 bits as base64url
_COOKIE_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_COOKIE_VALUE = re.compile(r"[A-Za-z0-9_-]{0,512}")
_DEFAULT_PORTS = {"https": 443, "http": 80}


def new_browser_key(clock: Clock) -> str:
    """Return a fresh random cookie value, 256 bits."""
    return random_text(clock, 256)


def csrf_token(mac: Mac, browser_key: str, ticket: str) -> str:
    """Return the hidden field for one ticket's form in one browser."""
    return tag(mac, "csrf", browser_key, ticket)


def tag(mac: Mac, label: str, *parts: str) -> str:
    """Return a MAC over texts, as text. `label` keeps its uses apart; inputs are length-prefixed, so none can slide."""
    encoded = [part.encode() for part in (label, *parts)]
    message = b"".join(len(part).to_bytes(4, "big") + part for part in encoded)
    return urlsafe_b64encode(mac(message)).rstrip(b"=").decode()


def csrf_matches(mac: Mac, browser_key: str | None, ticket: str, presented: str | None) -> bool:
    """Return whether `presented` is the field of this ticket and this browser, in constant time."""
    if browser_key is None or presented is None or not _TOKEN.fullmatch(browser_key):
        return False
    expected = csrf_token(mac, browser_key, ticket)
    return hmac.compare_digest(expected.encode(), presented.encode("utf-8", "replace"))


def origin_of(base_url: str) -> str:
    """`scheme://host[:port]` as a browser writes it in Origin (RFC 6454 section 6.2): lower case, no default port."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = parts.port
    return f"{parts.scheme}://{host}" + ("" if port in {None, _DEFAULT_PORTS.get(parts.scheme)} else f":{port}")


def same_origin(headers: Headers, public_origin: str) -> bool:
    """Return whether a form came from our own page. `public_origin` is made by `origin_of`.

    Origin decides; only where it is absent does Sec-Fetch-Site. `null`, doubled or contradicting headers are refused.
    """
    origins = headers.getlist("origin")
    sites = headers.getlist("sec-fetch-site")
    if len(origins) > 1 or len(sites) > 1:
        return False
    if sites and sites[0] != "same-origin":
        return False
    return origins[0] == public_origin if origins else bool(sites)


def session_cookie_name(locator: str, *, secure: bool) -> str:
    """Return the cookie of one session in one browser: `__Host-oab-<locator>`, on loopback http `oab-<locator>`."""
    return f"__Host-oab-{locator}" if secure else f"oab-{locator}"


def browser_cookie_name(*, secure: bool) -> str:
    """Return the cookie behind the hidden field, one for all forms of a browser."""
    return "__Host-oab" if secure else "oab"


def cookie_header(name: str, value: str, *, secure: bool, max_age: int) -> str:
    """Return a Set-Cookie value (RFC 6265bis): HttpOnly, SameSite=Lax, Path=/, never a Domain; `max_age` in seconds.

    `max_age=0` with an empty value removes the cookie. Raises ValueError for what could break out of its place.
    """
    if not _COOKIE_NAME.fullmatch(name) or not _COOKIE_VALUE.fullmatch(value):
        raise ValueError("a cookie of characters that we never use")
    if name.startswith("__Host-") and not secure:
        raise ValueError("browsers drop a __Host- cookie that is not Secure")
    return f"{name}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")


def has_cookie(headers: Headers, prefix: str) -> bool:
    """Return whether a browser sends any cookie whose name begins like ours."""
    return any(pair.startswith(prefix) for pair in _cookies(headers))


def read_cookie(headers: Headers, name: str) -> str | None:
    """Return the value of our cookie `name`, or None: absent, doubled (cookie tossing), quoted or misshapen."""
    values = [value for key, _, value in (pair.partition("=") for pair in _cookies(headers)) if key == name]
    if len(values) != 1 or not values[0] or not _COOKIE_VALUE.fullmatch(values[0]):
        return None
    return values[0]


def _cookies(headers: Headers) -> list[str]:
    """Return each `name=value`. Only space and tab are trimmed: anything wider would let a name behind U+2000 pass for
    `__Host-x`."""
    return [pair.strip(" \t") for header in headers.getlist("cookie") for pair in header.split(";")]
