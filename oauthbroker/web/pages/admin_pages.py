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
from oauthbroker.grants.grant_pages import PLACE, GrantFilter
from oauthbroker.model.settings import Settings
from oauthbroker.plugins.plugin_pages import PluginPage, PluginPages
from oauthbroker.web.gate import csrf
from oauthbroker.web.html import admin_html as views
from oauthbroker.web.html.admin_html import HOME, AdminLayout
from oauthbroker.web.html.form_routes import route
from oauthbroker.web.html.plugin_pages import PluginPagesServed, pages_of_plugins
from oauthbroker.web.html.readable_times import end_of_second, moment_of
from oauthbroker.web.pages.admin_entrance import AdminEntrance
from oauthbroker.web.pages.audit_csv import MOST_LINES, csv_response
from oauthbroker.web.pages.page_user_cookies import PageUser, PageUserHandler, PageUsers

LINES = 200
MOST_TEXT = 200


class AdminPages:
    """The handlers. Each knows its operator, asks `admin`, and renders a page."""

    def __init__(self, *, admin: Admin, settings: Settings, mac: csrf.Mac, clock: Clock) -> None:
        self._admin = admin
        self._overview = admin.overview
        self._page_users = PageUsers(
            pages="admin", browser_sessions=admin.browser_sessions, settings=settings, mac=mac, clock=clock
        )
        self._entrance = AdminEntrance(
            admin=admin, page_users=self._page_users, mac=mac, loopback=settings.admin_loopback, layout=self._layout
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
            route(HOME + "/audit.csv", only(self.audit_csv), "GET"),
            *(
                route(HOME + plugin.home + page.path, only(self._of_plugin(plugin, page)), "GET")
                for plugin in self._plugins
                for page in plugin.pages
            ),
        ]

    # looking

    async def overview(self, request: Request, page_user: PageUser) -> Response:
        layout, apps = self._layout(request, page_user.key), await self._overview.apps()
        return views.render_overview(layout, apps, failure=self._overview.failure is not None).response()

    async def grants(self, request: Request, page_user: PageUser) -> Response:
        asked = request.query_params
        page = asked.get("page", "1")
        wanted = GrantFilter(
            app=_word(asked.get("app")),
            health=_word(asked.get("health")),
            text=_word(asked.get("q")),
            after=after if PLACE.fullmatch(after := asked.get("after", "")) else None,
            page=int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 1,
        )
        found = await self._overview.pages.numbered(wanted)
        layout, apps = self._layout(request, page_user.key), await self._overview.app_names(wanted.app or "")
        return views.render_grants(layout, found, wanted, apps).response()

    async def grant(self, request: Request, page_user: PageUser) -> Response:
        grant_id = request.path_params["grant"]
        row, use = await self._overview.grant(grant_id)
        layout, name = self._layout(request, page_user.key), self._overview.audit_name(grant_id)
        return views.render_grant(layout, row, use, name).response()

    async def waiting(self, request: Request, page_user: PageUser) -> Response:
        return views.render_waiting(self._layout(request, page_user.key), await self._overview.waiting()).response()

    async def queues(self, request: Request, page_user: PageUser) -> Response:
        queues, dead = await self._admin.dead_letters.states(), await self._admin.dead_letters.dead(most=MOST_SHOWN)
        return views.render_queues(self._layout(request, page_user.key), queues, dead).response()

    async def circuits(self, request: Request, page_user: PageUser) -> Response:
        return views.render_circuits(
            self._layout(request, page_user.key), await self._overview.shared_circuits.seen()
        ).response()

    async def audit(self, request: Request, page_user: PageUser) -> Response:
        entries = _entries_asked(request)
        lines = await self._overview.audit(LINES, entries)
        known = await self._overview.named(lines, self._overview.pages.some())
        layout, apps = self._layout(request, page_user.key), await self._overview.app_names(entries.app)
        return views.render_audit(layout, lines, known, entries, apps=apps).response()

    async def audit_csv(self, request: Request, page_user: PageUser) -> Response:  # noqa: ARG002  (a handler's signature)
        lines = await self._overview.audit(MOST_LINES, _entries_asked(request))
        known = await self._overview.named(lines, self._overview.pages.everything())
        return csv_response(lines, known)

    def _of_plugin(self, plugin: PluginPagesServed, page: PluginPage) -> PageUserHandler:
        async def show(request: Request, page_user: PageUser) -> Response:
            layout = self._layout(request, page_user.key)
            with plugin.code(page):
                return views.render_plugin(layout, plugin, await plugin.view(page, request, layout.locale)).response()

        return show

    # doing

    async def ask_revoke(self, request: Request, page_user: PageUser) -> Response:
        row, _ = await self._overview.grant(request.path_params["grant"])
        if row.revoked:
            return self._done(f"/grants/{row.id}", "nothing")
        return views.render_revoke(self._layout(request, page_user.key), row).response()

    async def revoke(self, request: Request, page_user: PageUser) -> Response:
        grant_id = request.path_params["grant"]
        await self._page_users.form(request, page_user.key, f"{HOME}/grants/{grant_id}/revoke")
        done = await self._admin.revoke(page_user.browser_session, grant_id)
        return self._done(f"/grants/{grant_id}", "revoked" if done is not None else "nothing")

    async def cancel(self, request: Request, page_user: PageUser) -> Response:
        session_id = request.path_params["session"]
        await self._page_users.form(request, page_user.key, f"{HOME}/waiting/{session_id}/cancel")
        done = await self._admin.cancel(page_user.browser_session, session_id)
        return self._done("/waiting", "cancelled" if done else "nothing")

    async def retry(self, request: Request, page_user: PageUser) -> Response:
        fields = await self._page_users.form(request, page_user.key, HOME + "/queues/retry")
        done = await self._admin.retry(
            page_user.browser_session, agent_of(fields.get("queue", "")), fields.get("event", "")
        )
        return self._done("/queues", "retried" if done else "nothing")

    async def ask_drop(self, request: Request, page_user: PageUser) -> Response:
        asked = (request.query_params.get("queue"), request.query_params.get("event"))
        dead = await self._admin.dead_letters.dead(agent_of(asked[0] or ""))
        found = [letter for letter in dead if (letter.queue, letter.id) == asked]
        if not found:
            return self._done("/queues", "nothing")
        return views.render_drop(self._layout(request, page_user.key), found[0]).response()

    async def drop(self, request: Request, page_user: PageUser) -> Response:
        fields = await self._page_users.form(request, page_user.key, HOME + "/queues/drop")
        done = await self._admin.drop(
            page_user.browser_session, agent_of(fields.get("queue", "")), fields.get("event", "")
        )
        return self._done("/queues", "dropped" if done else "nothing")

    def _done(self, place: str, word: str) -> Response:
        return self._page_users.see_other(f"{HOME}{place}?done={word}")

    def _layout(self, request: Request, key: str) -> AdminLayout:
        page_users = self._page_users
        return AdminLayout(
            locale=page_users.locale(request),
            now=page_users.clock.now(),
            url=page_users.url,
            token=lambda path: page_users.field(key, path),
            done=request.query_params.get("done", ""),
            plugins=self._plugins,
        )


def _entries_asked(request: Request) -> AuditEntries:
    asked = request.query_params
    return AuditEntries(
        app=_word(asked.get("app")),
        type=_word(asked.get("type")),
        grant=_word(asked.get("grant")).strip(),
        subject=_word(asked.get("subject")).strip(),
        since=moment_of(_word(asked.get("since"))),
        until=end_of_second(moment_of(_word(asked.get("until")))),
    )


def _word(text: str | None) -> str:
    return (text or "")[:MOST_TEXT]
