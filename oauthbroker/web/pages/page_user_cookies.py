"""The users of `/connections` and `/admin`: the cookie that speaks for them, and who is let in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from oauthbroker.access.browser_sessions import BROWSER_SESSION_SECONDS, BrowserSessions, NewBrowserSession
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.model.settings import Settings
from oauthbroker.records.browser_session import BrowserSession, Pages
from oauthbroker.web.gate import csrf
from oauthbroker.web.gate.browsers import Browsers
from oauthbroker.web.middleware.access_log import note_known

_LOCATOR_LENGTH = 22


@dataclass(frozen=True, slots=True)
class PageUser:
    """A person who was let in. `key` is this browser's, and goes into forms as their MAC only."""

    browser_session: BrowserSession
    key: str = field(repr=False)


PageUserHandler = Callable[[Request, PageUser], Awaitable[Response]]


class PageUsers(Browsers):
    """The browsers of one kind of pages."""

    def __init__(
        self, *, pages: Pages, browser_sessions: BrowserSessions, settings: Settings, mac: csrf.Mac, clock: Clock
    ) -> None:
        super().__init__(settings, mac, clock)
        self.pages: Pages = pages
        self.browser_sessions = browser_sessions

    async def form(self, request: Request, key: str | None, path: str, page: str = "") -> dict[str, str]:
        return await super().form(request, key, path, page or f"/{self.pages}")

    async def admit(self, request: Request) -> PageUser | None:
        cookie = self.cookie(request)
        browser_session = await self.browser_sessions.admit(cookie, self.pages)
        if browser_session is None or cookie is None:
            return None
        note_known(request.scope)
        return PageUser(browser_session, cookie[_LOCATOR_LENGTH:])

    def cookie(self, request: Request) -> str | None:
        """Return the cookie that speaks for a user; None from a browser without one."""
        return self.session(request, self.pages)

    def enter(self, home: str, arrival: NewBrowserSession, *cookies: str) -> Response:
        """Redirect to the first page, with the new user's cookie and others of ours."""
        mine = self.session_cookie(self.pages, arrival.cookie.reveal(), BROWSER_SESSION_SECONDS)
        return self.see_other(home, mine, *cookies)

    async def leave(self, request: Request, page_user: PageUser, home: str) -> Response:
        """End the browser session, and remove the cookie."""
        await self.form(request, page_user.key, home + "/leave")
        await self.browser_sessions.end(page_user.browser_session)
        return self.see_other(home + "/left", self.session_cookie(self.pages, "", 0))
