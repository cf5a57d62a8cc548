"""A provider's API that a test scripts, behind the proxy, and a tool in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from oauthbroker.audit import AuditEntry
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, running, user_app
from tests.story.api.kit import Answer, Caller, Callers
from tests.unit.protocol.kit import RawServer

TOOLS = {"Tool/carried": (ToolAuth("mail", ("read",), injected=True),), "Tool/none": ()}
ALL = dict.fromkeys(TOOLS)
STATUS = "oauthbroker-status"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Stage:
    """A provider's API that a test scripts, and a tool in front of the broker."""

    def __init__(self, harness: Harness, api: RawServer, callers: Callers, tool: Caller, token: str) -> None:
        self.harness, self.api, self.callers, self.tool, self.token = harness, api, callers, tool, token

    def path(self, rest: str = "", app: str = "mail", host: str = "") -> str:
        return f"/v1/proxy/{app}/{host or f'127.0.0.1:{self.api.port}'}/{rest}"

    async def send(self, method: str = "GET", rest: str = "", **more: Any) -> Answer:
        return await self.tool.send(method, self.path(rest), **more)

    def entries(self, kind: type[AuditEntry]) -> list[Any]:
        return [entry for entry in self.harness.audit.entries if isinstance(entry, kind)]

    @property
    def sent(self) -> list[bytes]:
        return self.api.requests


@asynccontextmanager
async def stage(
    idp: IdentityProvider, clock: TestClock, handler: Handler, *, connected: bool = True, **app: Any
) -> AsyncIterator[Stage]:
    async with RawServer(handler) as api:
        access = ApiAccess((ApiHost("127.0.0.1", api.port, "http"), ApiHost("10.1.2.3")), ("GET", "HEAD", "POST"))
        apps = [user_app(idp, api=access, **app), user_app(idp, "bare")]
        async with running(idp, apps, clock=clock, tools=TOOLS, background=False) as harness:
            token = (await harness.connected()).access_token.reveal() if connected else ""
            callers = await Callers.of(harness)
            yield Stage(harness, api, callers, await callers.tool("Tool/carried", tools=ALL), token)
