"""Templates into finished pages: server-rendered, escaped, without a script."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from starlette.responses import HTMLResponse

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import Locale
from oauthbroker.web.html.branding import BRAND
from oauthbroker.web.html.shown_names import HOST_LIMIT, counted, isolated, phrase
from oauthbroker.web.middleware.security_headers import TEMPLATES, content_security_policy, security_headers, stylesheet
from oauthbroker.web.words import PAGES

ReferrerPolicy = Literal["no-referrer", "same-origin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One finished page: HTML, status, and how much of our address the next site may learn."""

    html: str = field(repr=False)
    status: int
    locale: Locale
    referrer_policy: ReferrerPolicy = "no-referrer"

    def response(self, *, set_cookies: Iterable[str] = ()) -> HTMLResponse:
        """Return the page with every security header; `set_cookies` are whole values made by `csrf.cookie_header`."""
        brand = BRAND.get()
        headers = {
            **security_headers(),
            "content-security-policy": content_security_policy(images=brand is not None and bool(brand.logo)),
            "referrer-policy": self.referrer_policy,
            "content-language": self.locale,
        }
        response = HTMLResponse(self.html, self.status, headers)
        response.raw_headers.extend((b"set-cookie", cookie.encode("ascii")) for cookie in set_cookies)
        return response


@cache
def _environment(folder: Path | None) -> Environment:
    """`folder` has the templates of a plug-in, which are found as `plugin/<name>`."""
    plugins = [] if folder is None else [PrefixLoader({"plugin": FileSystemLoader(folder)})]
    environment = Environment(
        loader=ChoiceLoader([FileSystemLoader(TEMPLATES), *plugins]),
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


def page(
    template: str,
    locale: Locale,
    *,
    status: int = 200,
    referrer_policy: ReferrerPolicy = "no-referrer",
    folder: Path | None = None,
    **words: Any,
) -> Page:
    """Return the page of one template; `text` are the words of the language unless it is given."""
    common = {"text": PAGES[locale], "brand": BRAND.get(), "support": PAGES[locale].support}
    html = _environment(folder).get_template(template).render(locale=locale, **{**common, **words})
    return Page(html=html, status=status, locale=locale, referrer_policy=referrer_policy)
