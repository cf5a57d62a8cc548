"""Routes of no other methods than given, and the small forms that they read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

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


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a small urlencoded form; a field that comes twice is no field. Raises `requestInvalid`."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise BrokerError(Code.REQUEST_INVALID, note="content-type")
    with suppress(ValueError):
        fields = parse_qs((await request.body()).decode("ascii"), max_num_fields=16)
        return {name: values[0] for name, values in fields.items() if len(values) == 1}
    raise BrokerError(Code.REQUEST_INVALID, note="form")
