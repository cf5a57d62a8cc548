"""The shortcut answers as the router would; it only finds what it knows sooner."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from oauthbroker.web.access_log import route_template
from oauthbroker.web.shortcut import OwnMethods, Shortcut
from tests.unit.web.kit import ask


async def said(request: Request) -> Response:
    if request.method == "DELETE":
        return PlainTextResponse("no", 405)
    seen = "app" if "app" in request.scope else "short"
    return PlainTextResponse(f"{route_template(request.scope)} {request.method} {dict(request.path_params)} {seen}")


ROUTES: list[BaseRoute] = [
    OwnMethods("/v1/tokens", said, ["POST"]),
    OwnMethods("/v1/turns/{turnId}", said, ["GET"]),
    Route("/page", said),
]


@pytest.mark.parametrize(
    ("path", "method", "status", "answer"),
    [
        ("/v1/tokens", "POST", 200, "/v1/tokens POST {}"),
        ("/v1/tokens", "DELETE", 405, "no"),
        ("/v1/tokens/x", "POST", 404, "Not Found"),
        ("/v1/turns/a", "GET", 200, "/v1/turns/{turnId} GET {'turnId': 'a'}"),
        ("/page", "GET", 200, "/page GET {}"),
        ("/page", "POST", 405, "Method Not Allowed"),
        ("/", "GET", 404, "Not Found"),
    ],
)
@pytest.mark.parametrize("root_path", ["", "/below"])
async def test_every_answer_is_the_routers(path: str, method: str, status: int, answer: str, root_path: str) -> None:
    routed = Starlette(routes=ROUTES)
    short = Starlette(routes=ROUTES, middleware=[Middleware(Shortcut, routes=ROUTES)])
    for app in (routed, short):
        found = await ask(app, path, method=method, root_path=root_path)
        assert (status, answer) == (found.status, found.text.removesuffix(" app"))


async def test_the_router_is_not_asked_for_what_is_known() -> None:
    app = Shortcut(Starlette(), routes=ROUTES)
    assert "/v1/tokens POST {} short" == (await ask(app, "/v1/tokens", method="POST")).text
    assert 404 == (await ask(app, "/v1/turns/a")).status
