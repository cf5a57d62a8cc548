"""Send requests of httpx2 over connections that we dial ourselves. Public parts only; imported at the first request."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, AsyncIterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import cast

import httpcore2
import httpx2


def refusing_jar() -> CookieJar:
    """Return a jar that keeps no cookie. Its module imports urllib, which a process without a call lacks."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


class PoolTransport(httpx2.AsyncBaseTransport):
    """Sends requests on connections from `backend`. None is reused: the provider may close a kept connection just as a
    one-time code is sent on it. Raises the exceptions of httpcore2."""

    def __init__(self, context: ssl.SSLContext, backend: httpcore2.AsyncNetworkBackend) -> None:
        self._connections = httpcore2.AsyncConnectionPool(
            ssl_context=context, max_connections=None, max_keepalive_connections=0, network_backend=backend
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        answer = await self._connections.handle_async_request(
            httpcore2.Request(
                request.method,
                httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        body = _Body(cast("AsyncIterable[bytes]", answer.stream))  # a pool that is not async has the other kind
        return httpx2.Response(answer.status, headers=answer.headers, stream=body, extensions=answer.extensions)

    async def aclose(self) -> None:
        await self._connections.aclose()


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, piece by piece as it comes."""

    def __init__(self, pieces: AsyncIterable[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._pieces:
            yield piece

    async def aclose(self) -> None:
        close = getattr(self._pieces, "aclose", None)
        if close is not None:
            await close()
