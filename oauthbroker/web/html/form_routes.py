"""Routes of no other methods than given, and the small forms that they read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from oauthbroker.core.errors import BrokerError, Code

FORM = "application/x-www-form-urlencoded"

Handler = Callable[[Request], Awaitable[Response]]
Routes = Callable[[], list[BaseRoute]]


def route(path: str, handler: Handler, *methods: str) -> Route:
    """Build a route of these methods: Starlette adds HEAD to GET, and a HEAD must not look like a person (case 13)."""
    made = Route(path, handler)
    made.methods = set(methods)
    return made


class OwnMethods(Route):
    """A path whose handler knows its methods: no other path shall answer for one that it lacks."""

    def __init__(self, path: str, handler: Handler | ASGIApp) -> None:
        super().__init__(path, handler)
        self.methods = None


class Paths(Router):
    """Starlette's router. A path of `OwnMethods` without variable parts is looked up, and no other route is tried."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        super().__init__(redirect_slashes=False)
        self.follow(routes)

    def follow(self, routes: Sequence[BaseRoute]) -> None:
        """Take these routes. A request under way goes on with the route it came to."""
        own = [each for each in routes if isinstance(each, OwnMethods) and not each.param_convertors]
        self.routes[:], self._fixed = routes, {each.path: each for each in reversed(own)}
        self._first_steps = {_first_step(getattr(each, "path", "")) for each in routes}

    def begin(self, path: str) -> bool:
        """Return whether a route begins with the first step of a path."""
        return _first_step(path) in self._first_steps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = below_root(scope) if scope["type"] == "http" else ""
        route = self._fixed.get(path)
        if not path and scope["type"] == "http":  # the page's links are relative
            await RedirectResponse(f"{scope.get('root_path', '')}/")(scope, receive, send)
        elif route is None:
            await super().__call__(scope, receive, send)
        else:
            scope["route"] = route
            await route.app(scope, receive, send)


def _first_step(path: str) -> str:
    return path.removeprefix("/").partition("/")[0]


def below_root(scope: Scope) -> str:
    """Return the path below the one that the application is mounted at."""
    path: str = scope["path"]
    root = scope.get("root_path")
    return path.removeprefix(root) if root else path


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a small urlencoded form; a field that comes twice is no field. Raises `requestInvalid`."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise BrokerError(Code.REQUEST_INVALID, note="content-type")
    with suppress(ValueError):
        fields = parse_qs((await request.body()).decode("ascii"), max_num_fields=16)
        return {name: values[0] for name, values in fields.items() if len(values) == 1}
    raise BrokerError(Code.REQUEST_INVALID, note="form")
