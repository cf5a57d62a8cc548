"""One connection: how long it may take, how many there may be, who is at its other end on this machine."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from oauthbroker.errors import Code, Locale
from oauthbroker.serving.body import Chunks, Malformed, Sized
from oauthbroker.serving.exchange import Exchange, scope_of
from oauthbroker.serving.parting import PartingTransport
from oauthbroker.serving.wire import read_head, refusal_bytes
from oauthbroker.web.access_log import uvicorn_options
from oauthbroker.web.headers import PEER, PROBES

IDLE_SECONDS = 5  # between two requests of one connection
SPARE = 8  # connections beyond the limit from this machine, for probes only
TELL_SECONDS = 10.0
_UCRED = struct.Struct("iII")  # pid, uid, gid: unix(7), SO_PEERCRED
_LOOPBACK = ("127.", "::1", "::ffff:127.")
_TICK = 0.002  # how coarse a loop's clock may be


@dataclass(slots=True)
class Terms:
    """What holds for the connections of one listener. Seconds; `connections` at once. `over`: it lets nobody in."""

    log: FilteringBoundLogger
    locale: Locale = "en"
    connections: int = 1_000
    header_seconds: float = 10.0
    write_seconds: float = 60.0
    over: bool = field(default=False, init=False)
    _turned_away: int = field(default=0, init=False)
    _told_at: float = field(default=float("-inf"), init=False)

    def turn_away(self, now: float) -> None:
        """One more connection was refused: said once in a while, with how many there were."""
        self._turned_away += 1
        if now - self._told_at >= TELL_SECONDS:
            self.log.warning("too many connections", limit=self.connections, refused=self._turned_away)
            self._told_at, self._turned_away = now, 0


class DoorConfig(uvicorn.Config):
    """uvicorn's, with our protocol and the terms that it holds connections to."""

    def __init__(self, web: ASGIApp, terms: Terms, grace_seconds: float) -> None:
        self.terms = terms
        options: dict[str, Any] = {**uvicorn_options(), "http": Connection, "lifespan": "off"}
        super().__init__(
            web, **options, timeout_keep_alive=IDLE_SECONDS, timeout_graceful_shutdown=max(1, round(grace_seconds))
        )


