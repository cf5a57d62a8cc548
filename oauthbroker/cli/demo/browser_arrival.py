"""Track whether the user's browser is still following a redirect: the demo must not close before it arrives."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class DemoArrival:
    """ASGI middleware that counts redirects: a 303 starts one, the next page ends it."""

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
        """Return when no redirect is open, or after `seconds`, because the browser may be closed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
