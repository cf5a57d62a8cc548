"""The team whose pages these are: its name, logo and support address, on every page of one broker.

Pages are rendered in many places, also where only an error is known. So the brand is set once for each request, around
everything that may render.
"""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.model.settings import Branding, Logo, Settings
from oauthbroker.web.html.form_routes import route
from oauthbroker.web.middleware.security_headers import security_headers

FOLDER = "/brand"
DAY = 86_400


@dataclass(frozen=True, slots=True)
class Brand:
    """What templates show. `logo` is its address, below the path of `publicBaseUrl`."""

    name: str = ""
    support_url: str = ""
    logo: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Brand | None:
        given = settings.branding
        if given == Branding():
            return None
        below = urlsplit(settings.public_base_url).path.rstrip("/")
        return cls(given.name, given.support_url, below + _path(given.logo) if given.logo is not None else "")


BRAND: ContextVar[Brand | None] = ContextVar("BRAND", default=None)


class Branded:
    """ASGI middleware: pages that are rendered inside it bear the brand."""

    def __init__(self, app: ASGIApp, *, brand: Brand) -> None:
        self.app, self.brand = app, brand

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        before = BRAND.set(self.brand)
        try:
            await self.app(scope, receive, send)
        finally:
            BRAND.reset(before)


def logo_routes(settings: Settings) -> list[BaseRoute]:
    """Return the logo, where there is one. Its address changes with it, so browsers may keep it."""
    logo = settings.branding.logo
    if logo is None:
        return []

    async def show(_: Request) -> Response:
        headers = {**security_headers(), "cache-control": f"public, max-age={DAY}, immutable"}
        return Response(logo.body, 200, headers, media_type=logo.media_type)

    return [route(_path(logo), show, "GET")]


def _path(logo: Logo) -> str:
    return f"{FOLDER}/{hashlib.sha256(logo.body).hexdigest()[:16]}"
