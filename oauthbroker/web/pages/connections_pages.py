"""`/connections`: a user's own page, opened by a one-time link, to see, end and reconnect accounts."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from oauthbroker.core.clock import Clock
from oauthbroker.grants.connections import LINK_PATH, Connections
from oauthbroker.model.settings import Settings
from oauthbroker.web.gate import csrf
from oauthbroker.web.html.connections_html import (
    Ending,
    UserLayout,
    render_connections,
    render_disconnect,
    render_ending,
    render_invitation,
)
from oauthbroker.web.html.form_routes import Handler, route
from oauthbroker.web.pages.page_user_cookies import PageUser, PageUserHandler, PageUsers

HOME = "/connections"


class ConnectionsPages:
    """The handlers. Each knows its user, asks `connections` for that user's own data, and renders a page."""

    def __init__(self, *, connections: Connections, settings: Settings, mac: csrf.Mac, clock: Clock) -> None:
        self._connections = connections
        self._page_users = PageUsers(
            pages="connections", browser_sessions=connections.browser_sessions, settings=settings, mac=mac, clock=clock
        )

    def routes(self) -> list[BaseRoute]:
        only = self._only
        return [
            route(LINK_PATH + "/{ticket}", self.show_invitation, "GET"),
            route(LINK_PATH + "/{ticket}", self.accept_invitation, "POST"),
            route(HOME, only(self.show), "GET"),
            route(HOME + "/leave", only(self.leave), "POST"),
            route(HOME + "/left", self.show_left, "GET"),
            route(HOME + "/{grant}/disconnect", only(self.ask_disconnect), "GET"),
            route(HOME + "/{grant}/disconnect", only(self.disconnect), "POST"),
            *(route(f"{HOME}/{{grant}}/{way}", only(self.reconnect(way)), "POST") for way in ("switch", "again")),
        ]

    async def show_invitation(self, request: Request) -> Response:
        """Show the invitation's button. Changes nothing: chat applications fetch links before people do, and often."""
        ticket = request.path_params["ticket"]
        if await self._is_in_by(ticket, request):
            return self._page_users.see_other(HOME)
        await self._connections.browser_sessions.invited(ticket)
        key = self._page_users.key(request)
        page = render_invitation(self._layout(request, key, f"{LINK_PATH}/{ticket}"))
        return page.response(set_cookies=[self._page_users.key_cookie(key)])

    async def accept_invitation(self, request: Request) -> Response:
        """Accept the invitation: the link is used up, and this browser is admitted."""
        ticket = request.path_params["ticket"]
        path = f"{LINK_PATH}/{ticket}"
        await self._page_users.form(request, self._page_users.key(request), path, path)
        if await self._is_in_by(ticket, request):
            return self._page_users.see_other(HOME)
        return self._page_users.enter(HOME, await self._connections.open(ticket))

    async def enter(self, request: Request, user: str, auth_session: str) -> Response:
        """Admit the browser that an authorization has just proven to be this user's, without a link. Raises
        `stateUsed`."""
        page_user = await self._page_users.admit(request)
        if page_user is not None and page_user.browser_session.subject("user") == user:
            return self._page_users.see_other(HOME)
        return self._page_users.enter(HOME, await self._connections.enter_once(user, auth_session))

    async def show(self, request: Request, page_user: PageUser) -> Response:
        services = await self._connections.overview(page_user.browser_session)
        layout, done = self._layout(request, page_user.key), request.query_params.get("done", "")
        return render_connections(layout, services, done=done).response()

    async def ask_disconnect(self, request: Request, page_user: PageUser) -> Response:
        connection = await self._connections.find(page_user.browser_session, request.path_params["grant"])
        return render_disconnect(self._layout(request, page_user.key), connection).response()

    async def disconnect(self, request: Request, page_user: PageUser) -> Response:
        grant = request.path_params["grant"]
        await self._page_users.form(request, page_user.key, f"{HOME}/{grant}/disconnect")
        done = await self._connections.disconnect(page_user.browser_session, grant)
        return self._page_users.see_other(f"{HOME}?done={'nothing' if done is None else 'disconnected'}")

    def reconnect(self, way: str) -> PageUserHandler:
        """Redirect to the connect page, which asks for consent as usual: with `switch` for another account."""

        async def answer(request: Request, page_user: PageUser) -> Response:
            grant = request.path_params["grant"]
            await self._page_users.form(request, page_user.key, f"{HOME}/{grant}/{way}")
            return self._page_users.go(
                await self._connections.reconnect(page_user.browser_session, grant, switch=way == "switch")
            )

        return answer

    async def leave(self, request: Request, page_user: PageUser) -> Response:
        return await self._page_users.leave(request, page_user, HOME)

    async def show_left(self, request: Request) -> Response:
        return self._ending("left", request)

    async def _is_in_by(self, ticket: str, request: Request) -> bool:
        """Return whether that very link let this browser in: it was pressed twice, or the page was loaded anew."""
        page_user = await self._page_users.admit(request)
        return page_user is not None and self._connections.browser_sessions.is_of(page_user.browser_session, ticket)

    def _only(self, handler: PageUserHandler) -> Handler:
        """`handler` for browsers that were let in."""

        async def answer(request: Request) -> Response:
            page_user = await self._page_users.admit(request)
            if page_user is not None:
                return await handler(request, page_user)
            return self._ending("closed" if self._page_users.cookie(request) is not None else "unopened", request)

        return answer

    def _ending(self, ending: Ending, request: Request) -> Response:
        return render_ending(ending, self._page_users.locale(request)).response()

    def _layout(self, request: Request, key: str, form: str | None = None) -> UserLayout:
        """`form`: the path of the page's only form; else each form names its own."""
        page_users = self._page_users
        return UserLayout(
            locale=page_users.locale(request),
            now=page_users.clock.now(),
            url=page_users.url,
            token=lambda path: page_users.field(key, form or path),
        )
