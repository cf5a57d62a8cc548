"""A transport of httpx2, such as McpTransport, below a client of httpx, as the SDK `mcp` 1 takes it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx  # noqa: TID251  (a client for the SDK, which sends nothing by itself)
import httpx2


def httpx_client(transport: httpx2.AsyncBaseTransport, **more: Any) -> httpx.AsyncClient:
    """Return a client of httpx on a transport of httpx2. `more` is for `httpx.AsyncClient`."""
    return httpx.AsyncClient(transport=_OnHttpx(transport), **more)


class _OnHttpx(httpx.AsyncBaseTransport):
    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        content = await request.aread()
        asked = httpx2.Request(request.method, str(request.url), headers=request.headers.raw, content=content)
        answer = await self._transport.handle_async_request(asked)
        return httpx.Response(answer.status_code, headers=answer.headers.raw, stream=_Stream(answer.stream))

    async def aclose(self) -> None:
        await self._transport.aclose()


class _Stream(httpx.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream  # not `aiter_raw`: an answer of our own has been read

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
