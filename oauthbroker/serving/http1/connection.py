"""One connection: how long it may take, how many there may be, who is at its other end on this machine."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from functools import partial
from typing import Any

import httptools
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from oauthbroker.errors import Code, Locale
from oauthbroker.serving.parting import PartingTransport
from oauthbroker.serving.terms import Terms
from oauthbroker.serving.wire import CHUNKS, HEAD_LIMIT, Malformed, judge, refusal_bytes
from oauthbroker.web.access_log import uvicorn_options
from oauthbroker.web.headers import PEER, PROBES

IDLE_SECONDS = 5  # between two requests of one connection
LINGERING = 64  # refused connections that are still told so; more of them are cut off
_UCRED = struct.Struct("iII")  # pid, uid, gid: unix(7), SO_PEERCRED
_QUIET = logging.getLogger("uvicorn.error.wire")
_QUIET.setLevel(logging.ERROR)  # what uvicorn warns of is a refused request, which has a line of ours


class DoorConfig(uvicorn.Config):
    """uvicorn's, with our protocol and the terms that it holds connections to."""

    def __init__(self, web: ASGIApp, terms: Terms, grace_seconds: float) -> None:
        self.terms = terms
        options: dict[str, Any] = {**uvicorn_options(), "http": Connection, "lifespan": "off"}
        super().__init__(
            web, **options, timeout_keep_alive=IDLE_SECONDS, timeout_graceful_shutdown=max(1, round(grace_seconds))
        )


class _UntilTheEnd(int):
    """How much an answer without a length still lacks: whatever comes, and in the end nothing."""

    def __lt__(self, other: int) -> bool:
        return False

    def __sub__(self, other: int) -> _UntilTheEnd:
        return self


_UNTIL_THE_END = _UntilTheEnd()


