"""How operators come to `/admin`: by the broker's login or with an API key, or from this machine where the settings say
so."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from oauthbroker.admin.admin_actions import Admin
from oauthbroker.admin.operator_login import CALLBACK_PATH
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import LOGIN_NAME
from oauthbroker.web.gate import csrf
from oauthbroker.web.html import admin_html as views
from oauthbroker.web.html.admin_html import HOME, Office
from oauthbroker.web.html.consent_html import render_leaving
from oauthbroker.web.html.form_routes import Handler, route
from oauthbroker.web.html.shown_names import host_of
from oauthbroker.web.middleware.forwarded import is_local
from oauthbroker.web.middleware.rate_limits import failed_logins
from oauthbroker.web.pages.operator_sign_in import SignIns, path_of
from oauthbroker.web.pages.visitor_cookies import Visitor, VisitorHandler, Visitors


class AdminEntrance:
    """Lets operators in and out. `office` makes the common words of a page for a browser's key."""

    def __init__(
        self,
        *,
        admin: Admin,
        visitors: Visitors,
        mac: csrf.Mac,
        loopback: bool,
        office: Callable[[Request, str], Office],
    ) -> None:
        self._admin, self._visitors, self._office, self._loopback = admin, visitors, office, loopback
        self._signs = SignIns(visitors, mac)
        self._failures = failed_logins(visitors.clock)

    def routes(self) -> list[BaseRoute]:
        """Return the ways in, by the login or by a key and never by both, and the way out."""
        ways = [route(HOME + "/login", self.login, "POST")]
        if self._admin.login.operators is not None:
            ways = [
                route(HOME + "/sign-in", self.sign_in, "POST"),
                route(HOME + "/again", self.only(self.ask_again), "GET"),
                route(CALLBACK_PATH, self.come_back, "GET"),
            ]
        return [
            route(HOME + "/login", self.show_login, "GET"),
            *ways,
            route(HOME + "/enter", self.enter, "POST"),
            route(HOME + "/leave", self.only(self.leave), "POST"),
            route(HOME + "/left", self.show_left, "GET"),
        ]

    async def show_login(self, request: Request, refused: BrokerError | None = None) -> Response:
        visitor, key = await self._visitors.admit(request), self._visitors.key(request)
        office, login = self._office(request, key if visitor is None else visitor.key), self._admin.login
        host = await login.host() if login.operators is not None else ""
        wrong = views.wrong_words(office, refused, host) if refused is not None else ""
        status = refused.status if refused is not None else 200
        page = views.render_login(office, host, from_here=self._is_from_here(request), wrong=wrong, status=status)
        return page.response(set_cookies=[self._visitors.key_cookie(key), *self._signs.forget()])

    async def login(self, request: Request) -> Response:
        """Check an operator's key, and forget it. Only failures are counted, so a stranger keeps no operator out."""
        fields = await self._visitors.form(request, await self._form_key(request), HOME + "/login")
        try:
            arrival = await self._admin.enter(fields.get("key", ""))
        except BrokerError as error:
            if error.code not in {Code.UNAUTHENTICATED, Code.NOT_ALLOWED}:
                raise
            refused = error
        else:
            return self._visitors.enter(HOME, arrival)
        await self._turned_away(request, "/login", refused)
        return await self.show_login(request, refused)

    async def enter(self, request: Request) -> Response:
        """Enter from this machine, without a key."""
        await self._visitors.form(request, await self._form_key(request), HOME + "/enter")
        if not self._is_from_here(request):
            refused = BrokerError(Code.NOT_ALLOWED, note="not from this machine, or not without a key")
            await self._turned_away(request, "/enter", refused)
            raise refused
        return self._visitors.enter(HOME, await self._admin.enter_from_here())

    async def sign_in(self, request: Request) -> Response:
        """Send an operator's browser to the broker's login: to enter, or once more before a change."""
        visitor, key = await self._visitors.admit(request), await self._form_key(request)
        fields = await self._visitors.form(request, key, HOME + "/sign-in")
        sign_in = self._signs.begin(fields.get("to", ""), again=visitor is not None)
        url = (await self._admin.login.url(sign_in.attempt, again=sign_in.again)).reveal()
        page = render_leaving(url, LOGIN_NAME, host_of(url), self._visitors.locale(request))
        return page.response(set_cookies=[self._signs.cookie(sign_in)])

    async def ask_again(self, request: Request, visitor: Visitor) -> Response:
        """Ask the operator to sign in again, and then go to the page `to`."""
        office, host = self._office(request, visitor.key), await self._admin.login.host()
        return views.render_again(office, host, path_of(request.query_params.get("to", ""))).response()

    async def come_back(self, request: Request) -> Response:
        """Handle the callback of the broker's login. A visit of before ends: the new one has its own cookie."""
        try:
            sign_in = self._signs.returned(request)
            query = request.scope["query_string"]
            person = await self._admin.login.receive(sign_in.attempt, query, again=sign_in.again)
        except BrokerError as error:
            refused = error.with_traceback(None)
        else:
            arrival, before = await self._admin.enter_as(person), await self._visitors.admit(request)
            if before is not None:
                await self._visitors.visits.end(before.visit)
            return self._visitors.enter(HOME + sign_in.to, arrival, *self._signs.forget())
        await self._turned_away(request, "/callback", refused)
        return await self.show_login(request, refused)

    async def _turned_away(self, request: Request, place: str, refused: BrokerError) -> None:
        """Count and audit a refusal. Raises `rateLimited`, so that endless failures do not fill the audit log."""
        self._failures.take(request.client.host if request.client is not None else "")
        await self._admin.turned_away(f"{request.method} {HOME}{place}", refused.code)

    async def leave(self, request: Request, visitor: Visitor) -> Response:
        return await self._visitors.leave(request, visitor, HOME)

    async def show_left(self, request: Request) -> Response:
        return views.render_left(self._office(request, "")).response()

    def only(self, handler: VisitorHandler) -> Handler:
        """`handler` for operators; all other browsers go to the login page."""

        async def answer(request: Request) -> Response:
            visitor = await self._visitors.admit(request)
            if visitor is None or not await self._is_welcome(request, visitor):
                return self._visitors.see_other(HOME + "/login")
            return await handler(request, visitor)

        return answer

    def proven(self, handler: VisitorHandler, page: str = "") -> Handler:
        """`handler` for operators who signed in a moment ago; others sign in again, and come back to `page`, by default
        to the handler's own."""

        async def answer(request: Request, visitor: Visitor) -> Response:
            if not self._admin.needs_confirmation(visitor.visit):
                return await handler(request, visitor)
            path = request.scope["path"].removeprefix(request.scope.get("root_path", "")).removeprefix(HOME)
            to = page or path + (f"?{request.url.query}" if request.url.query else "")
            return self._visitors.see_other(f"{HOME}/again?{urlencode({'to': to})}")

        return self.only(answer)

    async def _is_welcome(self, request: Request, visitor: Visitor) -> bool:
        """Return whether a visit may go on. One without a key is for this machine alone, each time anew."""
        if not visitor.visit.key:
            return self._is_from_here(request)
        return await self._admin.is_welcome(visitor.visit)

    async def _form_key(self, request: Request) -> str:
        """Return the key for forms that are shown before and within a visit."""
        visitor = await self._visitors.admit(request)
        return self._visitors.key(request) if visitor is None else visitor.key

    def _is_from_here(self, request: Request) -> bool:
        return self._loopback and is_local(request)
