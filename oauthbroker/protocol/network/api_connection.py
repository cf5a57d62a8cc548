"""One HTTP/1.1 connection to a provider's API, on h11."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator

import h11
import httpcore2

from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.protocol.network.transport import TransportFailed

HEAD_LIMIT = 64 * 1024
MOST_INTERIM = 16  # answers of class 1xx before the answer
_READ = 64 * 1024


class ApiConnection:
    """Sends one request after the other. `sent`: a byte of the last one may have left."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
        self.sent = False

    async def exchange(self, request: ApiRequest, stall_seconds: float) -> h11.Response:
        """Send a request and return the head of its answer. A provider that stops reading may have answered early."""
        self.sent = False
        head = self._http.send(h11.Request(method=request.method, target=request.path, headers=request.head))
        try:
            if isinstance(request.body, bytes):
                await self._write(_all(head, self._http.send(h11.Data(data=request.body))), stall_seconds)
            else:
                await self._write(head, stall_seconds)
                async for piece in request.body:
                    await self._write(self._http.send(h11.Data(data=piece)), stall_seconds)
            await self._write(self._http.send(h11.EndOfMessage()), stall_seconds)
        except httpcore2.WriteError:
            pass
        return await self._head(stall_seconds)

    async def pieces(self, stall_seconds: float) -> AsyncIterator[bytes]:
        """Yield the pieces of the answer's body."""
        while isinstance(event := await self._event(stall_seconds), h11.Data):
            yield bytes(event.data)

    def may_go_on(self) -> bool:
        """Prepare for a further request. False if the answer has not ended, or something came behind it."""
        if (
            self._http.our_state is not h11.DONE
            or self._http.their_state is not h11.DONE
            or self._http.trailing_data[0]
        ):
            return False
        self._http.start_next_cycle()
        return True

    def is_open(self) -> bool:
        """Return whether the provider has neither closed the connection nor sent anything unasked."""
        if self._stream.get_extra_info("is_readable"):
            return False
        tls = self._stream.get_extra_info("ssl_object")
        return tls is None or _is_silent(tls)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def _head(self, stall_seconds: float) -> h11.Response:
        for _ in range(MOST_INTERIM):
            event = await self._event(stall_seconds)
            if isinstance(event, h11.Response) and event.status_code <= 599:
                return event
            if not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                break
        raise TransportFailed("the answer is none that HTTP has for this request", sent=True)

    async def _event(self, stall_seconds: float) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._stream.read(_READ, stall_seconds))
        return event

    async def _write(self, data: bytes | None, stall_seconds: float) -> None:
        if data:
            self.sent = True
            await self._stream.write(data, stall_seconds)


def _is_silent(tls: ssl.SSLObject) -> bool:
    """Return whether nothing waits in TLS records that were read from the socket with the answer: its end, or data."""
    try:
        tls.read(1)
    except ssl.SSLWantReadError:
        return True
    except ssl.SSLError:
        return False
    return False


def _all(*parts: bytes | None) -> bytes:
    return b"".join(part for part in parts if part)
