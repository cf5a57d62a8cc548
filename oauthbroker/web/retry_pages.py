"""The page with another try, and its button. It is shown only to the browser whose authorization came to nothing."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oauthbroker.authorization.retry import Offer, RetryService
from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.model.session_id import locator_of
from oauthbroker.model.settings import Settings
from oauthbroker.web import csrf, problems
from oauthbroker.web.access_log import note_refusal
from oauthbroker.web.display import HOST_LIMIT, host_of, isolated, phrase
from oauthbroker.web.pages import CSRF_FIELD
from oauthbroker.web.policy import security_headers
from oauthbroker.web.rendering import Page, render
from oauthbroker.web.routes import read_form
from oauthbroker.web.words import PAGES, locale_of

AGAIN = "/next/{session}/again"
BROWSER_COOKIE_SECONDS = 3600


class RetryPages:
    """`offered` makes the page, `again` is where its button goes."""

    def __init__(self, retrying: RetryService, settings: Settings, mac: csrf.Mac, clock: Clock) -> None:
        self._retrying = retrying
        self._base_url = settings.public_base_url.rstrip("/")
        self._origin = csrf.origin_of(settings.public_base_url)
        self._secure = settings.public_base_url.startswith("https:")
        self._locale = settings.locale
        self._mac = mac
        self._clock = clock

    async def offered(
        self, request: Request, locator: str, refused: BrokerError, *, login: str = ""
    ) -> Response | None:
        """The page in the place of an error's; None where this browser is offered nothing. `login` is where the wrong
        account was given, if that was the broker's own login."""
        if not problems.wants_page(request.headers):
            return None
        offer = await self._retrying.offer(locator, self._cookie_of(request, locator))
        if offer is None or offer.at_login != bool(login):
            return None
        note_refusal(request.scope, refused)
        name, path = csrf.browser_cookie_name(secure=self._secure), _path(locator)
        known = csrf.read_cookie(request.headers, name)
        key = known or csrf.new_browser_key(self._clock)
        locale = locale_of(request.headers.get("accept-language", ""), offer.locale or self._locale)
        page = render_offer(offer, self._base_url + path, csrf.csrf_token(self._mac, key, path), locale, login)
        cookie = csrf.cookie_header(name, key, secure=self._secure, max_age=BROWSER_COOKIE_SECONDS)
        return page.response(set_cookies=[] if known else [cookie])

    async def again(self, request: Request) -> Response:
        """The button: off to the connect page of the new link, which asks as it always does."""
        locator = locator_of(request.path_params["session"])
        if not csrf.same_origin(request.headers, self._origin):
            raise BrokerError(Code.OWNER_BINDING_FAILED, note="the form came from elsewhere")
        fields = await read_form(request)
        key = csrf.read_cookie(request.headers, csrf.browser_cookie_name(secure=self._secure))
        if not csrf.csrf_matches(self._mac, key, _path(locator), fields.get(CSRF_FIELD)):
            raise BrokerError(Code.OWNER_BINDING_FAILED, note="the form was not given to this browser")
        ticket = await self._retrying.take(locator, self._cookie_of(request, locator))
        return Response(
            status_code=303, headers={**security_headers(), "location": f"{self._base_url}/connect/{ticket}"}
        )

    def _cookie_of(self, request: Request, locator: str) -> str | None:
        return csrf.read_cookie(request.headers, csrf.session_cookie_name(locator, secure=self._secure))


def _path(locator: str) -> str:
    return AGAIN.format(session=f"as-{locator}")


def render_offer(offer: Offer, action: str, token: str, locale: Locale, login: str = "") -> Page:
    """What went wrong, and the button. It never says which account came."""
    text, error = PAGES[locale], BrokerError(offer.code)
    lead: str = text.code_over_lead if offer.is_of_code else error.message(locale)
    hint: str = text.code_over_hint if offer.is_of_code else text.again_hint
    if login:
        host = isolated(host_of(login), HOST_LIMIT)
        lead, hint = phrase(text.login_wrong_lead, host=host), phrase(text.login_wrong_hint, host=host)
    html = render(
        "again.html",
        locale,
        kind="expired" if offer.is_of_code else "failed",
        title=text.code_over_title if offer.is_of_code else text.login_wrong_title,
        lead=lead,
        expected=phrase(text.again_expected, subject=isolated(offer.expected, 120)) if offer.expected else "",
        hint=hint,
        button=text.code_over_button if offer.is_of_code else text.again_button,
        action=action,
        token=token,
    )
    return Page(html, error.status, locale, "same-origin")
