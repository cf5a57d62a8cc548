"""uvicorn, told what we want of it: one socket of ours, our access log, an end that waits for what is under way."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp

from oauthbroker.cli.refusals import Refused
from oauthbroker.web.access_log import uvicorn_options

ENDS = (signal.SIGTERM, signal.SIGINT)
AGAIN = signal.SIGHUP
GRACE_SECONDS = 15  # longer than one exchange with a provider may take


class Server(uvicorn.Server):
    """Leaves the signals to us: uvicorn repeats a signal after it has ended, and the process would die of it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server_of(web: ASGIApp) -> Server:
    return Server(uvicorn.Config(web, **uvicorn_options(), lifespan="off", timeout_graceful_shutdown=GRACE_SECONDS))


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises Refused with what is in the way."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), port), family=family)
    except OSError as error:
        why = {
            errno.EADDRINUSE: "somebody else listens there; stop it, or change spec.listen",
            errno.EACCES: "that needs rights this user does not have; choose a port above 1023",
            errno.EADDRNOTAVAIL: "this machine has no such address; change spec.listen.host",
        }.get(error.errno or 0, "change spec.listen")
    raise Refused(f"Cannot listen on {host} port {port}: {why}.")


@asynccontextmanager
async def served(web: ASGIApp, door: socket.socket) -> AsyncIterator[Server]:
    """The pages behind `door`, until the block ends."""
    server = server_of(web)
    task = asyncio.create_task(server.serve(sockets=[door]))
    try:
        yield server
    finally:
        server.should_exit = True
        await task


@contextlib.contextmanager
def on_signals(end: Callable[[], object], again: Callable[[], object] | None = None) -> Iterator[None]:
    """SIGTERM and SIGINT call `end` in the running loop, and SIGHUP `again`, instead of what they do otherwise."""
    loop = asyncio.get_running_loop()
    reactions = dict.fromkeys(ENDS, end) | ({AGAIN: again} if again is not None else {})
    for each, react in reactions.items():
        loop.add_signal_handler(each, react)
    try:
        yield
    finally:
        for each in reactions:
            loop.remove_signal_handler(each)