class Connection(asyncio.Protocol):
    """HTTP/1.1 for uvicorn's server, with deadlines, a limit, and a reader that is strict (cases 82 to 84).

    One request after the other: what comes behind one that is being answered waits, and is not looked at.
    """

    def __init__(
        self,
        config: DoorConfig,
        server_state: ServerState,
        app_state: dict[str, Any],  # noqa: ARG002  (there is no lifespan)
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.transport: PartingTransport
        self.held_up = False
        self._loop = _loop or asyncio.get_running_loop()
        self._app: ASGIApp = config.loaded_app
        self._terms, self._server = config.terms, server_state
        self._connections: set[Any] = server_state.connections  # uvicorn's type names its own protocols
        self._ends: dict[str, Any] = {}
        self._peer: dict[str, Any] = {}
        self._received, self._seen = b"", 0
        self._begun = True  # the first request is awaited from the start, a later one once something of it is there
        self._exchange: Exchange | None = None
        self._body: Sized | Chunks | None = None
        self._holds = False
        self._drained: asyncio.Future[None] | None = None
        self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        terms = self._terms
        self.transport = PartingTransport(transport, self._loop, terms.write_seconds, self._body_is_coming)
        self._connections.add(self)
        if terms.over:  # accepted before the door was closed, and made only now
            self.transport.abort()
            return
        client, uid = get_remote_addr(transport), peer_uid(transport)
        self._ends = {"scheme": "http", "server": get_local_addr(transport), "client": client}
        self._peer = {} if uid is None else {PEER: {"uid": uid}}
        here = len(self._connections)
        self._await_head(terms.header_seconds)
        if here <= terms.connections:
            return
        if here <= terms.connections + SPARE and client is not None and client[0].startswith(_LOOPBACK):
            self._app = partial(_serve_probes, self._app, terms.locale)
            return
        terms.turn_away(self._loop.time())
        self.transport.write(refusal_bytes(503, Code.SERVER_BUSY, terms.locale))
        if here <= terms.connections * 2:
            self.transport.part()
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio)
        self._connections.discard(self)
        self._await_nothing()
        self.transport.lost()
        if self._exchange is not None:
            self._exchange.leave()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            self.transport.forget(data)
            return
        self._received = self._received + data if self._received else data
        self._read()

    def shutdown(self) -> None:
        """Whose request is under way is answered; everybody else is let go."""
        if self._exchange is None or self._exchange.complete:
            self.transport.close()
        else:
            self._exchange.keeps_alive = False

    def pause_writing(self) -> None:
        self.held_up = True
        self.transport.hold_up()

    def resume_writing(self) -> None:
        self.held_up = False
        self.transport.go_on()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    @property
    def own_headers(self) -> list[tuple[bytes, bytes]]:
        return self._server.default_headers

    async def drained(self) -> None:
        if self._drained is None or self._drained.done():
            self._drained = self._loop.create_future()
        await asyncio.shield(self._drained)

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def hold(self) -> None:
        if not self._holds and not self.transport.is_closing():
            self._holds = True
            self.transport.pause_reading()

    def read_on(self) -> None:
        if self._holds and not self.transport.is_closing():
            self._holds = False
            self.transport.resume_reading()

    def answered(self) -> None:
        self._server.total_requests += 1
        if self._exchange is not None and not self._exchange.keeps_alive:
            self.transport.close()
        elif self._body is None:
            self._next()
        else:
            self._await_head(self._terms.header_seconds)  # of what is left of the body, too
            self.read_on()

    def _read(self) -> None:
        """Goes on with what has come, as far as it may be read now."""
        try:
            while self._received and not self.transport.is_closing():
                if self._body is not None:
                    self._read_body(self._body)
                elif self._exchange is not None:
                    self.hold()
                    return
                elif not self._read_head():
                    return
        except Malformed as verdict:
            refused = verdict
        else:
            return
        self._refuse(refused.status, refused.code, refused.note)

    def _read_head(self) -> bool:
        """False while it is not complete. Raises Malformed."""
        found = read_head(self._received, self._seen)
        if found is None:
            self._seen = len(self._received)
            if not self._begun:
                self._begun = True
                self._await_head(self._terms.header_seconds)
            return False
        head, length = found
        self._received, self._seen = self._received[length:], 0
        self._due = math.inf
        self._body = head.body
        scope = scope_of(head, extensions=dict(self._peer), **self._ends)
        self._exchange = Exchange(self, head)
        task = self._loop.create_task(self._run(self._exchange, scope))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)
        return True

    def _read_body(self, body: Sized | Chunks) -> None:
        part, self._received = body.take(self._received)
        exchange = self._exchange
        assert exchange is not None  # noqa: S101  (a body is a request's)
        if body.over:
            self._body = None
        exchange.take(part, more=not body.over)
        if body.over and exchange.complete:
            self._next()

    async def _run(self, exchange: Exchange, scope: Scope) -> None:
        """What the gate itself did not answer ends the connection; so does an answer that is not whole."""
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception as exc:  # noqa: BLE001 - the last fence: nothing may reach a loop that prints messages
            self._terms.log.error("fault", exception=type(exc).__qualname__, place=__name__, request_id="")
        finally:
            if not (exchange.complete or exchange.gone):
                self._break_off(exchange)

    def _break_off(self, exchange: Exchange) -> None:
        exchange.leave()
        if not exchange.begun:
            self.transport.write(refusal_bytes(503, Code.SERVER_BUSY, self._terms.locale))
        self.transport.close()

    def _next(self) -> None:
        """The next request may come, or is there already."""
        self._exchange, self._begun = None, False
        self._await_head(IDLE_SECONDS)
        self.read_on()
        self._read()

    def _body_is_coming(self) -> bool:
        return self._body is not None

    def _await_head(self, seconds: float) -> None:
        """One timer a connection, however many requests: it looks when it rings whether it is due."""
        self._due = self._loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._due:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._due, self._look)

    def _await_nothing(self) -> None:
        self._due = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Whoever has said nothing at all is told nothing."""
        self._timer = None
        if self._due == math.inf:
            return
        if self._loop.time() < self._due - _TICK:
            self._timer = self._loop.call_at(self._due, self._look)
        elif self._received:
            self._refuse(408, Code.REQUEST_TIMEOUT, "headers too slow")
        else:
            self.transport.close()

    def _refuse(self, status: int, code: Code, note: str) -> None:
        """Says no and hangs up; a request that was being answered has lost its caller."""
        self._await_nothing()
        exchange = self._exchange
        if exchange is not None:
            exchange.leave()
        if exchange is None or not exchange.begun:
            self.transport.write(refusal_bytes(status, code, self._terms.locale))
        self._terms.log.info("request", route="-", method="-", status=status, code=code.value, note=note)
        self.transport.part()


def peer_uid(transport: asyncio.BaseTransport) -> int | None:
    """The user at the other end of a Unix socket, as the kernel saw it when they connected; None elsewhere."""
    line = transport.get_extra_info("socket")
    if line is None or line.family != socket.AF_UNIX:
        return None
    _, uid, _ = _UCRED.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)


async def _serve_probes(app: ASGIApp, locale: Locale, scope: Scope, receive: Receive, send: Send) -> None:
    """There is room for nobody else: a full broker is not a dead one."""
    if scope["path"] in PROBES:
        await app(scope, receive, send)
        return
    head, _, body = refusal_bytes(503, Code.SERVER_BUSY, locale).partition(b"\r\n\r\n")
    lines = [line.partition(b": ") for line in head.split(b"\r\n")[1:]]
    headers = [(name, value) for name, _, value in lines]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
