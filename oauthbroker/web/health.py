"""What a probe asks: is the process alive, and is all well."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from oauthbroker.in_use import Health
from oauthbroker.web.policy import security_headers
from oauthbroker.web.routes import Handler, route


def health_routes(health: Callable[[], Health]) -> list[BaseRoute]:
    return [route("/healthz", health_page(health), "GET")]


def health_page(health: Callable[[], Health]) -> Handler:
    """Always 200: the process answers and serves tokens. Whoever restarts on another status would end a broker that
    works, and with a broken configuration it would not come up again. What is wrong is in the body."""

    async def answer(request: Request) -> Response:  # noqa: ARG001  (a handler's signature)
        return JSONResponse(health().to_json(), headers=security_headers())

    return answer
