"""A body that is read as it comes. Of a tool's request a short one is kept, and a longer one passes through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.injection.injector import ToolRequest

KEPT_BODY = 64 * 1024  # bytes: a shorter body is sent again with a fresh token after a 401
STALL_SECONDS = 30.0  # between two pieces
LEAVING_SECONDS = 1.0  # until we look whether the tool has left: most answers are there before


class ProxiedBody:
    """One request's body, and whether its tool is still there."""

    def __init__(self, request: Request) -> None:
        self._request = request
        announced = dict(request.scope["headers"]).get(b"content-length")
        self._length = None if announced is None else int(announced)
        self._over = asyncio.Event()  # all of it was received
        if self._length == 0:
            self._over.set()

    async def tool_request(self) -> ToolRequest:
        """Return the request with a body that is kept if it is short. Raises `requestTooLarge`, `requestTimeout`."""
        headers = self._request.scope["headers"]
        if self._over.is_set():
            return ToolRequest(headers=headers)
        pieces, kept = self.pieces(), bytearray()
        if self._length is None or self._length <= KEPT_BODY:
            async for piece in pieces:
                kept += piece
                if len(kept) > KEPT_BODY:
                    break
        if self._over.is_set():
            return ToolRequest(headers=headers, body=bytes(kept))
        return ToolRequest(headers=headers, body=_joined(bytes(kept), pieces), length=self._length)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """End the block once the tool has left. Raises ClientDisconnect."""
        watch: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:
                timer = loop.call_later(
                    LEAVING_SECONDS, lambda: watch.append(loop.create_task(self._until_gone(limit)))
                )
                try:
                    yield
                finally:
                    timer.cancel()
                    for task in watch:
                        task.cancel()
        except TimeoutError:
            if not limit.expired():
                raise
            gone = True
        else:
            gone = False
        if gone:
            raise ClientDisconnect

    async def _until_gone(self, limit: asyncio.Timeout) -> None:
        await self._over.wait()  # the end of the connection is heard with the body
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        limit.reschedule(asyncio.get_running_loop().time())

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the body as they come. Raises `requestTooLarge`, `requestTimeout`, ClientDisconnect."""
        while not self._over.is_set():
            try:
                async with asyncio.timeout(STALL_SECONDS):
                    message = await self._request.receive()
            except TimeoutError:
                message = None
            if message is None:
                raise BrokerError(Code.REQUEST_TIMEOUT, note="the body stalls")
            if message["type"] != "http.request":
                raise ClientDisconnect
            if not message.get("more_body", False):
                self._over.set()
            if body := message.get("body", b""):
                yield body


async def _joined(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for piece in others:
        yield piece
