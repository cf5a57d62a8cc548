"""The routes of the people's pages, one sentence each: connect, the apps' callbacks, how it ended, health."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from structlog.typing import FilteringBoundLogger

from oauthbroker.apps import OAuthApp, Settings
from oauthbroker.clock import Clock
from oauthbroker.consent import Consent, Departure, Ending, Invitation
from oauthbroker.errors import BrokerError, Code, Locale
from oauthbroker.in_use import Health
from oauthbroker.web import csrf, pages, problems
from oauthbroker.web.access_log import AccessLog
from oauthbroker.web.display import host_of
from oauthbroker.web.headers import Guard, allowed_hosts
from oauthbroker.web.pages import CANCEL, CONTINUE, CSRF_FIELD, DECISION_FIELD, ConnectView
from oauthbroker.web.policy import security_headers
from oauthbroker.web.texts import locale_of

FORM = "application/x-www-form-urlencoded"
BROWSER_COOKIE_SECONDS = 3600
Handler = Callable[[Request], Awaitable[Response]]


def build_app(
    consent: Consent,
    settings: Settings,
    mac: csrf.Mac,
    clock: Clock,
    log: FilteringBoundLogger,
    health: Callable[[], Health],
) -> tuple[Starlette, Callable[[], None]]:
    """The ASGI application, which may be mounted below the path of `publicBaseUrl`; and what to call once the apps have
    changed, so that their callbacks are found. A callback under way goes on with the app it came for."""
    people = PeoplePages(consent, settings, mac, clock)

    def routes() -> list[BaseRoute]:
        with_callback = [app for app in consent.apps.values() if app.has_callback]
        return [
            _route("/connect/{ticket}", people.show_connect, "GET"),
            _route("/connect/{ticket}", people.answer_connect, "POST"),
            _route("/connected/{app}", people.show_connected, "GET"),
            _route("/declined/{app}", people.show_declined, "GET"),
            _route("/healthz", health_page(health), "GET"),
            *(_route(app.redirect.callback_path, people.callback_of(app), "GET") for app in with_callback),
        ]

    def follow() -> None:
        app.router.routes[:] = routes()

    app = Starlette(
        routes=routes(),
        middleware=[
            Middleware(AccessLog, clock=clock, log=log),
            Middleware(Guard, hosts=allowed_hosts(settings.public_base_url), locale=settings.locale, log=log),
        ],
        exception_handlers=problems.handlers(settings.locale),
    )
    app.router.redirect_slashes = False
    return app, follow


def _route(path: str, handler: Handler, method: str) -> Route:
    """One method and no other: Starlette adds HEAD to GET, and a HEAD must not look like a person (case 13)."""
    route = Route(path, handler, methods=[method])
    route.methods = {method}
    return route


def health_page(health: Callable[[], Health]) -> Handler:
    """Always 200: the process answers and serves tokens. Whoever restarts on another status would end a broker that
    works, and with a broken configuration it would not come up again. What is wrong is in the body."""

    async def answer(request: Request) -> Response:  # noqa: ARG001  (a handler's signature)
        return JSONResponse(health().to_json(), headers=security_headers())

    return answer


class PeoplePages:
    """The handlers. Each reads what the browser sent, asks `consent`, and renders a page."""

    def __init__(self, consent: Consent, settings: Settings, mac: csrf.Mac, clock: Clock) -> None:
        self._consent = consent
        self._base_url = settings.public_base_url.rstrip("/")
        self._origin = csrf.origin_of(settings.public_base_url)
        self._secure = settings.public_base_url.startswith("https:")
        self._locale = settings.locale
        self._mac = mac
        self._clock = clock

    async def show_connect(self, request: Request) -> Response:
        """Who asks for what. Changes nothing, whoever fetches it and how often."""
        ticket = request.path_params["ticket"]
        ending = await self._consent.ending(ticket)
        if ending is not None:
            return self._ended(ending, request)
        invitation = await self._consent.invitation(ticket)
        name = csrf.browser_cookie_name(secure=self._secure)
        browser_key = csrf.read_cookie(request.headers, name) or csrf.new_browser_key(self._clock)
        token = csrf.csrf_token(self._mac, browser_key, ticket)
        page = self._page_of(invitation, self._view(invitation, token), self._locale_of(request))
        cookie = csrf.cookie_header(name, browser_key, secure=self._secure, max_age=BROWSER_COOKIE_SECONDS)
        return page.response(set_cookies=[cookie])

    async def answer_connect(self, request: Request) -> Response:
        """The button: off to the provider with a cookie of this browser's own, or a no."""
        ticket = request.path_params["ticket"]
        decision = await self._checked_decision(request, ticket)
        if decision == CANCEL:
            app = await self._consent.decline(ticket)
            return self._see_other(f"/declined/{app.name}")
        invitation = await self._consent.invitation(ticket)
        departure = await self._consent.depart(ticket)
        page = pages.render_interstitial(departure.url.reveal(), self._view(invitation), self._locale_of(request))
        return page.response(set_cookies=[self._session_cookie(departure)])

    def _page_of(self, invitation: Invitation, view: ConnectView, locale: Locale) -> pages.Page:
        if invitation.device is None:
            return pages.render_connect(view, locale)
        return pages.render_device(view, invitation.device, locale)

    def _ended(self, ending: Ending, request: Request) -> Response:
        """Where the page of a device code goes once there is nothing left to do on it."""
        if ending.code is None:
            return self._see_other(f"/connected/{ending.app.name}")
        if ending.code is Code.PROVIDER_DENIED:
            return self._see_other(f"/declined/{ending.app.name}")
        return problems.answer(BrokerError(ending.code), request, self._locale)

    def callback_of(self, app: OAuthApp) -> Handler:
        """The handler of one app's own callback path."""

        async def callback(request: Request) -> Response:
            if _is_prefetch(request):
                raise BrokerError(Code.CALLBACK_MALFORMED, note="prefetch")
            locator = await self._consent.arrive(app, request.scope["query_string"], self._cookies_of(request))
            name = csrf.session_cookie_name(locator, secure=self._secure)
            gone = csrf.cookie_header(name, "", secure=self._secure, max_age=0)
            return self._see_other(f"/connected/{app.name}", set_cookie=gone)

        return callback

    async def show_connected(self, request: Request) -> Response:
        """A clean address after the callback, so that no code stays in the history (case 92)."""
        app = self._known_app(request)
        return pages.render_outcome("connected", None, app.display_name, self._locale_of(request)).response()

    async def show_declined(self, request: Request) -> Response:
        app = self._known_app(request)
        return pages.render_outcome("denied", None, app.display_name, self._locale_of(request)).response()

    async def _checked_decision(self, request: Request, ticket: str) -> str:
        """A form of our own page, sent by the browser that got it (case 87)."""
        if not csrf.same_origin(request.headers, self._origin):
            raise BrokerError(Code.OWNER_BINDING_FAILED, note="the form came from elsewhere")
        fields = await _form(request)
        browser_key = csrf.read_cookie(request.headers, csrf.browser_cookie_name(secure=self._secure))
        if not csrf.csrf_matches(self._mac, browser_key, ticket, fields.get(CSRF_FIELD)):
            raise BrokerError(Code.OWNER_BINDING_FAILED, note="the form was not given to this browser")
        decision = fields.get(DECISION_FIELD)
        if decision not in {CONTINUE, CANCEL}:
            raise BrokerError(Code.REQUEST_INVALID, note="decision")
        return decision

    def _view(self, invitation: Invitation, token: str = "") -> ConnectView:
        return ConnectView(
            agent_name=invitation.agent_name,
            app_name=invitation.app.display_name,
            provider=invitation.app.provider,
            provider_host=host_of(invitation.authorization_endpoint),
            subject=invitation.subject,
            subject_mode=invitation.app.subject_mode,
            scopes=invitation.scopes,
            expires_at=invitation.expires_at,
            now=self._consent.now(),
            csrf_token=token,
        )

    def _session_cookie(self, departure: Departure) -> str:
        name = csrf.session_cookie_name(departure.session.locator, secure=self._secure)
        left = self._consent.seconds_left(departure.session.expires_at)
        return csrf.cookie_header(name, departure.cookie.reveal(), secure=self._secure, max_age=left)

    def _cookies_of(self, request: Request) -> Callable[[str], str | None]:
        return lambda locator: csrf.read_cookie(request.headers, csrf.session_cookie_name(locator, secure=self._secure))

    def _known_app(self, request: Request) -> OAuthApp:
        app = self._consent.apps.get(request.path_params["app"])
        if app is None:
            raise BrokerError(Code.OAUTH_APP_NOT_FOUND)
        return app

    def _see_other(self, path: str, *, set_cookie: str | None = None) -> Response:
        """Built from `publicBaseUrl`, never from what the request says about itself (case 85)."""
        response = Response(status_code=303, headers={**security_headers(), "location": self._base_url + path})
        if set_cookie is not None:
            response.raw_headers.append((b"set-cookie", set_cookie.encode("ascii")))
        return response

    def _locale_of(self, request: Request) -> Locale:
        return locale_of(request.headers.get("accept-language", ""), self._locale)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a small urlencoded form; a field that comes twice is no field. Raises `requestInvalid`."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise BrokerError(Code.REQUEST_INVALID, note="content-type")
    try:
        fields = parse_qs((await request.body()).decode("ascii"), max_num_fields=16)
    except ValueError:
        fields = None
    if fields is None:
        raise BrokerError(Code.REQUEST_INVALID, note="form")
    return {name: values[0] for name, values in fields.items() if len(values) == 1}


def _is_prefetch(request: Request) -> bool:
    """A browser fetching ahead of its person (Fetch standard, `Sec-Purpose`)."""
    said = " ".join(request.headers.get(name, "") for name in ("sec-purpose", "purpose", "x-moz"))
    return "prefetch" in said.lower() or "prerender" in said.lower()
