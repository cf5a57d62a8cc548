"""One serving process: alone, or one of several that share listeners and store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from oauthbroker.broker import Broker
from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError
from oauthbroker.observability.library_log import calm_libraries
from oauthbroker.observability.logging import Log
from oauthbroker.serving.connection_slots import SPARE
from oauthbroker.serving.event_loop import spare_the_start
from oauthbroker.serving.hardening import end_with_parent, raise_descriptor_limit
from oauthbroker.serving.http1.connection import LINGERING
from oauthbroker.serving.listeners import Listeners
from oauthbroker.serving.server import Server, broker_served
from oauthbroker.serving.signals import on_signals
from oauthbroker.wiring import open_broker
from oauthbroker.workers.post import Post

OTHER_FILES = 256  # of the store, the providers and the log
RELOAD_SECONDS = 5.0  # until a reload that found the store away is tried again


async def work(config: Path, post: Post, clock: Clock, log: Log) -> None:
    """Run one of several workers, until a signal or the parent's death. Raises what `open_broker` raises."""
    end_with_parent(post.parent)
    folder = Path(post.metrics_folder) if post.metrics_folder else None
    listeners, log = Listeners.from_fds(post.fds), log.bind(worker=post.number)
    try:
        await serve(config, listeners, clock, log, post=post, workers=post.of, metrics_folder=folder)
    finally:
        listeners.close()


async def serve(
    config: Path,
    listeners: Listeners,
    clock: Clock,
    log: Log,
    *,
    post: Post | None = None,
    on_serving: Callable[[], None] = lambda: None,
    **shared: Any,
) -> None:
    """Serve the broker on these listeners until SIGTERM or SIGINT. `shared` goes to `open_broker`.

    The first signal releases waiting callers and finishes requests under way; the second one closes their connections.
    A parent's death counts as a first signal, also when repeated. Provider calls under way are always finished, because
    their answer may be the only copy of a token.
    """
    ending, hurry, again = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def end() -> None:
        (hurry if ending.is_set() else ending).set()

    with on_signals(end, again.set, ending.set), calm_libraries(log):
        async with (
            open_broker(config, clock=clock, log=log, **shared) as broker,
            broker_served(broker, listeners, log) as servers,
            _reloading(broker, again),
        ):
            _raise_descriptor_limit(broker, len(servers), log)
            _say_serving(broker, log)
            spare_the_start()
            on_serving()
            if post is not None:
                post.say_ready()
            await ending.wait()
            log.info("stopping")
            broker.life.stop()
            cutting = asyncio.create_task(_cut_short(hurry, servers))
        cutting.cancel()
    log.info("stopped")


def _raise_descriptor_limit(broker: Broker, listeners: int, log: Log) -> None:
    """Raise the limit of open files. Without a free descriptor, connections would wait unaccepted."""
    wanted = listeners * (broker.bundle.settings.limits.connections + SPARE + LINGERING) + OTHER_FILES
    may = raise_descriptor_limit(wanted)
    if may < wanted:
        log.warning("too few file descriptors", limit=may, wanted=wanted)


def _say_serving(broker: Broker, log: Log) -> None:
    settings = broker.bundle.settings
    apart: dict[str, Any] = {"api_port": settings.api_port} if settings.api_port else {}
    if settings.api_socket is not None:
        apart["api_socket"] = settings.api_socket.path
    apps = len(broker.bundle.apps)
    log.info("serving", url=settings.public_base_url, port=settings.listen_port, apps=apps, **apart)


async def _cut_short(hurry: asyncio.Event, servers: list[Server]) -> None:
    await hurry.wait()
    for server in servers:
        server.hurry()


@asynccontextmanager
async def _reloading(broker: Broker, again: asyncio.Event) -> AsyncIterator[None]:
    task = asyncio.create_task(_reload_for_ever(broker, again))
    try:
        yield
    finally:
        task.cancel()


async def _reload_for_ever(broker: Broker, again: asyncio.Event) -> None:
    """Reload each time `again` is set, and try again while the store is away, locked or refuses us, which may end
    without a change here. A refusal of the configuration is logged; `oauthbroker check` shows it in full."""
    pause: float | None = None
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await again.wait()
        again.clear()
        pause = None
        try:
            await broker.reload()
        except BrokerError as error:
            pause = RELOAD_SECONDS if error.retryable else None
