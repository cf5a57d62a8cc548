"""The consent pages: the request, the way to the provider, the app's own callback, and the step after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import NoReturn

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from oauthbroker.authorization.page_results import AuthorizationEnd
from oauthbroker.authorization.pages_service import PagesService, locator_of_callback, locator_of_link
from oauthbroker.core.dataclasses import KW_ONLY, dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.broker_login import LOGIN_NAME
from oauthbroker.model.connect_links import locator_of
from oauthbroker.web.gate import error_responses
from oauthbroker.web.gate.browsers import Browsers, is_prefetch
from oauthbroker.web.html import consent_html as views
from oauthbroker.web.html.consent_html import (
    CANCEL,
    CONTINUE,
    DECISION_FIELD,
    ConnectView,
    render_next,
    render_private,
    render_wrong_account,
)
from oauthbroker.web.html.form_routes import Handler, route
from oauthbroker.web.middleware.access_log import note_refusal
from oauthbroker.web.pages.retry_pages import AGAIN, RetryPages

TRUTH_SECONDS = 3600  # that a session's cookie outlives its link, so that its browser can be told the outcome
NEXT = "/next"
# The refusals of a credential after which its page comes again.
TRY_AGAIN = frozenset(
    {Code.REQUEST_INVALID, Code.CREDENTIAL_REFUSED, Code.CREDENTIAL_UNCHECKED, Code.SUBJECT_MISMATCH,
     Code.SUBJECT_UNVERIFIABLE}
)  # fmt: skip
# The refusals of a session that is over. Only the browser of the session is told which of these it is.
OVER = frozenset({Code.STATE_UNKNOWN, Code.STATE_USED, Code.STATE_EXPIRED})


@dataclass(frozen=True, slots=True)
class ConsentPages:
    """The handlers. Each reads what the browser sent, asks `consent`, and renders a page."""

    consent: PagesService
    retry: RetryPages
    browsers: Browsers
    _: KW_ONLY
    reconnect: Callable[[str], Awaitable[str]]

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the apps that are configured by now."""
        login = self.consent.login
        with_callback = [app for app in self.consent.apps.values() if app.has_callback]
        return [
            route("/connect/{ticket}", self.show_connect, "GET", "HEAD"),
            route("/connect/{ticket}", self.answer_connect, "POST"),
            route("/connect/again/{notice}", self.connect_again, "GET"),
            route(f"{NEXT}/{{session}}", self.show_next, "GET"),
            route("/connect", self.show_private, "GET", "HEAD"),
            route("/clients/{app}.json", self.show_client, "GET"),
            route(AGAIN, self.retry.again, "POST"),
            *([route(login.app.redirect.callback_path, self.log_in, "GET")] if login is not None else []),
            *(route(app.redirect.callback_path, self.callback_of(app), "GET") for app in with_callback),
            route("/oauth/callback/{app}", self.refuse_unknown, "GET"),
        ]

    async def show_connect(self, request: Request) -> Response:
        """Show the request for consent. Changes nothing, however often it is fetched, also by HEAD: chat applications
        look at links before they show them."""
        ticket = request.path_params["ticket"]
        return await self._truthfully(request, lambda: locator_of_link(ticket), self._invite(request, ticket))

    async def connect_again(self, request: Request) -> Response:
        """Redirect from the link of a notice to the connect page of its session. A program that fetches links ahead
        opens none."""
        if is_prefetch(request):
            raise BrokerError(Code.STATE_UNKNOWN, note="prefetch")
        return self.browsers.see_other(f"/connect/{await self.reconnect(request.path_params['notice'])}")

    async def _truthfully(self, request: Request, locator: Callable[[], str], answer: Awaitable[Response]) -> Response:
        """Answer; where the session that it is about is over, the browser that it was of is told the truth, or is
        offered another try. Every other browser is told what an unknown link is told."""
        try:
            return await answer
        except BrokerError as error:
            refused = error
        name = locator()
        offered = await self.retry.offered(request, name, refused)
        if offered is not None:
            return offered
        if refused.code in OVER:
            refusal = await self.consent.truth(name, self.browsers.session(request, name))
            if refusal is not None:
                raise refusal
        raise refused

    async def _invite(
        self,
        request: Request,
        ticket: str,
        typed: Mapping[str, str] | None = None,
        refused: BrokerError | None = None,
    ) -> Response:
        """Render the request. `typed` are values that were refused, to be corrected; `refused` is why a credential
        was."""
        ending = await self.consent.ending(ticket)
        if ending is not None:
            return self._ended(ending, request, locator_of_link(ticket))
        invitation = await self.consent.invitation(ticket, self._cookie_for(request, ticket))
        key, locale = self.browsers.key(request), self.browsers.locale(request, invitation.locale)
        token = self.browsers.field(key, ticket)
        view = ConnectView(invitation, self.consent.now(), token, typed=typed, refused=refused)
        prompt = invitation.device
        if invitation.app.credential is not None:
            page = views.render_credential(view, locale)
        else:
            page = views.render_connect(view, locale) if prompt is None else views.render_device(view, prompt, locale)
        return page.response(set_cookies=[self.browsers.key_cookie(key)])

    async def answer_connect(self, request: Request) -> Response:
        """Handle the button: redirect to the provider with a cookie of this browser, or decline."""
        ticket = request.path_params["ticket"]
        fields = await self._checked_decision(request, ticket)
        return await self._truthfully(request, lambda: locator_of_link(ticket), self._decide(request, ticket, fields))

    async def _decide(self, request: Request, ticket: str, fields: Mapping[str, str]) -> Response:
        if fields[DECISION_FIELD] == CANCEL:
            app = await self.consent.decline(ticket)
            return self.browsers.arrived(f"/declined/{app.name}", locator_of_link(ticket))
        invitation = await self.consent.invitation(ticket, self._cookie_for(request, ticket))
        params = invitation.typed(views.typed_params(fields))
        if params is None:
            return await self._invite(request, ticket, views.typed_params(fields))
        if invitation.fields:
            return await self._enter(request, ticket, params, fields)
        departure = await self.consent.depart(ticket, params, views.typed_label(fields))
        invitation = await self.consent.invitation(ticket)
        view = ConnectView(invitation, self.consent.now())
        login = view.login_host
        place = (LOGIN_NAME, login) if login else (invitation.app.provider, view.provider_host)
        page = views.render_leaving(departure.url.reveal(), *place, self.browsers.locale(request, invitation.locale))
        session = departure.session
        return page.response(set_cookies=[self._cookie_of(session.locator, departure.cookie, session.expires_at)])

    async def _enter(
        self, request: Request, ticket: str, params: Mapping[str, str], fields: Mapping[str, str]
    ) -> Response:
        """Store the credential that was typed, or show the page again with the problem."""
        cookie, said = self._cookie_for(request, ticket), views.typed_credential(fields)
        try:
            done = await self.consent.enter(ticket, params, views.typed_label(fields), said, cookie)
        except BrokerError as error:
            refused = error
        else:
            locator, until = done.session.locator, done.session.expires_at
            response = self.browsers.arrived(done.url.reveal(), locator)
            response.headers.append("set-cookie", self._cookie_of(locator, done.cookie, until))
            return response
        if refused.code not in TRY_AGAIN:
            raise refused
        note_refusal(request.scope, refused)
        return await self._invite(request, ticket, views.typed_params(fields), refused)

    def _cookie_for(self, request: Request, ticket: str) -> str | None:
        return self.browsers.session(request, locator_of_link(ticket))

    def _ended(self, ending: AuthorizationEnd, request: Request, locator: str) -> Response:
        """Redirect a page that is loaded again when nothing is left to do on it."""
        if ending.code is None:
            return self.browsers.arrived(f"/connected/{ending.app.name}", locator)
        if ending.code is Code.PROVIDER_DENIED:
            return self.browsers.arrived(f"/declined/{ending.app.name}", locator)
        return error_responses.answer(BrokerError(ending.code), request, self.browsers.locale(request, ending.locale))

    def callback_of(self, app: App) -> Handler:
        """Return the handler of one app's own callback path."""

        async def arrive(request: Request, query: bytes) -> Response:
            came = await self.consent.arrive(app, query, self._cookies_of(request), request.path_params)
            result = f"/connected/{app.name}"
            place = f"{NEXT}/as-{came.locator}" if came.code_is_pending else result
            return self.browsers.arrived(place, came.locator, result)

        return partial(self._came_back, answer=arrive, code_param=app.habits.code_param)

    async def refuse_unknown(self, request: Request) -> NoReturn:
        """Refuse a callback of an app that is not configured here."""
        await self.consent.callback.refuse_unknown(request.path_params["app"], request.scope["query_string"])

    async def _came_back(
        self, request: Request, answer: Callable[[Request, bytes], Awaitable[Response]], code_param: str = "code"
    ) -> Response:
        """Answer a browser that was sent back with a query. Raises `callbackMalformed` for a prefetch."""
        if is_prefetch(request):
            raise BrokerError(Code.CALLBACK_MALFORMED, note="prefetch")
        query = request.scope["query_string"]
        return await self._truthfully(request, lambda: locator_of_callback(query, code_param), answer(request, query))

    async def log_in(self, request: Request) -> Response:
        """Handle the browser's return from the broker's own login. The session's browser gets a new cookie."""
        return await self._came_back(request, self._logged_in)

    async def _logged_in(self, request: Request, query: bytes) -> Response:
        try:
            arrived = await self.consent.log_in(query, self._cookies_of(request))
        except BrokerError as error:
            refused = error
        else:
            session = arrived.session
            cookie = self._cookie_of(session.locator, arrived.cookie, session.expires_at)
            return self.browsers.see_other(f"{NEXT}/{session.id}", cookie)
        place = await self.consent.login_endpoint()
        if refused.code is not Code.SUBJECT_MISMATCH or not error_responses.wants_page(request.headers) or not place:
            raise refused
        offered = await self.retry.offered(request, locator_of_callback(query), refused, login=place)
        if offered is not None:
            return offered
        note_refusal(request.scope, refused)
        return render_wrong_account(place, self.browsers.locale(request)).response()

    async def show_next(self, request: Request) -> Response:
        """Show the step after the callback where the runtime confirms the browser first, or after the login. A clean
        address, for this browser only; shown as often as it is asked for. Not a redirect: browsers hold one that
        follows from a form against the `form-action` of the provider's page."""
        locator = locator_of(request.path_params["session"])
        return await self._truthfully(request, lambda: locator, self._go_on(request, locator))

    async def _go_on(self, request: Request, locator: str) -> Response:
        step = await self.consent.next_step(locator, self.browsers.session(request, locator))
        if isinstance(step, AuthorizationEnd):
            offered = await self.retry.offered(request, locator, BrokerError(step.code)) if step.code else None
            return offered or self._ended(step, request, locator)
        if step.url is not None and step.app.credential is not None:  # back to our own page, with its fields
            return self.browsers.go(step.url.reveal())
        return render_next(step, self.browsers.locale(request), self.consent.now()).response()

    async def show_client(self, request: Request) -> Response:
        """Answer an authorization server with the document of our client there. It is public, and has no secret."""
        document = self.consent.client_document(request.path_params["app"])
        if document is None:
            raise HTTPException(404)
        return JSONResponse(document)

    async def show_private(self, request: Request) -> Response:
        """Show the page behind a conversation's link whose real one was delivered privately."""
        return render_private(self.browsers.locale(request)).response()

    async def _checked_decision(self, request: Request, ticket: str) -> Mapping[str, str]:
        fields = await self.browsers.form(request, self.browsers.key(request), ticket, f"/connect/{ticket}")
        decision = fields.get(DECISION_FIELD)
        if decision not in {CONTINUE, CANCEL}:
            raise BrokerError(Code.REQUEST_INVALID, note="decision")
        return fields

    def _cookie_of(self, locator: str, cookie: Secret, until: datetime) -> str:
        """Return the session's cookie. It outlives the link: its browser may still be needed for a minute, and is told
        the truth for an hour."""
        seconds = self.consent.seconds_left(until) + TRUTH_SECONDS
        return self.browsers.session_cookie(locator, cookie.reveal(), seconds)

    def _cookies_of(self, request: Request) -> Callable[[str], str | None]:
        return partial(self.browsers.session, request)
