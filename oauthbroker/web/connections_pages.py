"""`/connections`: a person's own page, opened by a one-time link; what is connected, ended and connected anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from oauthbroker.core.clock import Clock
from oauthbroker.model.settings import Settings
from oauthbroker.operations.connections import LINK_PATH, Connections
from oauthbroker.web import csrf
from oauthbroker.web.connections_views import (
    Desk,
    Ending,
    done_words,
    render_connections,
    render_disconnect,
    render_ending,
    render_invitation,
)
from oauthbroker.web.routes import Handler, route
from oauthbroker.web.visitors import Visitor, Visitors

HOME = "/connections"


class ConnectionsPages:
    """The handlers. Each knows its visitor, asks `connections` for what is that visitor's own, and renders a page."""

    def __init__(self, connections: Connections, settings: Settings, mac: csrf.Mac, clock: Clock) -> None:
        self._connections = connections
        self._visitors = Visitors("connections", connections.visits, settings, mac, clock)
        self._clock = clock

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
            route(HOME + "/{grant}/switch", only(self.switch), "POST"),
            route(HOME + "/{grant}/again", only(self.agree_again), "POST"),
        ]

    async def show_invitation(self, request: Request) -> Response:
        """A button. Changes nothing, whoever fetches it and how often: chat applications fetch links before people."""
        ticket = request.path_params["ticket"]
        if await self._is_in_by(ticket, request):
            return self._visitors.see_other(HOME)
        await self._connections.visits.invited(ticket)
        key = self._visitors.browser_key(request)
        page = render_invitation(self._desk(request, lambda _: self._visitors.field(key, f"{LINK_PATH}/{ticket}")))
        return page.response(set_cookies=[self._visitors.browser_cookie(key)])

    async def accept_invitation(self, request: Request) -> Response:
        """The button: the link is used up, and this browser is let in."""
        ticket = request.path_params["ticket"]
        await self._visitors.form(request, self._visitors.browser_key(request), f"{LINK_PATH}/{ticket}")
        if await self._is_in_by(ticket, request):
            return self._visitors.see_other(HOME)
        arrival = await self._connections.open(ticket)
        return self._visitors.see_other(HOME, self._visitors.cookie_of(arrival))

    async def show(self, request: Request, visitor: Visitor) -> Response:
        services = await self._connections.overview(visitor.visit)
        desk = self._desk_of(request, visitor)
        return render_connections(
            desk, services, done=done_words(request.query_params.get("done"), desk.text)
        ).response()

    async def ask_disconnect(self, request: Request, visitor: Visitor) -> Response:
        connection = await self._connections.find(visitor.visit, request.path_params["grant"])
        return render_disconnect(self._desk_of(request, visitor), connection).response()

    async def disconnect(self, request: Request, visitor: Visitor) -> Response:
        grant = request.path_params["grant"]
        await self._visitors.form(request, visitor.key, f"{HOME}/{grant}/disconnect")
        await self._connections.disconnect(visitor.visit, grant)
        return self._visitors.see_other(HOME + "?done=disconnected")

    async def switch(self, request: Request, visitor: Visitor) -> Response:
        return await self._reconnect(request, visitor, "switch")

    async def agree_again(self, request: Request, visitor: Visitor) -> Response:
        return await self._reconnect(request, visitor, "again")

    async def leave(self, request: Request, visitor: Visitor) -> Response:
        await self._visitors.form(request, visitor.key, HOME + "/leave")
        await self._visitors.visits.end(visitor.visit)
        return self._visitors.see_other(HOME + "/left", self._visitors.no_cookie())

    async def show_left(self, request: Request) -> Response:
        return self._ending("left", request)

    async def _reconnect(self, request: Request, visitor: Visitor, what: str) -> Response:
        """Off to the connect page, which asks as it always does."""
        grant = request.path_params["grant"]
        await self._visitors.form(request, visitor.key, f"{HOME}/{grant}/{what}")
        link = await self._connections.reconnect(visitor.visit, grant, switch=what == "switch")
        return self._visitors.go(link)

    async def _is_in_by(self, ticket: str, request: Request) -> bool:
        """Whether this browser was let in by that very link: it was pressed twice, or the page was loaded anew."""
        visitor = await self._visitors.admit(request)
        return visitor is not None and self._connections.visits.is_of(visitor.visit, ticket)

    def _only(self, handler: Callable[[Request, Visitor], Awaitable[Response]]) -> Handler:
        return self._visitors.only(handler, self._nobody)

    def _nobody(self, request: Request) -> Response:
        """To a browser that nobody was let in with, or nobody any more."""
        return self._ending("closed" if self._visitors.cookie(request) is not None else "unopened", request)

    def _ending(self, ending: Ending, request: Request) -> Response:
        return render_ending(ending, self._visitors.locale(request)).response()

    def _desk_of(self, request: Request, visitor: Visitor) -> Desk:
        return self._desk(request, lambda path: self._visitors.field(visitor.key, path))

    def _desk(self, request: Request, token: Callable[[str], str]) -> Desk:
        return Desk(self._visitors.locale(request), self._clock.now(), self._visitors.url, token)
