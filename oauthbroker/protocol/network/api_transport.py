"""Send requests to a provider's API: head and body as they come, streamed both ways.

`transport` is for the broker's own small messages. Here the request and its answer belong to a tool, and the limits are
those of a stream: each step in time, the whole in time, and a size. A connection is kept for further requests of one
account, and never serves another one: bytes behind an answer could become the answer to the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError
from oauthbroker.observability.library_log import OURS
from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.protocol.network.dialing import Asking, asking
from oauthbroker.protocol.network.tls_contexts import tls_context
from oauthbroker.protocol.network.transport import TooLarge, Transport, TransportFailed, failure_of

if TYPE_CHECKING:
    import ssl

    from oauthbroker.protocol.network.api_connection import ApiConnection

Key = tuple[str, str, int, str, str, bool]
CONNECT_SECONDS = 30.0  # at most for each step of a new connection: only an answer may be slow
KEPT_CONNECTIONS = 64
KEPT_SECONDS = 4.0  # some providers close after five
_SMALL_PIECES = 8 * 1024  # that an answer of any size may have
_SMALL = 16  # bytes that a piece has beyond them, on the average: each costs CPU time


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """`stall_seconds` bounds each read and write, `seconds` the whole; `answer_bytes` the answer's body."""

    stall_seconds: float = 30.0
    seconds: float = 600.0
    answer_bytes: int = 256 * 1024 * 1024


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class ApiResponse:
    """The head of an answer, names in lower case, and its body once. Close it."""

    status: int
    headers: list[tuple[bytes, bytes]]
    _connection: ApiConnection
    _transport: ApiTransport
    _key: Key
    _limits: ApiLimits
    _deadline: float
    _closed: bool = field(default=False, init=False)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body's pieces. Raises `TransportFailed` if it breaks off, is late or is too large."""
        failed: BrokerError | None = None
        loop, size, pieces = asyncio.get_running_loop(), 0, 0
        try:
            async for piece in self._connection.pieces(self._limits.stall_seconds):
                size, pieces = size + len(piece), pieces + 1
                self._check(size, pieces, loop.time())
                if not pieces % 64:
                    await asyncio.sleep(0)  # many pieces may have come in one read
                yield piece
        except Exception as exc:  # noqa: BLE001 - as in `Transport`
            failed = failure_of(exc, sent=True)
        if failed is not None:
            raise failed

    def _check(self, size: int, pieces: int, now: float) -> None:
        if size > self._limits.answer_bytes or pieces > _SMALL_PIECES + size // _SMALL:
            raise TooLarge
        if now > self._deadline:
            raise TimeoutError

    async def aclose(self) -> None:
        """Free the connection. It is closed, unless the body was read to its end."""
        if not self._closed:
            self._closed = True
            await self._transport.give_back(self._key, self._connection)


class ApiTransport:
    """Connections to providers' APIs. They reach what `transport` reaches, by its rules. Belongs to one event loop.
    Redirects are answers; cookies and the environment are ignored."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._contexts: dict[str, ssl.SSLContext] = {}  # by the certificates trusted beside the system's
        self._kept: dict[ApiConnection, tuple[Key, float]] = {}  # the one that was used longest ago comes first
        self._closed = False

    async def send(self, request: ApiRequest, limits: ApiLimits) -> ApiResponse:
        """Send the request once and return the answer's head. Raises `TransportFailed`, or `appMisconfigured` for a
        refused address, and what the body raises if that is a `BrokerError`."""
        self._transport.check_url(f"{request.scheme}://{request.host}:{request.port}/")
        deadline = asyncio.get_running_loop().time() + limits.seconds
        quiet, app = OURS.set(True), asking.set(Asking(request.app, request.direct))
        connection: ApiConnection | None = None
        try:
            async with asyncio.timeout(limits.seconds):
                connection = await self._connected(request, min(limits.stall_seconds, CONNECT_SECONDS))
                answer = await connection.exchange(request, limits.stall_seconds)
            key = _key(request)
            return ApiResponse(
                status=answer.status_code,
                headers=list(answer.headers),
                _connection=connection,
                _transport=self,
                _key=key,
                _limits=limits,
                _deadline=deadline,
            )
        except Exception as exc:  # noqa: BLE001 - as in `Transport`
            sent = connection is not None and connection.sent
            failed = exc if isinstance(exc, BrokerError) else failure_of(exc, sent=sent)
            await _closed(connection)
        except BaseException:
            await _closed(connection)
            raise
        finally:
            OURS.reset(quiet)
            asking.reset(app)
        raise failed

    async def give_back(self, key: Key, connection: ApiConnection) -> None:
        """Keep a connection whose answer was read to its end, for a moment. Close any other one."""
        now = asyncio.get_running_loop().time()
        if self._closed or not connection.may_go_on():
            await _closed(connection)
        else:
            self._kept[connection] = key, now + KEPT_SECONDS
        for each, (_, until) in list(self._kept.items()):
            if until > now and len(self._kept) <= KEPT_CONNECTIONS:
                break
            if self._kept.pop(each, None) is not None:  # else another request has it, while we waited
                await _closed(each)

    async def close(self) -> None:
        """Close every connection. Later requests fail."""
        self._closed = True
        kept, self._kept = self._kept, {}
        for connection in kept:
            await _closed(connection)

    async def _connected(self, request: ApiRequest, stall_seconds: float) -> ApiConnection:
        from oauthbroker.protocol.network.api_connection import (
            ApiConnection,  # with h11 and httpcore2, needed only here
        )

        if self._closed:
            raise TransportFailed("the broker is ending", sent=False)
        key, now = _key(request), asyncio.get_running_loop().time()
        for connection, (at, until) in list(self._kept.items()):
            if at == key and self._kept.pop(connection, None) is not None:  # as in `give_back`
                if until > now and connection.is_open():
                    return connection
                await _closed(connection)
        stream = await self._transport.dialer().connect_tcp(request.host, request.port, stall_seconds)
        if request.scheme == "https":
            try:
                stream = await stream.start_tls(self._context(request.ca), request.host, stall_seconds)
            except BaseException:  # also late, or cancelled: the library closes it after its own errors alone
                await stream.aclose()
                raise
        return ApiConnection(stream)

    def _context(self, ca: str) -> ssl.SSLContext:
        if ca not in self._contexts:
            self._contexts[ca] = tls_context(ca)
            self._contexts[ca].set_alpn_protocols(["http/1.1"])
        return self._contexts[ca]


def _key(request: ApiRequest) -> Key:
    return request.scheme, request.host, request.port, request.ca, request.account, request.direct


async def _closed(connection: ApiConnection | None) -> None:
    if connection is not None:
        with suppress(Exception):  # a broken connection
            await connection.aclose()
