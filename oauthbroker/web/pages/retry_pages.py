"""The page with another try, and its button. It is shown only to the browser whose authorization came to nothing."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oauthbroker.authorization.retry import Offer, RetryService
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Locale
from oauthbroker.model.connect_links import locator_of
from oauthbroker.web.gate import error_responses
from oauthbroker.web.gate.browsers import Browsers
from oauthbroker.web.html.rendering import Page, page
from oauthbroker.web.html.shown_names import HOST_LIMIT, host_of, isolated, phrase
from oauthbroker.web.middleware.access_log import note_refusal
from oauthbroker.web.words import PAGES

AGAIN = "/next/{session}/again"


@dataclass(frozen=True, slots=True)
class RetryPages:
    """`offered` makes the page, `again` is where its button goes."""

    retrying: RetryService
    browsers: Browsers

    async def offered(
        self, request: Request, locator: str, refused: BrokerError, *, login: str = ""
    ) -> Response | None:
        """Return the page in the place of an error's; None where this browser is offered nothing. `login` is where the
        wrong account was given, if that was the broker's own login."""
        if not error_responses.wants_page(request.headers):
            return None
        offer = await self.retrying.offer(locator, self.browsers.session(request, locator))
        if offer is None or offer.at_login != bool(login):
            return None
        note_refusal(request.scope, refused)
        path, key = _path(locator), self.browsers.key(request)
        new = [] if self.browsers.known_key(request) else [self.browsers.key_cookie(key)]
        locale = self.browsers.locale(request, offer.locale)
        page = render_offer(offer, self.browsers.url(path), self.browsers.field(key, path), locale, login)
        return page.response(set_cookies=new)

    async def again(self, request: Request) -> Response:
        """Redirect to the connect page of the new link, which asks for consent as usual."""
        locator = locator_of(request.path_params["session"])
        await self.browsers.form(request, self.browsers.key(request), _path(locator), f"/next/as-{locator}")
        ticket = await self.retrying.retry_session(locator, self.browsers.session(request, locator))
        return self.browsers.see_other(f"/connect/{ticket}")


def _path(locator: str) -> str:
    return AGAIN.format(session=f"as-{locator}")


def render_offer(offer: Offer, action: str, token: str, locale: Locale, login: str = "") -> Page:
    """Render the error, and the button for another try. It never says which account came."""
    text, error = PAGES[locale], BrokerError(offer.code)
    lead: str = text.code_over_lead if offer.is_of_code else error.message(locale)
    hint: str = text.code_over_hint if offer.is_of_code else text.again_hint
    if login:
        host = isolated(host_of(login), HOST_LIMIT)
        lead, hint = phrase(text.login_wrong_lead, host=host), phrase(text.login_wrong_hint, host=host)
    return page(
        "retry.html",
        locale,
        status=error.status,
        referrer_policy="same-origin",
        kind="expired" if offer.is_of_code else "failed",
        title=text.code_over_title if offer.is_of_code else text.login_wrong_title,
        lead=lead,
        expected=phrase(text.again_expected, subject=isolated(offer.expected, 120)) if offer.expected else "",
        hint=hint,
        button=text.code_over_button if offer.is_of_code else text.again_button,
        action=action,
        token=token,
    )
