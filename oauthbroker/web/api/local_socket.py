"""The API at the socket of a person's own connections: the same routes, for one caller without a key."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.web.gate.request_limits import LOCAL


@dataclass(frozen=True, slots=True)
class LocalOnly:
    """Marks each request of its listener, so that its caller is the person alone, with any headers."""

    api: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["extensions"] = {**(scope.get("extensions") or {}), LOCAL: {}}
        await self.api(scope, receive, send)
