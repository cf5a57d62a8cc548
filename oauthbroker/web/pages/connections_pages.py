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
    Desk,
    Ending,
    render_connections,
    render_disconnect,
    render_ending,
    render_invitation,
)
from oauthbroker.web.html.form_routes import Handler, route
from oauthbroker.web.pages.visitor_cookies import Visitor, VisitorHandler, Visitors

HOME = "/connections"


class ConnectionsPages:
    """The handlers. Each knows its visitor, asks `connections` for that visitor's own data, and renders a page."""

    def __init__(self, *, connections: Connections, settings: Settings, mac: csrf.Mac, clock: Clock) -> None:
        self._connections = connections
        self._visitors = Visitors(
            pages="connections", visits=connections.visits, settings=settings, mac=mac, clock=clock
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
            return self._visitors.see_other(HOME)
        await self._connections.visits.invited(ticket)
        key = self._visitors.key(request)
        page = render_invitation(self._desk(request, key, f"{LINK_PATH}/{ticket}"))
        return page.response(set_cookies=[self._visitors.key_cookie(key)])

    async def accept_invitation(self, request: Request) -> Response:
        """Accept the invitation: the link is used up, and this browser is admitted."""
        ticket = request.path_params["ticket"]
        await self._visitors.form(request, self._visitors.key(request), f"{LINK_PATH}/{ticket}")
        if await self._is_in_by(ticket, request):
            return self._visitors.see_other(HOME)
        return self._visitors.enter(HOME, await self._connections.open(ticket))

    async def show(self, request: Request, visitor: Visitor) -> Response:
        services = await self._connections.overview(visitor.visit)
        desk, done = self._desk(request, visitor.key), request.query_params.get("done", "")
        return render_connections(desk, services, done=done).response()

    async def ask_disconnect(self, request: Request, visitor: Visitor) -> Response:
        connection = await self._connections.find(visitor.visit, request.path_params["grant"])
        return render_disconnect(self._desk(request, visitor.key), connection).response()

    async def disconnect(self, request: Request, visitor: Visitor) -> Response:
        grant = request.path_params["grant"]
        await self._visitors.form(request, visitor.key, f"{HOME}/{grant}/disconnect")
        await self._connections.disconnect(visitor.visit, grant)
        return self._visitors.see_other(HOME + "?done=disconnected")

    def reconnect(self, way: str) -> VisitorHandler:
        """Redirect to the connect page, which asks for consent as usual: with `switch` for another account."""

        async def answer(request: Request, visitor: Visitor) -> Response:
            grant = request.path_params["grant"]
            await self._visitors.form(request, visitor.key, f"{HOME}/{grant}/{way}")
            return self._visitors.go(await self._connections.reconnect(visitor.visit, grant, switch=way == "switch"))

        return answer

    async def leave(self, request: Request, visitor: Visitor) -> Response:
        return await self._visitors.leave(request, visitor, HOME)

    async def show_left(self, request: Request) -> Response:
        return self._ending("left", request)

    async def _is_in_by(self, ticket: str, request: Request) -> bool:
        """Return whether that very link let this browser in: it was pressed twice, or the page was loaded anew."""
        visitor = await self._visitors.admit(request)
        return visitor is not None and self._connections.visits.is_of(visitor.visit, ticket)

    def _only(self, handler: VisitorHandler) -> Handler:
        """`handler` for browsers that were let in."""

        async def answer(request: Request) -> Response:
            visitor = await self._visitors.admit(request)
            if visitor is not None:
                return await handler(request, visitor)
            return self._ending("closed" if self._visitors.cookie(request) is not None else "unopened", request)

        return answer

    def _ending(self, ending: Ending, request: Request) -> Response:
        return render_ending(ending, self._visitors.locale(request)).response()

    def _desk(self, request: Request, key: str, form: str | None = None) -> Desk:
        """`form`: the path of the page's only form; else each form names its own."""
        visitors = self._visitors
        return Desk(
            locale=visitors.locale(request),
            now=visitors.clock.now(),
            url=visitors.url,
            token=lambda path: visitors.field(key, form or path),
        )
