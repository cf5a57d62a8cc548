"""One broker, three ways to it: embedded, by the async client, by the sync client from a thread."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal, Protocol

import uvicorn

from oauthbroker.broker import Broker
from oauthbroker.client import Options, Runtime, SessionOutcome, SyncRuntime, TokenResult, Turn
from oauthbroker.core.secret import Secret
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.web.middleware.access_log import uvicorn_options

Way = Literal["embedded", "async", "sync"]
WAYS: list[Way] = ["embedded", "async", "sync"]
TOOLS: dict[str, tuple[ToolAuth, ...]] = {"Tool/mail": (ToolAuth("mail", ("read", "write")),)}


class Face(Protocol):
    """What a runtime and its tool do in the story, in one spelling. `tool` None: the runtime's own view."""

    async def ask(
        self, app: str, scopes: Sequence[str] | None = None, tool: str | None = "Tool/mail"
    ) -> TokenResult: ...
    async def ask_as_specified(self, request: dict[str, Any]) -> dict[str, Any]: ...
    async def reject(
        self, app: str, token: Secret, scopes: Sequence[str], claims: str | None = None
    ) -> TokenResult: ...
    async def pending(self) -> dict[str, Any] | None: ...
    async def lease(self) -> Any: ...
    async def ack(self, delivery: Any) -> bool: ...
    async def nack(self, delivery: Any) -> bool: ...
    async def wait(self, auth_session_id: str, timeout: float) -> SessionOutcome: ...
    async def cancel(self, auth_session_id: str) -> bool: ...


class Embedded:
    def __init__(self, broker: Broker, turn: Turn) -> None:
        self._broker = broker
        self._turn = turn

    async def ask(self, app: str, scopes: Sequence[str] | None = None, tool: str | None = "Tool/mail") -> TokenResult:
        return await self._broker.oauth(self._turn, tool).get_access_token(app, scopes)

    async def ask_as_specified(self, request: dict[str, Any]) -> dict[str, Any]:
        return await self._broker.oauth(self._turn, "Tool/mail").getAccessToken(request)

    async def reject(self, app: str, token: Secret, scopes: Sequence[str], claims: str | None = None) -> TokenResult:
        return await self._broker.oauth(self._turn, "Tool/mail").report_rejected(app, token, scopes, claims)

    async def pending(self) -> dict[str, Any] | None:
        return await self._broker.pending(self._turn)

    async def lease(self) -> Any:
        return await self._broker.events.lease("planner")

    async def ack(self, delivery: Any) -> bool:
        return bool(await delivery.ack())

    async def nack(self, delivery: Any) -> bool:
        return bool(await delivery.nack())

    async def wait(self, auth_session_id: str, timeout: float) -> SessionOutcome:
        return await self._broker.wait(auth_session_id, timeout)

    async def cancel(self, auth_session_id: str) -> bool:
        return await self._broker.cancel(auth_session_id)


class Asynchronous:
    def __init__(self, runtime: Runtime, turn: Any) -> None:
        self._runtime = runtime
        self._turn = turn

    async def ask(self, app: str, scopes: Sequence[str] | None = None, tool: str | None = "Tool/mail") -> TokenResult:
        return await self._turn.oauth(tool).get_access_token(app, scopes)  # type: ignore[no-any-return]

    async def ask_as_specified(self, request: dict[str, Any]) -> dict[str, Any]:
        return await self._turn.oauth("Tool/mail").getAccessToken(request)  # type: ignore[no-any-return]

    async def reject(self, app: str, token: Secret, scopes: Sequence[str], claims: str | None = None) -> TokenResult:
        return await self._turn.oauth("Tool/mail").report_rejected(app, token, scopes, claims)  # type: ignore[no-any-return]

    async def pending(self) -> dict[str, Any] | None:
        return await self._turn.pending()  # type: ignore[no-any-return]

    async def lease(self) -> Any:
        return await self._runtime.lease("planner", wait=0)

    async def ack(self, delivery: Any) -> bool:
        return bool(await delivery.ack())

    async def nack(self, delivery: Any) -> bool:
        return bool(await delivery.nack())

    async def wait(self, auth_session_id: str, timeout: float) -> SessionOutcome:
        return await self._runtime.wait(auth_session_id, timeout)

    async def cancel(self, auth_session_id: str) -> bool:
        return await self._runtime.cancel(auth_session_id)


class Synchronous:
    def __init__(self, runtime: SyncRuntime, turn: Any) -> None:
        self._runtime = runtime
        self._turn = turn

    async def ask(self, app: str, scopes: Sequence[str] | None = None, tool: str | None = "Tool/mail") -> TokenResult:
        result: TokenResult = await asyncio.to_thread(self._turn.oauth(tool).get_access_token, app, scopes)
        return result

    async def ask_as_specified(self, request: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = await asyncio.to_thread(self._turn.oauth("Tool/mail").getAccessToken, request)
        return result

    async def reject(self, app: str, token: Secret, scopes: Sequence[str], claims: str | None = None) -> TokenResult:
        result: TokenResult = await asyncio.to_thread(
            self._turn.oauth("Tool/mail").report_rejected, app, token, scopes, claims
        )
        return result

    async def pending(self) -> dict[str, Any] | None:
        block: dict[str, Any] | None = await asyncio.to_thread(self._turn.pending)
        return block

    async def lease(self) -> Any:
        return await asyncio.to_thread(self._runtime.lease, "planner", 0)

    async def ack(self, delivery: Any) -> bool:
        return bool(await asyncio.to_thread(delivery.ack))

    async def nack(self, delivery: Any) -> bool:
        return bool(await asyncio.to_thread(delivery.nack))

    async def wait(self, auth_session_id: str, timeout: float) -> SessionOutcome:
        return await asyncio.to_thread(self._runtime.wait, auth_session_id, timeout)

    async def cancel(self, auth_session_id: str) -> bool:
        return await asyncio.to_thread(self._runtime.cancel, auth_session_id)


@asynccontextmanager
async def reached(way: Way, broker: Broker, url: str, key: Secret, turn: Turn) -> AsyncIterator[Face]:
    """The broker in one of the three ways, with a turn that was begun."""
    async with AsyncExitStack() as stack:
        if way == "embedded":
            yield Embedded(broker, turn)
        elif way == "async":
            runtime = await stack.enter_async_context(Runtime(url, key, Options(timeout=60)))
            yield Asynchronous(runtime, await stack.enter_async_context(runtime.turn(turn, tools=TOOLS)))
        else:
            blocking = SyncRuntime(url, key, Options(timeout=60))
            stack.push_async_callback(asyncio.to_thread, blocking.close)
            running = await asyncio.to_thread(blocking.begin, turn, tools=TOOLS)
            stack.push_async_callback(asyncio.to_thread, blocking.end, running)
            yield Synchronous(blocking, running)


@asynccontextmanager
async def listening(app: Any, listener: socket.socket) -> AsyncIterator[str]:
    """Serves an application behind a bound socket, in this event loop; its address."""
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as oauthbroker.serving does
    server = uvicorn.Server(uvicorn.Config(app, **uvicorn_options(), lifespan="off"))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with asyncio.timeout(60):
            while not server.started and not task.done():
                await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
