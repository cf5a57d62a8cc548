"""The browsers of users and operators: their cookies, hidden form fields, languages and redirects.

Addresses are built from `publicBaseUrl`, never from a header of the request (case 85).
"""

from __future__ import annotations

import hmac
import re
from datetime import timedelta
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

from oauthbroker.core.clock import SET_BACK, Clock
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.model.settings import Settings
from oauthbroker.web.gate import csrf
from oauthbroker.web.html.form_routes import read_form
from oauthbroker.web.middleware.security_headers import security_headers
from oauthbroker.web.words import locale_of

CSRF_FIELD = "csrf"
BROWSER_COOKIE_SECONDS = 3600
ARRIVAL_SECONDS = 300  # for the way to the clean page, also through a runtime's page, and for reloads
_ARRIVAL = re.compile(r"([0-9]{1,12})-([A-Za-z0-9_-]{22})-([A-Za-z0-9_-]{43})")


class FormRefusedError(BrokerError):
    """`ownerBindingFailed` for a form of ours that was not given to this browser. `hint` says why, as far as it can be
    told; `page` is the address of the page with the form, to be loaded again."""

    def __init__(self, hint: str, page: str, note: str) -> None:
        super().__init__(Code.OWNER_BINDING_FAILED, note=note)
        self.hint, self.page = hint, page


class Browsers:
    """Paths begin with a slash and stand below `publicBaseUrl`."""

    def __init__(self, settings: Settings, mac: csrf.Mac, clock: Clock) -> None:
        self.clock = clock
        self._mac = mac
        self._base_url = settings.public_base_url.rstrip("/")
        self._origin = csrf.origin_of(settings.public_base_url)
        self._secure = settings.public_base_url.startswith("https:")
        self._key_name = csrf.browser_cookie_name(secure=self._secure)
        # no session's cookie has this name: theirs end in a locator, after `oab-`
        self._arrival_prefix = "__Host-oab_arrival-" if self._secure else "oab_arrival-"
        self._locale = settings.locale

    def locale(self, request: Request, of_turn: Locale | None = None) -> Locale:
        """Return the language that the browser asks for, else the turn's, else the broker's: the reader may be another
        person than the one that the turn knows."""
        return locale_of(request.headers.get("accept-language"), of_turn or self._locale)

    def url(self, path: str) -> str:
        return self._base_url + path

    def see_other(self, path: str, *cookies: str) -> Response:
        return self.go(self.url(path), *cookies)

    def go(self, url: str, *cookies: str) -> Response:
        """Redirect to an address that we made ourselves. `cookies` are whole values made by `csrf.cookie_header`."""
        response = Response(status_code=303, headers={**security_headers(), "location": url})
        response.raw_headers.extend((b"set-cookie", cookie.encode("ascii")) for cookie in cookies)
        return response

    def known_key(self, request: Request) -> str | None:
        return csrf.read_cookie(request.headers, self._key_name)

    def key(self, request: Request) -> str:
        """Return the browser's key, or a new one for `key_cookie`."""
        return self.known_key(request) or csrf.new_browser_key(self.clock)

    def key_cookie(self, key: str) -> str:
        return csrf.cookie_header(self._key_name, key, secure=self._secure, max_age=BROWSER_COOKIE_SECONDS)

    def field(self, key: str, path: str) -> str:
        """Return the hidden field of the form for `path`, in the browser of that key."""
        return csrf.csrf_token(self._mac, key, path)

    async def form(self, request: Request, key: str | None, path: str, page: str = "") -> dict[str, str]:
        """Return the fields of our own page's form, from the browser and to the path that it was made for (case 87).
        `page` is the path of the page with the form, if that is another one. Raises `ownerBindingFailed`,
        `requestInvalid`."""
        page = self.url(page or path)
        if not csrf.same_origin(request.headers, self._origin):
            raise FormRefusedError("formElsewhere", page, "the form came from elsewhere")
        fields = await read_form(request)
        if not csrf.csrf_matches(self._mac, key, path, fields.get(CSRF_FIELD)):
            hint = "formOutdated" if csrf.has_cookie(request.headers, self._key_name) else "noCookie"
            raise FormRefusedError(hint, page, "the form was not given to this browser")
        return fields

    def session(self, request: Request, name: str) -> str | None:
        """Return the cookie that ties this browser to a session, by the session's public locator."""
        return csrf.read_cookie(request.headers, csrf.session_cookie_name(name, secure=self._secure))

    def session_cookie(self, name: str, value: str, seconds: int) -> str:
        """Return the Set-Cookie value; no value and 0 seconds remove the cookie."""
        named = csrf.session_cookie_name(name, secure=self._secure)
        return csrf.cookie_header(named, value, secure=self._secure, max_age=seconds)

    def arrived(self, path: str, locator: str, result: str = "") -> Response:
        """Redirect to a clean page that tells this browser alone how its session ended. `result` is the path of that
        page, where another one comes first.

        The cookie holds the session's locator and its own end, under a MAC, so nothing is stored. A later session
        replaces it where its result has the same path.
        """
        until = str(int((self.clock.now() + timedelta(seconds=ARRIVAL_SECONDS)).timestamp()))
        value = f"{until}-{locator}-{csrf.tag(self._mac, 'arrival', until, locator)}"
        name = self._arrival_name(result or path)
        cookie = csrf.cookie_header(name, value, secure=self._secure, max_age=ARRIVAL_SECONDS)
        return self.see_other(path, cookie)

    def _arrival_name(self, path: str) -> str:
        return self._arrival_prefix + sha256(path.encode()).hexdigest()[:32]

    def arrived_from(self, request: Request, path: str) -> str | None:
        """Return the locator of the session whose result this browser just came to see at a path; None without one, or
        too long ago."""
        found = _ARRIVAL.fullmatch(csrf.read_cookie(request.headers, self._arrival_name(path)) or "")
        if found is None:
            return None
        until, locator, proof = found.groups()
        if not hmac.compare_digest(csrf.tag(self._mac, "arrival", until, locator), proof):
            return None
        left = int(until) - self.clock.now().timestamp()  # more than any had: the clock was set back since
        return locator if 0 < left <= ARRIVAL_SECONDS + SET_BACK.total_seconds() else None


def is_prefetch(request: Request) -> bool:
    """Return whether a browser fetches ahead of its user (Fetch standard, `Sec-Purpose`)."""
    said = " ".join(request.headers.get(name, "") for name in ("sec-purpose", "purpose", "x-moz"))
    return "prefetch" in said.lower() or "prerender" in said.lower()
