"""Which route answers a path, and what becomes of a refusal that comes after an answer has begun."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.web.html.form_routes import OwnMethods, Paths, route
from tests.unit.web.kit import a_site, ask


def says(text: str) -> OwnMethods:
    class Says:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await PlainTextResponse(f"{text} {scope['route'].path}")(scope, receive, send)

    return OwnMethods(text, Says())


async def typed(request: Request) -> Response:
    return PlainTextResponse(f"typed {request.path_params['name']}")


ROUTES: list[BaseRoute] = [says("/v1/one"), says("/v1/{any:path}"), route("/typed/{name}", typed, "GET")]


@pytest.mark.parametrize(
    "path, answered",
    [
        ("/v1/one", b"/v1/one /v1/one"),
        ("/v1/one/", b"/v1/{any:path} /v1/{any:path}"),
        ("/v1/other", b"/v1/{any:path} /v1/{any:path}"),
        ("/typed/me", b"typed me"),
    ],
)
@pytest.mark.parametrize("root_path", ["", "/broker"])
async def test_a_path_is_answered_by_its_own_route_and_another_one_by_the_first_that_fits(
    path: str, answered: bytes, root_path: str
) -> None:
    answer = await ask(Paths(ROUTES), path, root_path=root_path)
    assert (200, answered) == (answer.status, answer.body)


async def test_the_first_of_two_routes_with_one_path_answers_and_a_route_that_was_taken_away_does_not() -> None:
    class Other:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await PlainTextResponse("other")(scope, receive, send)

    paths = Paths([says("/v1/one"), OwnMethods("/v1/one", Other())])
    assert (await ask(paths, "/v1/one")).body.startswith(b"/v1/one")
    paths.follow([OwnMethods("/v1/one", Other())])
    assert b"other" == (await ask(paths, "/v1/one")).body
    paths.follow([])
    assert 404 == (await ask(paths, "/v1/one")).status


async def test_a_refusal_after_the_beginning_of_an_answer_is_a_fault_in_the_log() -> None:
    class Breaks(Response):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise BrokerError(Code.STORE_LOCKED)

    async def begins(_request: Request) -> Response:
        return Breaks()

    site = a_site([route("/", begins, "GET")])
    answer = await ask(site.app)
    assert (200, False) == (answer.status, answer.finished)
    assert ["fault", "request"] == [line["event"] for line in site.lines]
