"""uvicorn, told what we want of it: sockets of ours, our access log, an end that waits for what is under way."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import uvicorn
from starlette.types import ASGIApp
from structlog.typing import FilteringBoundLogger

from oauthbroker.broker import Broker
from oauthbroker.cli.process import ORPHANED
from oauthbroker.serving.connection import DoorConfig
from oauthbroker.serving.doors import Doors
from oauthbroker.serving.terms import Terms
from oauthbroker.web.forwarded import Proxies

ENDS = (signal.SIGTERM, signal.SIGINT)
AGAIN = signal.SIGHUP
GRACE_SECONDS = 15  # for answers under way; longer where a provider may take longer
AFTER_PROVIDER_SECONDS = 5


class Server(uvicorn.Server):
    """Leaves the signals to us: uvicorn repeats a signal after it has ended, and the process would die of it."""

    def __init__(self, config: DoorConfig) -> None:
        super().__init__(config)
        self.terms = config.terms

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def hurry(self) -> None:
        """Callers are not waited for any more: they are cut off."""
        self.force_exit = True
        self._cut_off()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Returns when nobody is connected: what stands behind the application is about to be closed."""
        self.terms.over = True
        await super().shutdown(sockets)
        self._cut_off()

    def _cut_off(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


@asynccontextmanager
async def served(
    web: ASGIApp, door: socket.socket, terms: Terms, *, grace_seconds: float = GRACE_SECONDS
) -> AsyncIterator[Server]:
    """The application behind `door`, until the block ends; then nobody new is let in, and who is there is answered."""
    server = Server(DoorConfig(web, terms, grace_seconds))
    task = asyncio.create_task(server.serve(sockets=[door]))
    try:
        yield server
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def broker_served(broker: Broker, doors: Doors, log: FilteringBoundLogger) -> AsyncIterator[list[Server]]:
    """Each door with what is behind it: the API apart where it has doors of its own."""
    settings, web = broker.bundle.settings, broker.doors
    limits = settings.limits
    behind = [
        (web.pages if settings.api_apart else web.both, doors.pages),
        (web.api, doors.api),
        (web.api, doors.unix),
    ]
    async with AsyncExitStack() as stack:
        servers = []
        for app, door in behind:
            if door is not None:
                terms = Terms(
                    log,
                    settings.locale,
                    limits.connections,
                    limits.header_seconds,
                    write_seconds=limits.request_seconds,
                    proxies=Proxies(settings.trusted_proxies),
                )
                grace = max(GRACE_SECONDS, limits.provider_seconds + AFTER_PROVIDER_SECONDS)
                servers.append(await stack.enter_async_context(served(app, door, terms, grace_seconds=grace)))
        stack.callback(_close_all, servers)
        yield servers


def _close_all(servers: list[Server]) -> None:
    """All at once, so that one listener's grace does not come after another's."""
    for server in servers:
        server.should_exit = True


@contextlib.contextmanager
def on_signals(
    end: Callable[[], object],
    again: Callable[[], object] | None = None,
    orphaned: Callable[[], object] | None = None,
) -> Iterator[None]:
    """SIGTERM and SIGINT call `end` in the running loop, SIGHUP `again`, and a parent's death `orphaned`, instead of
    what they do otherwise."""
    loop = asyncio.get_running_loop()
    named = {**dict.fromkeys(ENDS, end), AGAIN: again, ORPHANED: orphaned}
    reactions = {each: react for each, react in named.items() if react is not None}
    for each, react in reactions.items():
        loop.add_signal_handler(each, react)
    try:
        yield
    finally:
        for each in reactions:
            loop.remove_signal_handler(each)
