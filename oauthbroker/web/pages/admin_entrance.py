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
from oauthbroker.model.broker_login import LOGIN_NAME
from oauthbroker.web.gate import csrf
from oauthbroker.web.html import admin_html as views
from oauthbroker.web.html.admin_html import HOME, AdminLayout
from oauthbroker.web.html.consent_html import render_leaving
from oauthbroker.web.html.form_routes import Handler, below_root, route
from oauthbroker.web.html.shown_names import host_of
from oauthbroker.web.middleware.forwarded import is_local
from oauthbroker.web.middleware.rate_limits import failed_logins
from oauthbroker.web.pages.operator_sign_in import SignIns, path_of
from oauthbroker.web.pages.page_user_cookies import PageUser, PageUserHandler, PageUsers


class AdminEntrance:
    """Lets operators in and out. `layout` makes the common words of a page for a browser's key."""

    def __init__(
        self,
        *,
        admin: Admin,
        page_users: PageUsers,
        mac: csrf.Mac,
        loopback: bool,
        layout: Callable[[Request, str], AdminLayout],
    ) -> None:
        self._admin, self._page_users, self._layout, self._loopback = admin, page_users, layout, loopback
        self._signs = SignIns(page_users, mac)
        self._failures = failed_logins(page_users.clock)

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
        page_user, key = await self._page_users.admit(request), self._page_users.key(request)
        layout, login = self._layout(request, key if page_user is None else page_user.key), self._admin.login
        host = await login.host() if login.operators is not None else ""
        wrong = views.wrong_words(layout, refused, host) if refused is not None else ""
        status = refused.status if refused is not None else 200
        page = views.render_login(layout, host, from_here=self._is_from_here(request), wrong=wrong, status=status)
        return page.response(set_cookies=[self._page_users.key_cookie(key), *self._signs.forget()])

    async def login(self, request: Request) -> Response:
        """Check an operator's key, and forget it. Only failures are counted, so a stranger keeps no operator out."""
        fields = await self._page_users.form(request, await self._form_key(request), HOME + "/login")
        try:
            arrival = await self._admin.enter(fields.get("key", ""))
        except BrokerError as error:
            if error.code not in {Code.UNAUTHENTICATED, Code.NOT_ALLOWED}:
                raise
            refused = error
        else:
            return self._page_users.enter(HOME, arrival)
        await self._turned_away(request, "/login", refused)
        return await self.show_login(request, refused)

    async def enter(self, request: Request) -> Response:
        """Enter from this machine, without a key."""
        await self._page_users.form(request, await self._form_key(request), HOME + "/enter")
        if not self._is_from_here(request):
            refused = BrokerError(Code.NOT_ALLOWED, note="not from this machine, or not without a key")
            await self._turned_away(request, "/enter", refused)
            raise refused
        return self._page_users.enter(HOME, await self._admin.enter_from_here())

    async def sign_in(self, request: Request) -> Response:
        """Send an operator's browser to the broker's login: to enter, or once more before a change."""
        page_user, key = await self._page_users.admit(request), await self._form_key(request)
        fields = await self._page_users.form(request, key, HOME + "/sign-in")
        sign_in = self._signs.begin(fields.get("to", ""), again=page_user is not None)
        other = "other" in fields
        url = (await self._admin.login.url(sign_in.attempt, again=sign_in.again, other=other)).reveal()
        page = render_leaving(url, LOGIN_NAME, host_of(url), self._page_users.locale(request))
        return page.response(set_cookies=[self._signs.cookie(sign_in)])

    async def ask_again(self, request: Request, page_user: PageUser) -> Response:
        """Ask the operator to sign in again, and then go to the page `to`."""
        layout, host = self._layout(request, page_user.key), await self._admin.login.host()
        return views.render_again(layout, host, path_of(request.query_params.get("to", ""))).response()

    async def come_back(self, request: Request) -> Response:
        """Handle the callback of the broker's login. A browser session of before ends: the new one has its own
        cookie."""
        try:
            sign_in = self._signs.returned(request)
            query = request.scope["query_string"]
            person = await self._admin.login.receive(sign_in.attempt, query, again=sign_in.again)
        except BrokerError as error:
            refused = error.with_traceback(None)
        else:
            arrival, before = await self._admin.enter_as(person), await self._page_users.admit(request)
            if before is not None:
                await self._page_users.browser_sessions.end(before.browser_session)
            return self._page_users.enter(HOME + sign_in.to, arrival, *self._signs.forget())
        await self._turned_away(request, "/callback", refused)
        return await self.show_login(request, refused)

    async def _turned_away(self, request: Request, place: str, refused: BrokerError) -> None:
        """Count and audit a refusal. Raises `rateLimited`, so that endless failures do not fill the audit log."""
        self._failures.admit(request.client.host if request.client is not None else "")
        await self._admin.turned_away(f"{request.method} {HOME}{place}", refused.code)

    async def leave(self, request: Request, page_user: PageUser) -> Response:
        return await self._page_users.leave(request, page_user, HOME)

    async def show_left(self, request: Request) -> Response:
        return views.render_left(self._layout(request, ""), by_key=self._admin.login.operators is None).response()

    def only(self, handler: PageUserHandler) -> Handler:
        """`handler` for operators; all other browsers go to the login page."""

        async def answer(request: Request) -> Response:
            page_user = await self._page_users.admit(request)
            if page_user is None or not await self._is_welcome(request, page_user):
                return self._page_users.see_other(HOME + "/login")
            return await handler(request, page_user)

        return answer

    def proven(self, handler: PageUserHandler, page: str = "") -> Handler:
        """`handler` for operators who signed in a moment ago; others sign in again, and come back to `page`, by default
        to the handler's own."""

        async def answer(request: Request, page_user: PageUser) -> Response:
            if not self._admin.needs_confirmation(page_user.browser_session):
                return await handler(request, page_user)
            path = below_root(request.scope).removeprefix(HOME)
            to = page or path + (f"?{request.url.query}" if request.url.query else "")
            return self._page_users.see_other(f"{HOME}/again?{urlencode({'to': to})}")

        return self.only(answer)

    async def _is_welcome(self, request: Request, page_user: PageUser) -> bool:
        """Return whether a browser session may go on. One without a key is for this machine alone, each time anew."""
        if not page_user.browser_session.key:
            return self._is_from_here(request)
        return await self._admin.is_welcome(page_user.browser_session)

    async def _form_key(self, request: Request) -> str:
        """Return the key for forms that are shown before and within a browser session."""
        page_user = await self._page_users.admit(request)
        return self._page_users.key(request) if page_user is None else page_user.key

    def _is_from_here(self, request: Request) -> bool:
        return self._loopback and is_local(request)
