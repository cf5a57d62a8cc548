"""One serving process: alone, or one of several that share listeners and store."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from structlog.typing import FilteringBoundLogger

from oauthbroker.broker import Broker
from oauthbroker.cli.process import calm_libraries, end_with_parent, make_room
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError
from oauthbroker.serving.connection import LINGERING
from oauthbroker.serving.doors import Doors
from oauthbroker.serving.seats import SPARE
from oauthbroker.serving.server import Server, broker_served, on_signals
from oauthbroker.wiring import open_broker

OTHER_FILES = 256  # the store's, the providers', the log


@dataclass(frozen=True, slots=True)
class Post:
    """What a worker is told by its parent: which one it is, of how many, and what it inherits.

    `fds` are the listening sockets; `ready` is where it says, once, that it serves. It crosses as JSON, in an argument:
    nothing in it is secret.
    """

    number: int
    of: int
    parent: int
    ready: int
    fds: dict[str, int] = field(default_factory=dict)
    metrics_folder: str = ""

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Post:
        given: dict[str, Any] = json.loads(text)
        return cls(**given)

    def say_ready(self) -> None:
        with suppress(OSError):
            os.write(self.ready, b"1")
            os.close(self.ready)


async def work(config: Path, post: Post, clock: Clock, log: FilteringBoundLogger) -> None:
    """One of several, until told to end or its parent has died. Raises what `open_broker` raises."""
    end_with_parent(post.parent)
    folder = Path(post.metrics_folder) if post.metrics_folder else None
    doors, log = Doors.from_fds(post.fds), log.bind(worker=post.number)
    try:
        await serve(config, doors, clock, log, post=post, workers=post.of, metrics_folder=folder)
    finally:
        doors.close()


async def serve(
    config: Path,
    doors: Doors,
    clock: Clock,
    log: FilteringBoundLogger,
    *,
    post: Post | None = None,
    on_serving: Callable[[], None] = lambda: None,
    **shared: Any,
) -> None:
    """The broker behind these doors until SIGTERM or SIGINT. `on_serving` is called once it serves; `shared` goes to
    `open_broker`.

    The first signal lets waiting callers go and finishes what is under way; the second one waits for no caller any
    more. A parent's death is a first one, however often it is told. What was begun with a provider is finished in any
    case, because its answer may be the only copy of a token.
    """
    ending, hurry, again = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def end() -> None:
        (hurry if ending.is_set() else ending).set()

    with on_signals(end, again.set, ending.set), calm_libraries(log):
        async with (
            open_broker(config, clock=clock, log=log, **shared) as broker,
            broker_served(broker, doors, log) as servers,
            _reloading(broker, again),
        ):
            _make_room(broker, len(servers), log)
            _say_serving(broker, log)
            on_serving()
            if post is not None:
                post.say_ready()
            await ending.wait()
            log.info("stopping")
            broker.life.stop()
            cutting = asyncio.create_task(_cut_short(hurry, servers))
        cutting.cancel()
    log.info("stopped")


def _make_room(broker: Broker, doors: int, log: FilteringBoundLogger) -> None:
    """A connection that cannot be accepted for want of a descriptor waits in a queue that nobody reads."""
    wanted = doors * (broker.bundle.settings.limits.connections + SPARE + LINGERING) + OTHER_FILES
    may = make_room(wanted)
    if may < wanted:
        log.warning("too few file descriptors", limit=may, wanted=wanted)


def _say_serving(broker: Broker, log: FilteringBoundLogger) -> None:
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
    """Each time `again` is set. What was refused is in the log; `oauthbroker check` says it in full."""
    while True:
        await again.wait()
        again.clear()
        with suppress(BrokerError):
            await broker.reload()
