"""Templates into finished pages: server-rendered, escaped, without a script."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from oauthbroker.core.errors import Locale
from oauthbroker.web.branding import BRAND
from oauthbroker.web.display import HOST_LIMIT, counted, isolated, phrase
from oauthbroker.web.policy import TEMPLATES, content_security_policy, security_headers, stylesheet
from oauthbroker.web.words import PAGES


@dataclass(frozen=True, slots=True)
class Page:
    """One finished page: HTML, status, and how much of our address the next site may learn."""

    html: str = field(repr=False)
    status: int
    locale: Locale
    referrer_policy: Literal["no-referrer", "same-origin"] = "no-referrer"

    @property
    def has_images(self) -> bool:
        """Whether it bears a logo."""
        brand = BRAND.get()
        return brand is not None and bool(brand.logo)

    def response(self, *, set_cookies: Iterable[str] = ()) -> HTMLResponse:
        """The page with every security header; `set_cookies` are whole values made by `csrf.cookie_header`."""
        headers = {
            **security_headers(),
            "content-security-policy": content_security_policy(images=self.has_images),
            "referrer-policy": self.referrer_policy,
            "content-language": self.locale,
        }
        response = HTMLResponse(self.html, self.status, headers)
        for cookie in set_cookies:
            response.raw_headers.append((b"set-cookie", cookie.encode("ascii")))
        return response


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(
        phrase=phrase, isolated=isolated, counted=counted, stylesheet=stylesheet(), host_limit=HOST_LIMIT
    )
    return environment


def render(template: str, locale: Locale, **words: Any) -> str:
    """The HTML of one template; `text` are the words of the language unless it is given."""
    common = {"text": PAGES[locale], "brand": BRAND.get(), "support": PAGES[locale].support}
    return _environment().get_template(template).render(locale=locale, **{**common, **words})
