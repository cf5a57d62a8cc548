"""Find the route below the path of `publicBaseUrl`, for a proxy that forwards paths unchanged."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from oauthbroker.web.html.form_routes import Paths


def public_path(public_base_url: str) -> str:
    """Return the path of `publicBaseUrl` as servers decode it, without its last slash."""
    return unquote(urlsplit(public_base_url).path).rstrip("/")


class BelowPublicPath:
    """ASGI middleware: it mounts the application at `base` for requests that come to it.

    A request stays as it is (1) of an application that is mounted already (2) where the proxy took `base` off, also if
    a route begins like `base`, as `/oauth/callback/<app>` does.
    """

    def __init__(self, app: ASGIApp, paths: Paths, base: str) -> None:
        self.app, self.paths, self.base = app, paths, base

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope.get("root_path") and self._leads_below(scope["path"]):
            scope = {**scope, "root_path": self.base}
        await self.app(scope, receive, send)

    def _leads_below(self, path: str) -> bool:
        rest = path.removeprefix(self.base)
        if not path.startswith(self.base) or rest[:1] not in {"", "/"}:
            return False
        return self.paths.begin(rest) if rest else not self.paths.begin(path)
