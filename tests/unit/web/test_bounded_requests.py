"""A request of many values is answered before it is parsed."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from oauthbroker.web.bounded_requests import BoundedRequests

PARSED = list[bytes]()


async def parses(request: Request) -> PlainTextResponse:
    try:
        PARSED.append(await request.body())
    except Exception:
        if request.url.path == "/hides":
            return PlainTextResponse("what went wrong is ours", 500)
        raise
    return PlainTextResponse("ok")


@pytest.mark.parametrize("path", ["/", "/hides"])
@pytest.mark.parametrize(
    "body, status", [(b'{"a":[1,2]}', 200), (b"[1,2,3,4,5,6,7,8,9,0,1]", 413), (b"[" * 99, 413), (b"", 200)]
)
async def test_a_body_of_too_many_values_is_refused_unparsed(path: str, body: bytes, status: int) -> None:
    PARSED.clear()
    app: Any = BoundedRequests(
        Starlette(routes=[Route(each, parses, methods=["POST"]) for each in ("/", "/hides")]), 10
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://here") as client:
        answer = await client.post(path, content=body)
    assert (status, [body] if status == 200 else []) == (answer.status_code, PARSED)
