"""The HTTP/1.1 server of the tests, which is uvicorn's. Faults write bytes on its transport."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from oauthbroker.testing.provider.http import Answer, Reply, Request, Wire

Handler = Callable[[Request], Awaitable[Reply]]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
_BODY_LIMIT = 1 << 20
_FAREWELL_SECONDS = 2
_IDLE_SECONDS = 3600  # the client closes
_QUIET = logging.getLogger("oauthbroker.testing.http")
_QUIET.setLevel(logging.CRITICAL)  # uvicorn tells of each broken request, and may trace whole ones


class HttpServer:
    """Listens on 127.0.0.1 and passes every request to one handler; with a context, over TLS."""

    def __init__(self, handler: Handler, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._tls = tls
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(("127.0.0.1", port))
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        self._server: asyncio.Server | None = None
        self.config = uvicorn.Config(handler, http="h11", ws="none", lifespan="off", log_config=None)
        self.state = ServerState()
        self.fault: Exception | None = None

    async def start(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self), sock=self._socket, backlog=1024, ssl=self._tls
        )

    async def stop(self) -> None:
        """Stop listening and drop every connection, hanging ones included."""
        if self._server:
            self._server.close()
        for connection in list(self.state.connections):
            connection.transport.abort()
        tasks = list(self.state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()
        await asyncio.sleep(0)  # let the transports close their sockets

    async def serve(self, connection: _Connection, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request. The connection ends unless its answer was HTTP, and whole."""
        wire = Wire(connection, send, is_head=scope["method"] == "HEAD")
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            body = await _body(receive)
            if body is None:
                await _refuse_large(receive, send)
                return
            reply = await self._reply(_request(scope, body))
            await reply.send(wire)
        if not wire.is_answered:
            connection.transport.close()
            await _gone(receive)

    async def _reply(self, request: Request) -> Reply:
        try:
            return await self._handler(request)
        except Exception as exc:  # noqa: BLE001 - a test's own script may fail in any way; the test must hear of it
            self.fault = self.fault or exc
            return Answer(500, (("connection", "close"),))


class ServerThread:
    """Serves in a thread with a loop of its own, between `start` and `stop`."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="identity-provider", daemon=True)

    def start(self) -> None:
        """Return once the server listens."""
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Return once every connection is closed and the thread has ended."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._server.start())
            self._ready.set()
            self._loop.run_forever()
            runner.run(self._server.stop())


class _Connection(H11Protocol):
    """uvicorn's connection, known to the application, and quiet."""

    def __init__(self, server: HttpServer) -> None:
        super().__init__(server.config, server.state, {})
        self.app = partial(server.serve, self)
        self.logger, self.access_log, self.timeout_keep_alive = _QUIET, False, _IDLE_SECONDS

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer the requests that came whole: a client that ends its half still reads."""
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_started:
            self.send_400_response("The request breaks off.")
        else:
            self.shutdown()
        return self.scheme == "http"  # TLS has no half-closed connection


async def _body(receive: Receive) -> bytes | None:
    """Return the body of a request; None if it is too large. Raises ConnectionError."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError
        body += message["body"]
        more = message["more_body"]
        if len(body) > _BODY_LIMIT:
            return None
    return bytes(body)


async def _refuse_large(receive: Receive, send: Send) -> None:
    """Answer, and read what the client still sends for a moment: closing with bytes unread would reset the connection,
    and the answer could be lost."""
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FAREWELL_SECONDS):
            await _gone(receive)
    await send({"type": "http.response.body"})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _request(scope: Any, body: bytes) -> Request:
    return Request(
        method=scope["method"],
        path=scope["raw_path"].decode("latin-1"),
        query=scope["query_string"].decode("latin-1"),
        headers=tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]),
        body=body,
    )
