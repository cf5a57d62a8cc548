"""The network of the async client: one connection pool for each event loop."""

from __future__ import annotations

import asyncio
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx2

from oauthbroker.client.address import Address
from oauthbroker.client.client_call import Reply, reply_of
from oauthbroker.client.transport import CONNECT_SECONDS, IDLE_SECONDS, MAX_IDLE, Request, Sending, check_length

_LIMITS = httpx2.Limits(max_connections=100, max_keepalive_connections=MAX_IDLE, keepalive_expiry=IDLE_SECONDS)


class AsyncTransport:
    """Safe for many tasks of one event loop; on another loop it opens connections of its own."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._http: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def exchange(self, request: Request, seconds: float, sending: Sending) -> Reply | None:
        http = self.http()
        try:
            async with asyncio.timeout(max(seconds, 0)):
                return await self._exchange(http, request, sending)
        except TimeoutError:
            sending.note = "no answer in time"
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as exc:
            sending.note = f"no answer ({type(exc).__name__})"
        return None

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None and self._loop is asyncio.get_running_loop():
            await http.aclose()

    async def _exchange(self, http: httpx2.AsyncClient, request: Request, sending: Sending) -> Reply:
        async def trace(event: str, _info: dict[str, Any]) -> None:
            if event.endswith("send_request_headers.started"):
                sending.sent = True

        async with http.stream(
            request.method,
            self._address.base + request.target,
            headers=request.raw_headers,
            content=request.body,
            extensions={"trace": trace},
        ) as response:
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                check_length(body)
        return reply_of(response.status_code, bytes(body), response.headers)

    def http(self) -> httpx2.AsyncClient:
        """Return the HTTP client of the running loop. Raises RuntimeError where asyncio runs none, as under trio."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError("an async client runs on asyncio: use the Sync one under trio, in a thread") from None
        if self._http is None or self._loop is not loop:
            socket = self._address.socket
            transport = httpx2.AsyncHTTPTransport(trust_env=False, limits=_LIMITS, uds=socket)
            self._loop = loop
            self._http = httpx2.AsyncClient(
                transport=transport,
                trust_env=False,
                follow_redirects=False,
                timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),  # the deadline for everything is in `exchange`
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            )
        return self._http
