"""Configure uvicorn: our sockets, our access log, and a shutdown that drains requests under way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from oauthbroker.broker import Broker
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.observability.logging import Log
from oauthbroker.serving.connection_slots import Terms
from oauthbroker.serving.http1.connection import ListenerConfig
from oauthbroker.serving.http1.warm_connection import WarmConnection
from oauthbroker.serving.listeners import Listeners
from oauthbroker.web.gate.public_path import public_path
from oauthbroker.web.gate.request_limits import LOCAL
from oauthbroker.web.middleware.forwarded import Proxies

GRACE_SECONDS = 15  # for requests under way; longer where a provider call may take longer
AFTER_PROVIDER_SECONDS = 5


class Server(uvicorn.Server):
    """A server without signal handling: uvicorn repeats a signal after its end, which would kill the process."""

    def __init__(self, config: ListenerConfig) -> None:
        super().__init__(config)
        self.terms = config.terms

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def hurry(self) -> None:
        """Stop waiting for callers and close their connections."""
        self.force_exit = True
        self._cut_off()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain the connections. Returns when none is left, before the application's resources are closed."""
        self.terms.draining = True
        await super().shutdown(sockets)
        self.terms.over = True
        self._cut_off()

    def _cut_off(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


@asynccontextmanager
async def served(
    web: ASGIApp, listeners: Sequence[socket.socket], terms: Terms, *, grace_seconds: float = GRACE_SECONDS
) -> AsyncIterator[Server]:
    """Serve the application on `listeners` for the block. Then stop accepting connections and drain the open ones."""
    server = Server(ListenerConfig(web=web, terms=terms, grace_seconds=grace_seconds, protocol=WarmConnection))
    task = asyncio.create_task(server.serve(sockets=list(listeners)))
    try:
        yield server
    finally:
        server.should_exit = True
        await task


@dataclass(frozen=True, slots=True)
class _LocalOnly:
    """The API at the socket of a person's own connections. Marks each request, so that its caller is the person alone,
    with any headers."""

    api: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["extensions"] = {**(scope.get("extensions") or {}), LOCAL: {}}
        await self.api(scope, receive, send)


@asynccontextmanager
async def broker_served(
    broker: Broker, listeners: Listeners, log: Log, *, pages: ASGIApp | None = None
) -> AsyncIterator[list[Server]]:
    """Serve each listener with its application: the API apart where it has listeners of its own. `pages` is served in
    place of the broker's own application for the pages."""
    settings, web = broker.bundle.settings, broker.asgi
    limits = settings.limits
    behind: list[tuple[ASGIApp, Sequence[socket.socket]]] = [
        (pages or (web.pages if settings.api_apart else web.app), listeners.pages),
        (web.api, listeners.api),
        (web.api, listeners.unix),
        (_LocalOnly(web.api), listeners.local),
    ]
    async with AsyncExitStack() as stack:
        servers = []
        for app, sockets in behind:
            if sockets:
                terms = Terms(
                    log,
                    locale=settings.locale,
                    connections=limits.connections,
                    write_seconds=limits.request_seconds,
                    proxies=Proxies(settings.trusted_proxies),
                    base=public_path(settings.public_base_url),
                    metrics=broker.metrics,
                )
                grace = max(GRACE_SECONDS, limits.provider_seconds + AFTER_PROVIDER_SECONDS)
                servers.append(await stack.enter_async_context(served(app, sockets, terms, grace_seconds=grace)))
        stack.callback(_close_all, servers)
        yield servers


def _close_all(servers: list[Server]) -> None:
    """Close all at once, so that the grace periods of the listeners overlap."""
    for server in servers:
        server.should_exit = True
