"""The two pages that need no sign-in: `/`, which leads to what this listener serves, and `/docs`, the API's reference.

They say nothing that is not public in the package. Links are relative, so they hold on every listener and below any
path.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from oauthbroker.core.errors import Locale
from oauthbroker.web.api.openapi import document
from oauthbroker.web.html.api_reference import calls_of, schemas_of
from oauthbroker.web.html.form_routes import route
from oauthbroker.web.html.rendering import page
from oauthbroker.web.words import PAGES, locale_of

_PLACES = ("connections", "admin", "docs")


def start_routes(locale: Locale) -> list[BaseRoute]:
    """Return the route of `/`. `locale` is the broker's own language."""

    async def show(request: Request) -> Response:
        there = {getattr(each, "path", "") for each in request.app.router.routes}
        language = locale_of(request.headers.get("accept-language"), locale)
        places = [place for place in _PLACES if f"/{place}" in there]
        title = PAGES[language].start_title
        return page("start.html", language, kind="start", title=title, places=places).response()

    return [route("/", show, "GET")]


def docs_routes() -> list[BaseRoute]:
    """Return the route of `/docs`. Its words are those of the OpenAPI document, in English."""

    async def show(_: Request) -> Response:
        words = {"info": document()["info"], "calls": calls_of(document()), "schemas": schemas_of(document())}
        return page("docs.html", "en", kind="layout", title="API of the broker", **words).response()

    return [route("/docs", show, "GET")]