class _Flow(FlowControl):
    """Whoever waits for a body or for the end reads on; not while a further request is already here (`held`)."""

    held = False

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 on llhttp, with deadlines, a limit, and a judge in front of the reader (cases 82 to 84).

    One request after the other: the reader gets a head when it was judged, its body, and nothing beyond. What comes
    behind a request that is being answered waits, and is not looked at. What comes behind chunks never is, for readers
    differ in where those end; nor what comes behind a body that nobody has asked for.
    """

    def __init__(
        self,
        config: DoorConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger, self.access_log = _QUIET, False
        self.transport: PartingTransport
        self._terms = config.terms
        self._head_timer: asyncio.TimerHandle | None = None
        self._received, self._seen = b"", 0
        self._body_left = 0  # bytes, or CHUNKS
        self._framing = 0  # bytes of the body that are none of it: sizes, extensions, a trailer
        self._over = True  # the last request was read to its end
        self._lingers = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        terms = self._terms
        super().connection_made(PartingTransport(transport, self.loop, terms.write_seconds, self._body_is_coming))
        self.flow: _Flow = _Flow(self.transport)
        if terms.over:  # accepted before the door was closed, and made only now
            self.transport.abort()
            return
        self.app = partial(_serve_named, self.app, peer_uid(transport))
        self._await_head()
        self._sit_down()

    def _sit_down(self) -> None:
        terms = self._terms
        seat, loser = terms.seats.take(self, self.client[0] if self.client else None, gives_way=_is_idle)
        if loser is not None:
            loser.transport.abort()
        if seat == "probe":
            self.app = partial(_serve_probes, self.app, terms.locale)
        if seat != "none":
            return
        terms.turn_away(self.loop.time())
        self.transport.write(refusal_bytes(503, Code.SERVER_BUSY, terms.locale))
        if terms.lingering < LINGERING:
            terms.lingering += 1
            self._lingers = True
            self.transport.part()
        else:
            self.transport.close()

    def eof_received(self) -> None:
        """The loop closes behind this, and would wait for ever for whoever leaves our answer unread."""
        if self.transport.get_write_buffer_size():
            self.transport.hold_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_has_come()
        self.transport.lost()
        self._terms.seats.leave(self)
        self._terms.lingering -= self._lingers
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            self.transport.forget(data)
            return
        self._unset_keepalive_if_required()
        self._received = self._received + data if self._received else data
        self._read()

    def _read(self) -> None:
        """Goes on with what has come, as far as it may be read now."""
        refused: Malformed | None = None
        held, self.flow.held = self.flow.held, False
        try:
            while self._received and not self.transport.is_closing():
                if not self._over:
                    self._read_body()
                elif self._answering:
                    self.flow.pause_reading()
                    self.flow.held = True
                    return
                elif not self._read_head():
                    break
        except Malformed as verdict:
            refused = verdict
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            refused = Malformed(400, "malformed")
        if refused is not None:
            self._refuse(refused.status, refused.code, refused.note)
        elif held and not self.transport.is_closing():
            self.flow.resume_reading()

    def _read_head(self) -> bool:
        """False while it is not complete. Raises Malformed."""
        head = judge(self._received, self._seen)
        if head is None:
            self._seen = len(self._received)
            if self._head_timer is None:
                self._await_head()
            return False
        data, self._received = self._received[: head.size], self._received[head.size :]
        self._unset_keepalive_if_required()
        self._seen, self._over, self._body_left, self._framing = 0, False, head.body, 0
        self._head_has_come()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # to a protocol that we do not know: it is a request like any other
            self.cycle.keep_alive = False
        return True

    def _read_body(self) -> None:
        if self._body_left == CHUNKS:
            data, self._received = self._received, b""
            self._framing += len(data)
        else:
            data, self._received = self._received[: self._body_left], self._received[self._body_left :]
            self._body_left -= len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            if not self._over:
                raise
        if self._framing > HEAD_LIMIT and not self._over:
            raise Malformed(431, "chunk framing too large")

    def on_message_begin(self) -> None:
        if self._over:  # behind chunks, in one piece with them: nobody has judged it, and nobody will
            raise Malformed(400, "more than a request")
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.expect_100_continue or self._body_left == CHUNKS:
            self.cycle.keep_alive = False
        if self.scope["http_version"] == "1.0":  # which has no chunks, and waits for nothing
            self.cycle.chunked_encoding, self.cycle.expected_content_length = False, _UNTIL_THE_END
            self.cycle.waiting_for_100_continue = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """What comes behind the chunks is no header of the request; space behind a value is none of it."""
        if self._body_left != CHUNKS or not self._framing:
            super().on_header(name, value.rstrip(b" \t"))

    def on_body(self, body: bytes) -> None:
        self._framing -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._over = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._over:
            self._await_head()  # of what is left of the body, too
        elif self._received:
            self.loop.call_soon(self._read)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _body_is_coming(self) -> bool:
        return not self._over

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self._terms.header_seconds, self._head_is_late)

    def _head_has_come(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        """Whoever has said nothing at all is told nothing."""
        self._head_timer = None
        if self._received or not self._over:
            self._refuse(408, Code.REQUEST_TIMEOUT, "headers too slow")
        else:
            self.transport.close()

    def _refuse(self, status: int, code: Code, note: str) -> None:
        """Says no and hangs up; a request that was being answered has lost its caller."""
        self._head_has_come()
        if self._answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(refusal_bytes(status, code, self._terms.locale))
        self._terms.log.info("request", route="-", method="-", status=status, code=code.value, note=note)
        self.transport.part()

    def _unsupported_upgrade_warning(self) -> None:
        """It is no news."""

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.hold_up()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.transport.go_on()


def _is_idle(connection: Connection) -> bool:
    return not connection._answering  # noqa: SLF001 - one of its own kind


def peer_uid(transport: asyncio.BaseTransport) -> int | None:
    """The user at the other end of a Unix socket, as the kernel saw it when they connected; None elsewhere."""
    line = transport.get_extra_info("socket")
    if line is None or line.family != socket.AF_UNIX:
        return None
    _, uid, _ = _UCRED.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)


async def _serve_named(app: ASGIApp, uid: int | None, scope: Scope, receive: Receive, send: Send) -> None:
    """Nobody but us says who is at the other end."""
    scope["extensions"] = {} if uid is None else {PEER: {"uid": uid}}
    await app(scope, receive, send)


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
