"""One HTTP/1.1 connection: its deadlines, the limit on connections, and the peer's user on this machine."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import httptools
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from oauthbroker.core.errors import Code
from oauthbroker.serving.connection_slots import ConnectionSlot, Terms
from oauthbroker.serving.http1.flow_control import UNTIL_THE_END, HeldFlow
from oauthbroker.serving.http1.head_parser import CHUNKS, HEAD_LIMIT, Malformed, refusal_bytes, validate
from oauthbroker.serving.http1.known_heads import KnownHeads
from oauthbroker.serving.http1.lingering import PartingTransport
from oauthbroker.serving.listeners import peer_uid
from oauthbroker.web.app import warm_tokens_of
from oauthbroker.web.gate.request_limits import PEER, PROBES
from oauthbroker.web.middleware.access_log import uvicorn_options

IDLE_SECONDS = 5  # between two requests of one connection
LAST_SECONDS = 0.5  # for a request that is on its way when the server stops: its connection would be reset
LINGERING = 64  # refused connections that still get an answer; further ones are closed at once
_QUIET = logging.getLogger("uvicorn.error.wire")
_QUIET.setLevel(logging.ERROR)  # uvicorn warns of refused requests, which we log ourselves


class ListenerConfig(uvicorn.Config):
    """uvicorn's configuration, with our protocol and connection terms."""

    def __init__(
        self, *, web: ASGIApp, terms: Terms, grace_seconds: float, protocol: type[HttpConnection] | None = None
    ) -> None:
        self.terms, self.heads = terms, KnownHeads(warm_tokens_of(web))
        options: dict[str, Any] = {
            **uvicorn_options(),
            "http": protocol or HttpConnection,
            "lifespan": "off",
            "log_level": "warning",  # the log is that of the host program, if the broker is embedded
        }
        super().__init__(
            web, **options, timeout_keep_alive=IDLE_SECONDS, timeout_graceful_shutdown=max(1, round(grace_seconds))
        )


class HttpConnection(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 on llhttp, with deadlines, a limit, and a check before the parser (cases 82 to 84).

    Requests are handled one at a time: the parser gets a checked head, its body, and nothing beyond. Bytes behind a
    request wait, unread, until it is answered. Bytes behind chunks are never read, because parsers disagree on where
    chunks end; nor are bytes behind a body that the application did not read.
    """

    def __init__(
        self,
        *,
        config: ListenerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger, self.access_log = _QUIET, False
        self.transport: PartingTransport
        self._terms, self._heads = config.terms, config.heads
        self._head_timer: asyncio.TimerHandle | None = None
        self._received, self._seen = b"", 0
        self._body_left = 0  # bytes, or CHUNKS
        self._framing = 0  # bytes of the chunked body that are not content: sizes, extensions, a trailer
        self._over = True  # the last request was read completely
        self._lingers = False
        self._slot: ConnectionSlot = "none"
        self._uid: int | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        terms = self._terms
        super().connection_made(
            PartingTransport(
                inner=transport, loop=self.loop, write_seconds=terms.write_seconds, still_sends=lambda: not self._over
            )
        )
        self.flow: HeldFlow = HeldFlow(self.transport)
        if terms.over:
            self.transport.abort()
            return
        self._uid = peer_uid(transport)
        self.app = partial(_serve_named, self.app, self._uid)
        self._await_head()
        self._sit_down()
        if terms.draining:  # accepted before that began, and created only now
            self.shutdown()

    def shutdown(self) -> None:
        """Answer the request under way, or one that comes within a moment, as the last one. Then close."""
        if self._answering:
            self.cycle.keep_alive = False
        else:
            self.loop.call_later(LAST_SECONDS, self._close_unused)

    def _close_unused(self) -> None:
        if not self._answering and self._over and not self._received:
            self.transport.close()

    def _sit_down(self) -> None:
        terms = self._terms
        self._slot, loser = terms.slots.take_slot(self, self.client[0] if self.client else None, gives_way=_is_idle)
        if loser is not None:
            loser.transport.abort()
        if self._slot == "probe":
            self.app = partial(_serve_probes, self.app, terms)
        if self._slot != "none":
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
        """Close our side. The loop would wait forever for a client that leaves our answer unread."""
        if self.transport.get_write_buffer_size():
            self.transport.hold_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_has_come()
        self.transport.lost()
        self._terms.slots.free_slot(self)
        self._terms.lingering -= self._lingers
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            self.transport.forget(data)
            return
        self._received = self._received + data if self._received else data
        self._read()

    def _read(self) -> None:
        """Go on with the received bytes, as far as they may be read now."""
        self._unset_keepalive_if_required()
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
        except Malformed as result:
            refused = result
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            refused = Malformed(400, "malformed")
        if refused is not None:
            self._refuse(refused.status, refused.code, refused.note)
        elif held and not self.transport.is_closing():
            self.flow.resume_reading()

    def _read_head(self) -> bool:
        """Read a request head; False while it is incomplete. Raises Malformed."""
        head = validate(self._received, self._seen)
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
        except httptools.HttpParserUpgrade:  # to an unknown protocol: handle it as a normal request
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
        if self._over:  # a further request in one piece with the chunks is unchecked, and is dropped
            raise Malformed(400, "more than a request")
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.expect_100_continue or self._body_left == CHUNKS or self._terms.draining:
            self.cycle.keep_alive = False
        if self.scope["http_version"] == "1.0":  # HTTP/1.0 has no chunks and no 100-continue
            self.cycle.chunked_encoding, self.cycle.expected_content_length = False, UNTIL_THE_END
            self.cycle.waiting_for_100_continue = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Ignore trailers behind the chunks, and strip space behind a value."""
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
            self._await_head()  # also of the rest of the body
        elif self._received:
            self.loop.call_soon(self._read)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self._terms.header_seconds, self._head_is_late)

    def _head_has_come(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        """Close the connection. A client that has sent nothing gets no answer."""
        self._head_timer = None
        if self._received or not self._over:
            self._refuse(408, Code.REQUEST_TIMEOUT, "headers too slow")
        else:
            self.transport.close()

    def _refuse(self, status: int, code: Code, note: str) -> None:
        """Send a refusal and close; a request under way is cancelled."""
        self._head_has_come()
        if self._answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(refusal_bytes(status, code, self._terms.locale))
        self._terms.refused(self.loop.time(), status=status, code=code, note=note)
        self.transport.part()

    def _unsupported_upgrade_warning(self) -> None:
        """Suppress uvicorn's warning."""

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.hold_up()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.transport.go_on()


def _is_idle(connection: HttpConnection) -> bool:
    return not connection._answering  # noqa: SLF001 - one of its own kind


async def _serve_named(app: ASGIApp, uid: int | None, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve with the peer's user in an extension of the scope, which only this server sets."""
    scope["extensions"] = {} if uid is None else {PEER: {"uid": uid}}
    await app(scope, receive, send)


async def _serve_probes(app: ASGIApp, terms: Terms, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve health probes only: a full broker is still alive."""
    if scope["path"].removeprefix(terms.base) in PROBES:
        await app(scope, receive, send)
        return
    head, _, body = refusal_bytes(503, Code.SERVER_BUSY, terms.locale).partition(b"\r\n\r\n")
    lines = [line.partition(b": ") for line in head.split(b"\r\n")[1:]]
    headers = [(name, value) for name, _, value in lines]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
