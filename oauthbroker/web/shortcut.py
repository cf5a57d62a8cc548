"""The way to the most frequent calls: paths without variable parts are looked up, without the router."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from oauthbroker.web.routes import Handler


class OwnMethods(Route):
    """A path whose handler knows its `served` methods: no other path shall answer for one that it lacks."""

    def __init__(self, path: str, handler: Handler, served: Iterable[str]) -> None:
        super().__init__(path, handler)
        self.methods = None
        self.served = frozenset(served)


class Shortcut:
    """ASGI middleware, the innermost. A router tries every route and wraps the found one; this looks once.

    Unknown paths, other methods and prefixes go to the router as ever.
    """

    def __init__(self, app: ASGIApp, *, routes: Sequence[BaseRoute]) -> None:
        self.app = app
        self._found = {each.path: each for each in routes if isinstance(each, OwnMethods) and "{" not in each.path}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._found.get(scope["path"]) if scope["type"] == "http" and not scope.get("root_path") else None
        if route is None or scope["method"] not in route.served:
            await self.app(scope, receive, send)
            return
        scope["route"], scope["path_params"] = route, {}
        response = await route.endpoint(Request(scope, receive))
        await response(scope, receive, send)
