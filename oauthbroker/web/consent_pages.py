"""The consent pages: who asks for what, off to the provider, back at the app's own callback, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from oauthbroker.apps import LOGIN_NAME, OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.consent import Consent, Departure, Ending, Invitation
from oauthbroker.errors import BrokerError, Code, Locale
from oauthbroker.records.parked import PARKED_SECONDS
from oauthbroker.resume import locator_of
from oauthbroker.secret import Secret
from oauthbroker.settings import Settings
from oauthbroker.web import csrf, pages, problems
from oauthbroker.web.access_log import note_refusal
from oauthbroker.web.display import host_of
from oauthbroker.web.forms import read_form
from oauthbroker.web.next_step import render_next, render_private, render_wrong_account
from oauthbroker.web.pages import CANCEL, CONTINUE, CSRF_FIELD, DECISION_FIELD, ConnectView
from oauthbroker.web.policy import security_headers
from oauthbroker.web.rendering import Page
from oauthbroker.web.routes import Handler, route
from oauthbroker.web.texts import locale_of

BROWSER_COOKIE_SECONDS = 3600
NEXT = "/next"


class ConsentPages:
    """The handlers. Each reads what the browser sent, asks `consent`, and renders a page."""

    def __init__(self, consent: Consent, settings: Settings, mac: csrf.Mac, clock: Clock) -> None:
        self._consent = consent
        self._base_url = settings.public_base_url.rstrip("/")
        self._origin = csrf.origin_of(settings.public_base_url)
        self._secure = settings.public_base_url.startswith("https:")
        self._locale = settings.locale
        self._mac = mac
        self._clock = clock

    def routes(self) -> list[BaseRoute]:
        """Those of the apps that are configured by now."""
        login = self._consent.login
        with_callback = [app for app in self._consent.apps.values() if app.has_callback]
        return [
            route("/connect/{ticket}", self.show_connect, "GET"),
            route("/connect/{ticket}", self.answer_connect, "POST"),
            route("/connected/{app}", self.show_connected, "GET"),
            route("/declined/{app}", self.show_declined, "GET"),
            route(f"{NEXT}/{{session}}", self.show_next, "GET"),
            route("/connect", self.show_private, "GET"),
            *([route(login.app.redirect.callback_path, self.log_in, "GET")] if login is not None else []),
            *(route(app.redirect.callback_path, self.callback_of(app), "GET") for app in with_callback),
        ]

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
        page = self._page_of(invitation, self._view(invitation, token), self._locale_of(request, invitation.locale))
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
        view = self._view(invitation)
        if view.login_host:
            view = replace(view, provider=LOGIN_NAME, provider_host=view.login_host)
        locale = self._locale_of(request, invitation.locale)
        page = pages.render_interstitial(departure.url.reveal(), view, locale)
        return page.response(set_cookies=[self._session_cookie(departure, invitation.app)])

    def _page_of(self, invitation: Invitation, view: ConnectView, locale: Locale) -> Page:
        if invitation.device is None:
            return pages.render_connect(view, locale)
        return pages.render_device(view, invitation.device, locale)

    def _ended(self, ending: Ending, request: Request) -> Response:
        """Where a page that is looked at again goes once there is nothing left to do on it."""
        if ending.code is None:
            return self._see_other(f"/connected/{ending.app.name}")
        if ending.code is Code.PROVIDER_DENIED:
            return self._see_other(f"/declined/{ending.app.name}")
        return problems.answer(BrokerError(ending.code), request, ending.locale or self._locale)

    def callback_of(self, app: OAuthApp) -> Handler:
        """The handler of one app's own callback path."""

        async def callback(request: Request) -> Response:
            if _is_prefetch(request):
                raise BrokerError(Code.CALLBACK_MALFORMED, note="prefetch")
            arrival = await self._consent.arrive(app, request.scope["query_string"], self._cookies_of(request))
            if arrival.parked:  # its cookie stays: the next page is this browser's alone
                return self._see_other(f"{NEXT}/as-{arrival.locator}")
            name = csrf.session_cookie_name(arrival.locator, secure=self._secure)
            gone = csrf.cookie_header(name, "", secure=self._secure, max_age=0)
            return self._see_other(f"/connected/{app.name}", set_cookie=gone)

        return callback

    async def log_in(self, request: Request) -> Response:
        """The broker's own login sent the browser back. Whoever it is for gets a new cookie and goes on."""
        if _is_prefetch(request):
            raise BrokerError(Code.CALLBACK_MALFORMED, note="prefetch")
        try:
            arrived = await self._consent.log_in(request.scope["query_string"], self._cookies_of(request))
        except BrokerError as error:
            refused = error
        else:
            session = arrived.session
            cookie = self._cookie_of(session.locator, arrived.cookie, session.expires_at)
            return self._see_other(f"{NEXT}/{session.id}", set_cookie=cookie)
        place = await self._consent.login_endpoint()
        if refused.code is not Code.SUBJECT_MISMATCH or not problems.wants_page(request.headers) or not place:
            raise refused
        note_refusal(request.scope, refused)
        return render_wrong_account(place, self._locale_of(request)).response()

    async def show_connected(self, request: Request) -> Response:
        """A clean address after the callback, so that no code stays in the history (case 92)."""
        app = self._known_app(request)
        return pages.render_outcome("connected", None, app.display_name, self._locale_of(request)).response()

    async def show_declined(self, request: Request) -> Response:
        app = self._known_app(request)
        return pages.render_outcome("denied", None, app.display_name, self._locale_of(request)).response()

    async def show_next(self, request: Request) -> Response:
        """What comes after the callback where somebody vouches for the browser first, or after the login. A clean
        address, for this browser only; shown as often as it is asked for. Not a redirect: browsers hold one that
        follows from a form against the `form-action` of the provider's page."""
        locator = locator_of(request.path_params["session"])
        step = await self._consent.next_step(locator, self._cookies_of(request)(locator))
        if isinstance(step, Ending):
            return self._ended(step, request)
        return render_next(step, self._locale_of(request, step.locale), self._consent.now()).response()

    async def show_private(self, request: Request) -> Response:
        """Where the links in a conversation lead whose real ones were delivered privately."""
        return render_private(self._locale_of(request)).response()

    async def _checked_decision(self, request: Request, ticket: str) -> str:
        """A form of our own page, sent by the browser that got it (case 87)."""
        if not csrf.same_origin(request.headers, self._origin):
            raise BrokerError(Code.OWNER_BINDING_FAILED, note="the form came from elsewhere")
        fields = await read_form(request)
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
            login_host=host_of(invitation.login_endpoint) if invitation.login_endpoint else "",
            agent_title=invitation.agent_title,
            subject_title=invitation.subject_title,
        )

    def _session_cookie(self, departure: Departure, app: OAuthApp) -> str:
        """It outlives the link where the browser is still needed after it has come back."""
        ends = departure.session.expires_at
        extra = PARKED_SECONDS if app.owner.vouching not in {None, "brokerLogin"} else 0
        return self._cookie_of(departure.session.locator, departure.cookie, ends, extra)

    def _cookie_of(self, locator: str, cookie: Secret, until: datetime, extra: int = 0) -> str:
        name, left = csrf.session_cookie_name(locator, secure=self._secure), self._consent.seconds_left(until)
        return csrf.cookie_header(name, cookie.reveal(), secure=self._secure, max_age=left + extra)

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

    def _locale_of(self, request: Request, of_turn: Locale | None = None) -> Locale:
        """What the browser asks for, else the turn's, else the broker's: its reader may be another person than the one
        that the turn knows."""
        return locale_of(request.headers.get("accept-language", ""), of_turn or self._locale)


def _is_prefetch(request: Request) -> bool:
    """A browser fetching ahead of its person (Fetch standard, `Sec-Purpose`)."""
    said = " ".join(request.headers.get(name, "") for name in ("sec-purpose", "purpose", "x-moz"))
    return "prefetch" in said.lower() or "prerender" in said.lower()
