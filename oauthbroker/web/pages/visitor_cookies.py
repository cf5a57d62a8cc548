"""The visitors of `/connections` and `/admin`: the cookie that speaks for them, and who is let in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from oauthbroker.access.browser_sessions import VISIT_SECONDS, BrowserSessions, NewBrowserSession
from oauthbroker.core.clock import Clock
from oauthbroker.model.settings import Settings
from oauthbroker.records.browser_session import BrowserSession, Pages
from oauthbroker.web.gate import csrf
from oauthbroker.web.gate.browsers import Browsers
from oauthbroker.web.middleware.access_log import note_known

_LOCATOR_LENGTH = 22


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person who was let in. `key` is this browser's, and goes into forms as their MAC only."""

    visit: BrowserSession
    key: str = field(repr=False)


VisitorHandler = Callable[[Request, Visitor], Awaitable[Response]]


class Visitors(Browsers):
    """The browsers of one kind of pages."""

    def __init__(
        self, *, pages: Pages, visits: BrowserSessions, settings: Settings, mac: csrf.Mac, clock: Clock
    ) -> None:
        super().__init__(settings, mac, clock)
        self.pages: Pages = pages
        self.visits = visits

    async def admit(self, request: Request) -> Visitor | None:
        cookie = self.cookie(request)
        visit = await self.visits.admit(cookie, self.pages)
        if visit is None or cookie is None:
            return None
        note_known(request.scope)
        return Visitor(visit, cookie[_LOCATOR_LENGTH:])

    def cookie(self, request: Request) -> str | None:
        """Return the cookie that speaks for a visitor; None from a browser without one."""
        return self.session(request, self.pages)

    def enter(self, home: str, arrival: NewBrowserSession, *cookies: str) -> Response:
        """Redirect to the first page, with the new visitor's cookie and others of ours."""
        mine = self.session_cookie(self.pages, arrival.cookie.reveal(), VISIT_SECONDS)
        return self.see_other(home, mine, *cookies)

    async def leave(self, request: Request, visitor: Visitor, home: str) -> Response:
        """End the visit, and remove the cookie."""
        await self.form(request, visitor.key, home + "/leave")
        await self.visits.end(visitor.visit)
        return self.see_other(home + "/left", self.session_cookie(self.pages, "", 0))
