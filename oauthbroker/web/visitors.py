"""People who visit pages of their own: the cookie that speaks for them, and the proof that a form is theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.model.settings import Settings
from oauthbroker.operations.browser_sessions import VISIT_SECONDS, BrowserSessions, NewBrowserSession
from oauthbroker.records.browser_session import BrowserSession, Pages
from oauthbroker.web import csrf
from oauthbroker.web.pages import CSRF_FIELD
from oauthbroker.web.policy import security_headers
from oauthbroker.web.routes import Handler, read_form
from oauthbroker.web.words import locale_of

BROWSER_COOKIE_SECONDS = 3600
_LOCATOR_LENGTH = 22


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who was let in. `key` is this browser's, and goes into forms as their MAC only."""

    visit: BrowserSession
    key: str

    def __repr__(self) -> str:
        return f"Visitor({self.visit!r})"


class Visitors:
    """Those of one kind of pages. Paths begin with a slash and stand below `publicBaseUrl`."""

    def __init__(self, pages: Pages, visits: BrowserSessions, settings: Settings, mac: csrf.Mac, clock: Clock) -> None:
        self.pages: Pages = pages
        self.visits = visits
        self.clock = clock
        self._base_url = settings.public_base_url.rstrip("/")
        self._origin = csrf.origin_of(settings.public_base_url)
        self._secure = settings.public_base_url.startswith("https:")
        self._locale = settings.locale
        self._mac = mac

    def only(
        self, handler: Callable[[Request, Visitor], Awaitable[Response]], otherwise: Callable[[Request], Response]
    ) -> Handler:
        """`handler` for those who were let in; whoever was not gets `otherwise`."""

        async def answer(request: Request) -> Response:
            visitor = await self.admit(request)
            return otherwise(request) if visitor is None else await handler(request, visitor)

        return answer

    async def admit(self, request: Request) -> Visitor | None:
        cookie = self.cookie(request)
        visit = await self.visits.admit(cookie, self.pages)
        return None if visit is None or cookie is None else Visitor(visit, cookie[_LOCATOR_LENGTH:])

    def cookie(self, request: Request) -> str | None:
        """The one that speaks for a visitor, as it is sent; None from a browser that has none."""
        return csrf.read_cookie(request.headers, self._cookie_name)

    def browser_key(self, request: Request) -> str:
        """Of a browser that nobody was let in with: the one it has, or a new one to be set by `browser_cookie`."""
        name = csrf.browser_cookie_name(secure=self._secure)
        return csrf.read_cookie(request.headers, name) or csrf.new_browser_key(self.clock)

    def browser_cookie(self, key: str) -> str:
        name = csrf.browser_cookie_name(secure=self._secure)
        return csrf.cookie_header(name, key, secure=self._secure, max_age=BROWSER_COOKIE_SECONDS)

    def cookie_of(self, arrival: NewBrowserSession) -> str:
        return csrf.cookie_header(
            self._cookie_name, arrival.cookie.reveal(), secure=self._secure, max_age=VISIT_SECONDS
        )

    def no_cookie(self) -> str:
        return csrf.cookie_header(self._cookie_name, "", secure=self._secure, max_age=0)

    def field(self, key: str, path: str) -> str:
        """The hidden field of the form that goes to `path`, in the browser of that key."""
        return csrf.csrf_token(self._mac, key, path)

    async def form(self, request: Request, key: str | None, path: str) -> dict[str, str]:
        """The fields of a form of our own page, sent by the browser that got it to the path it was made for (case 87).

        Raises `ownerBindingFailed`, `requestInvalid`.
        """
        if not csrf.same_origin(request.headers, self._origin):
            raise BrokerError(Code.OWNER_BINDING_FAILED, note="the form came from elsewhere")
        fields = await read_form(request)
        if not csrf.csrf_matches(self._mac, key, path, fields.get(CSRF_FIELD)):
            raise BrokerError(Code.OWNER_BINDING_FAILED, note="the form was not given to this browser")
        return fields

    def url(self, path: str) -> str:
        """Built from `publicBaseUrl`, never from what the request says about itself (case 85)."""
        return self._base_url + path

    def see_other(self, path: str, *cookies: str) -> Response:
        return self.go(self.url(path), *cookies)

    def go(self, url: str, *cookies: str) -> Response:
        """To an address that we made ourselves."""
        response = Response(status_code=303, headers={**security_headers(), "location": url})
        for cookie in cookies:
            response.raw_headers.append((b"set-cookie", cookie.encode("ascii")))
        return response

    def locale(self, request: Request) -> Locale:
        return locale_of(request.headers.get("accept-language", ""), self._locale)

    @property
    def _cookie_name(self) -> str:
        return csrf.session_cookie_name(self.pages, secure=self._secure)
