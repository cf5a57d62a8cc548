"""`/admin`: the operators' pages."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from oauthbroker.admin.admin_actions import Admin
from oauthbroker.admin.overview import AuditEntries
from oauthbroker.core.clock import Clock
from oauthbroker.events.dead_letters import MOST_SHOWN, agent_of
from oauthbroker.grants.grant_pages import GrantFilter
from oauthbroker.model.settings import Settings
from oauthbroker.plugins.plugin_pages import PluginPage, PluginPages
from oauthbroker.web.gate import csrf
from oauthbroker.web.html import admin_html as views
from oauthbroker.web.html.admin_html import HOME, Office
from oauthbroker.web.html.form_routes import route
from oauthbroker.web.html.plugin_pages import PluginPagesServed, pages_of_plugins
from oauthbroker.web.html.readable_times import end_of_second, moment_of
from oauthbroker.web.pages.admin_entrance import AdminEntrance
from oauthbroker.web.pages.visitor_cookies import Visitor, VisitorHandler, Visitors

LINES = 200
MOST_TEXT = 200


class AdminPages:
    """The handlers. Each knows its operator, asks `admin`, and renders a page."""

    def __init__(self, *, admin: Admin, settings: Settings, mac: csrf.Mac, clock: Clock) -> None:
        self._admin = admin
        self._survey = admin.survey
        self._visitors = Visitors(pages="admin", visits=admin.visits, settings=settings, mac=mac, clock=clock)
        self._entrance = AdminEntrance(
            admin=admin, visitors=self._visitors, mac=mac, loopback=settings.admin_loopback, office=self._office
        )
        self._plugins: tuple[PluginPagesServed, ...] = ()

    def open(self, plugins: Mapping[str, PluginPages | None]) -> None:
        """Add the pages of the open plug-ins. Raises `configInvalid`."""
        self._plugins = pages_of_plugins(plugins)

    def routes(self) -> list[BaseRoute]:
        only, proven = self._entrance.only, self._entrance.proven
        return [
            *self._entrance.routes(),
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
                route(HOME + plugin.home + page.path, only(self._of_plugin(plugin, page)), "GET")
                for plugin in self._plugins
                for page in plugin.pages
            ),
        ]

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

    def _of_plugin(self, plugin: PluginPagesServed, page: PluginPage) -> VisitorHandler:
        async def show(request: Request, visitor: Visitor) -> Response:
            office = self._office(request, visitor.key)
            return views.render_plugin(office, plugin, await plugin.view(page, request, office.locale)).response()

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

    def _office(self, request: Request, key: str) -> Office:
        visitors = self._visitors
        return Office(
            locale=visitors.locale(request),
            now=visitors.clock.now(),
            url=visitors.url,
            token=lambda path: visitors.field(key, path),
            done=request.query_params.get("done", ""),
            plugins=self._plugins,
        )


def _word(text: str | None) -> str:
    return (text or "")[:MOST_TEXT]
