"""Whether the person's browser is still on its way to the page we sent it to: the demo must not close under it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Arrival:
    """ASGI middleware: a 303 sends somebody on, the next page is where he arrives."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._busy = 0
        self._arrived = asyncio.Event()
        self._arrived.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        self._busy += 1
        self._arrived.clear()
        try:
            await self._app(scope, receive, send_and_note)
        finally:
            self._busy -= 1
            if not self._busy and status != 303:
                self._arrived.set()

    async def wait(self, seconds: float) -> None:
        """Returns when nobody is on the way, or after `seconds`: perhaps he has closed his browser."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
