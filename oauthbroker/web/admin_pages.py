"""`/admin`: the operators' pages. By the broker's login or with an operator's API key, or from this machine where the
settings say so."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import LOGIN_NAME
from oauthbroker.model.settings import Settings
from oauthbroker.operations.admin_actions import Admin
from oauthbroker.operations.dead_letters import MOST_SHOWN, agent_of
from oauthbroker.operations.grant_pages import GrantFilter
from oauthbroker.operations.operator_login import CALLBACK_PATH
from oauthbroker.operations.overview import AuditEntries
from oauthbroker.rooms.room_pages import RoomPage, RoomPages
from oauthbroker.web import admin_html as views
from oauthbroker.web import csrf
from oauthbroker.web.admin_html import HOME, Office
from oauthbroker.web.consent_html import render_leaving
from oauthbroker.web.form_routes import Handler, route
from oauthbroker.web.forwarded import is_local
from oauthbroker.web.operator_sign_in import SignIns, path_of
from oauthbroker.web.rate_limits import failed_logins
from oauthbroker.web.readable_times import end_of_second, moment_of
from oauthbroker.web.room_pages import PagesOfRoom, pages_of_rooms
from oauthbroker.web.shown_names import host_of
from oauthbroker.web.visitor_cookies import Visitor, VisitorHandler, Visitors

LINES = 200
MOST_TEXT = 200


class AdminPages:
    """The handlers. Each knows its operator, asks `admin`, and renders a page."""

    def __init__(self, *, admin: Admin, settings: Settings, mac: csrf.Mac, clock: Clock) -> None:
        self._admin = admin
        self._survey = admin.survey
        self._visitors = Visitors(pages="admin", visits=admin.visits, settings=settings, mac=mac, clock=clock)
        self._loopback = settings.admin_loopback
        self._signs = SignIns(self._visitors, mac)
        self._failures = failed_logins(clock)
        self._rooms: tuple[PagesOfRoom, ...] = ()

    def open(self, rooms: Mapping[str, RoomPages | None]) -> None:
        """Add the pages of the open rooms. Raises `configInvalid`."""
        self._rooms = pages_of_rooms(rooms)

    def routes(self) -> list[BaseRoute]:
        only, proven = self._only, self._proven
        return [
            route(HOME + "/login", self.show_login, "GET"),
            *self._entrances(),
            route(HOME + "/enter", self.enter, "POST"),
            route(HOME + "/leave", only(self.leave), "POST"),
            route(HOME + "/left", self.show_left, "GET"),
            route(HOME, only(self.overview), "GET"),
            route(HOME + "/grants", only(self.grants), "GET"),
            route(HOME + "/grants/{grant}", only(self.grant), "GET"),
            route(HOME + "/grants/{grant}/revoke", proven(self.ask_revoke), "GET"),
            route(HOME + "/grants/{grant}/revoke", proven(self.revoke), "POST"),
            route(HOME + "/waiting", only(self.waiting), "GET"),
            route(HOME + "/waiting/{session}/cancel", proven(self.cancel, "/waiting"), "POST"),
            route(HOME + "/queues", only(self.queues), "GET"),
            route(HOME + "/queues/retry", proven(self.retry, "/queues"), "POST"),
            route(HOME + "/queues/drop", proven(self.ask_drop), "GET"),
            route(HOME + "/queues/drop", proven(self.drop, "/queues"), "POST"),
            route(HOME + "/circuits", only(self.circuits), "GET"),
            route(HOME + "/audit", only(self.audit), "GET"),
            *(
                route(HOME + room.home + page.path, only(self._of_room(room, page)), "GET")
                for room in self._rooms
                for page in room.pages
            ),
        ]

    # coming and going

    def _entrances(self) -> list[BaseRoute]:
        """Return the ways in: by the login or by a key, never both."""
        if self._admin.login.operators is None:
            return [route(HOME + "/login", self.login, "POST")]
        return [
            route(HOME + "/sign-in", self.sign_in, "POST"),
            route(HOME + "/again", self._only(self.ask_again), "GET"),
            route(CALLBACK_PATH, self.come_back, "GET"),
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
        return views.render_again(office, host, path_of(_word(request.query_params.get("to")))).response()

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

    # looking

    async def overview(self, request: Request, visitor: Visitor) -> Response:
        office, apps = self._office(request, visitor.key), await self._survey.apps()
        return views.render_overview(office, apps, trouble=self._survey.trouble is not None).response()

    async def grants(self, request: Request, visitor: Visitor) -> Response:
        asked = request.query_params
        page = asked.get("page", "1")
        wanted = GrantFilter(
            app=_word(asked.get("app")),
            health=_word(asked.get("health")),
            text=_word(asked.get("q")),
            page=int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 1,
        )
        found = await self._survey.pages.numbered(wanted)
        office = self._office(request, visitor.key)
        return views.render_grants(office, found, wanted, self._survey.app_names).response()

    async def grant(self, request: Request, visitor: Visitor) -> Response:
        grant_id = request.path_params["grant"]
        row, use = await self._survey.grant(grant_id)
        office, name = self._office(request, visitor.key), self._survey.audit_name(grant_id)
        return views.render_grant(office, row, use, name).response()

    async def waiting(self, request: Request, visitor: Visitor) -> Response:
        return views.render_waiting(self._office(request, visitor.key), await self._survey.waiting()).response()

    async def queues(self, request: Request, visitor: Visitor) -> Response:
        queues, dead = await self._admin.letters.states(), await self._admin.letters.dead(most=MOST_SHOWN)
        return views.render_queues(self._office(request, visitor.key), queues, dead).response()

    async def circuits(self, request: Request, visitor: Visitor) -> Response:
        return views.render_circuits(self._office(request, visitor.key), await self._survey.troubles.seen()).response()

    async def audit(self, request: Request, visitor: Visitor) -> Response:
        asked = request.query_params
        entries = AuditEntries(
            app=_word(asked.get("app")),
            type=_word(asked.get("type")),
            grant=_word(asked.get("grant")).strip(),
            since=moment_of(_word(asked.get("since"))),
            until=end_of_second(moment_of(_word(asked.get("until")))),
        )
        lines = await self._survey.audit(LINES, entries)
        known = await self._survey.named(lines)
        office = self._office(request, visitor.key)
        return views.render_audit(office, lines, known, entries, apps=self._survey.app_names).response()

    def _of_room(self, room: PagesOfRoom, page: RoomPage) -> VisitorHandler:
        async def show(request: Request, visitor: Visitor) -> Response:
            office = self._office(request, visitor.key)
            return views.render_room(office, room, await room.view(page, request, office.locale)).response()

        return show

    # doing

    async def ask_revoke(self, request: Request, visitor: Visitor) -> Response:
        row, _ = await self._survey.grant(request.path_params["grant"])
        return views.render_revoke(self._office(request, visitor.key), row).response()

    async def revoke(self, request: Request, visitor: Visitor) -> Response:
        grant_id = request.path_params["grant"]
        await self._visitors.form(request, visitor.key, f"{HOME}/grants/{grant_id}/revoke")
        await self._admin.revoke(visitor.visit, grant_id)
        return self._visitors.see_other(f"{HOME}/grants/{grant_id}?done=revoked")

    async def cancel(self, request: Request, visitor: Visitor) -> Response:
        session_id = request.path_params["session"]
        await self._visitors.form(request, visitor.key, f"{HOME}/waiting/{session_id}/cancel")
        done = await self._admin.cancel(visitor.visit, session_id)
        return self._done("/waiting", "cancelled" if done else "nothing")

    async def retry(self, request: Request, visitor: Visitor) -> Response:
        fields = await self._visitors.form(request, visitor.key, HOME + "/queues/retry")
        done = await self._admin.retry(visitor.visit, agent_of(fields.get("queue", "")), fields.get("event", ""))
        return self._done("/queues", "retried" if done else "nothing")

    async def ask_drop(self, request: Request, visitor: Visitor) -> Response:
        asked = (request.query_params.get("queue"), request.query_params.get("event"))
        dead = await self._admin.letters.dead(agent_of(asked[0] or ""))
        found = [letter for letter in dead if (letter.queue, letter.id) == asked]
        if not found:
            return self._done("/queues", "nothing")
        return views.render_drop(self._office(request, visitor.key), found[0]).response()

    async def drop(self, request: Request, visitor: Visitor) -> Response:
        fields = await self._visitors.form(request, visitor.key, HOME + "/queues/drop")
        done = await self._admin.drop(visitor.visit, agent_of(fields.get("queue", "")), fields.get("event", ""))
        return self._done("/queues", "dropped" if done else "nothing")

    def _done(self, place: str, word: str) -> Response:
        return self._visitors.see_other(f"{HOME}{place}?done={word}")

    # who is there

    def _only(self, handler: VisitorHandler) -> Handler:
        """`handler` for operators; all other browsers go to the login page."""

        async def answer(request: Request) -> Response:
            visitor = await self._visitors.admit(request)
            if visitor is None or not await self._is_welcome(request, visitor):
                return self._visitors.see_other(HOME + "/login")
            return await handler(request, visitor)

        return answer

    def _proven(self, handler: VisitorHandler, page: str = "") -> Handler:
        """`handler` for operators who signed in a moment ago; others sign in again, and come back to `page`, by default
        to the handler's own."""

        async def answer(request: Request, visitor: Visitor) -> Response:
            if not self._admin.needs_confirmation(visitor.visit):
                return await handler(request, visitor)
            path = request.scope["path"].removeprefix(request.scope.get("root_path", "")).removeprefix(HOME)
            to = page or path + (f"?{request.url.query}" if request.url.query else "")
            return self._visitors.see_other(f"{HOME}/again?{urlencode({'to': to})}")

        return self._only(answer)

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

    def _office(self, request: Request, key: str) -> Office:
        visitors = self._visitors
        return Office(
            locale=visitors.locale(request),
            now=visitors.clock.now(),
            url=visitors.url,
            token=lambda path: visitors.field(key, path),
            done=request.query_params.get("done", ""),
            rooms=self._rooms,
        )


def _word(text: str | None) -> str:
    return (text or "")[:MOST_TEXT]
