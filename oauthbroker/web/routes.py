"""Routes of one method each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

Handler = Callable[[Request], Awaitable[Response]]
Routes = Callable[[], list[BaseRoute]]


def route(path: str, handler: Handler, method: str) -> Route:
    """One method and no other: Starlette adds HEAD to GET, and a HEAD must not look like a person (case 13)."""
    made = Route(path, handler, methods=[method])
    made.methods = {method}
    return made
