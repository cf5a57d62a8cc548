"""The pages after an authorization: connected, with the choice between several elements, and declined."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from oauthbroker.authorization.page_results import AuthorizationEnd
from oauthbroker.authorization.pages_service import PagesService
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.connect_links import locator_of
from oauthbroker.web.gate.browsers import Browsers
from oauthbroker.web.html import ending_html
from oauthbroker.web.html.ending_html import CHOICE_FIELD
from oauthbroker.web.html.form_routes import route

CONNECTED = "/connected/{app}"
DECLINED = "/declined/{app}"
CHOICE = "/next/{session}/choice"
_NUMBER = re.compile(r"[0-9]{1,3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingPages:
    """The handlers. `enter` opens the connections of a user who is proven."""

    consent: PagesService
    browsers: Browsers
    enter: Callable[[Request, str, str], Awaitable[Response]]

    def routes(self) -> list[BaseRoute]:
        return [
            route(CONNECTED, self.show_connected, "GET"),
            route(CONNECTED, self.open_connections, "POST"),
            route(DECLINED, self.show_declined, "GET"),
            route(CHOICE, self.choose, "POST"),
        ]

    async def show_connected(self, request: Request) -> Response:
        """Show the result at a clean address after the callback, so that no code stays in the history (case 92)."""
        ending = await self._just_ended(request)
        locale, key = self.browsers.locale(request, ending.locale), self.browsers.key(request)
        if ending.candidates:
            path = CHOICE.format(session=f"as-{ending.locator}")
            page = ending_html.render_choice(ending, self.browsers.url(path), self.browsers.field(key, path), locale)
        else:
            token = self.browsers.field(key, CONNECTED.format(app=ending.app.name)) if ending.user else ""
            page = ending_html.render_done(ending, token, locale)
        return page.response(set_cookies=[self.browsers.key_cookie(key)])

    async def open_connections(self, request: Request) -> Response:
        """Handle the button to the user's connections, in the browser that has just proven to be that user."""
        path = CONNECTED.format(app=request.path_params["app"])
        await self.browsers.form(request, self.browsers.key(request), path)
        ending = await self._just_ended(request)
        if not ending.user:
            raise BrokerError(Code.STATE_UNKNOWN, note="this browser has not proven to be the user")
        return await self.enter(request, ending.user, ending.locator)

    async def choose(self, request: Request) -> Response:
        """Handle the user's choice, and show the result anew. Without a choice the page comes again."""
        session = request.path_params["session"]
        key, path = self.browsers.key(request), CHOICE.format(session=session)
        fields = await self.browsers.form(request, key, path, f"/next/{session}")
        locator, said = locator_of(session), fields.get(CHOICE_FIELD, "")
        if not _NUMBER.fullmatch(said):
            raise BrokerError(Code.REQUEST_INVALID, note="choice")
        app = await self.consent.choose(locator, self.browsers.session(request, locator), int(said))
        return self.browsers.arrived(f"/connected/{app.name}", locator)

    async def show_declined(self, request: Request) -> Response:
        ending = await self._just_ended(request, DECLINED, Code.PROVIDER_DENIED)
        locale = self.browsers.locale(request, ending.locale)
        return ending_html.render_outcome("denied", None, ending.app.display_name, locale).response()

    async def _just_ended(self, request: Request, place: str = CONNECTED, code: Code | None = None) -> AuthorizationEnd:
        """Return the end of this browser's session, if that was with `code`. Every other browser is told that there is
        nothing here, for every name of an app."""
        app, ending = request.path_params["app"], None
        locator = self.browsers.arrived_from(request, place.format(app=app))
        if locator is not None:
            ending = await self.consent.outcome(app, locator, self.browsers.session(request, locator))
        if ending is None or ending.code is not code:
            raise HTTPException(404)
        return ending
