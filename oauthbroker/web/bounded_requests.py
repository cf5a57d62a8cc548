"""Bound the values of requests before another application parses them."""

from __future__ import annotations

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oauthbroker.core.json_values import ValueCounter


class _TooMany(Exception):
    """A body of too many values."""


class BoundedRequests:
    """ASGI middleware: a body of more than `most_values` JSON values is answered with 413 before it is parsed."""

    def __init__(self, app: ASGIApp, most_values: int) -> None:
        self.app, self._most = app, most_values

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        counter, is_over, started = ValueCounter(self._most), False, False

        async def counted() -> Message:
            nonlocal is_over
            message = await receive()
            is_over = is_over or not counter.feed(message.get("body", b""))
            if is_over:
                raise _TooMany
            return message

        async def noted(message: Message) -> None:
            nonlocal started
            if not is_over or started:
                started = True
                await send(message)

        try:
            await self.app(scope, counted, noted)
        except Exception:
            if not is_over:
                raise
        if is_over and not started:
            await PlainTextResponse("too many values", 413)(scope, receive, send)
