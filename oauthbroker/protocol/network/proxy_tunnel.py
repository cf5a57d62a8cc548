"""Open a tunnel through an HTTP proxy by CONNECT (RFC 9110 section 9.3.6). TLS to the provider runs inside it, and
verifies the provider's name as without a proxy."""

from __future__ import annotations

import asyncio
import base64
from contextlib import AsyncExitStack
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.protocol.network.name_lookups import Lookups, NoAddress
from oauthbroker.protocol.network.tls_contexts import tls_context

if TYPE_CHECKING:
    import ssl

    import httpcore2

SECONDS: Final = 8.0  # up to the proxy's answer: less than a provider has, so that the proxy is named
_MOST_HEAD: Final = 16 * 1024
_READ: Final = 4 * 1024
_REFUSED: Final = {
    401: "it refuses the credentials",
    403: "it forbids this address",
    407: "it asks for other credentials, or for credentials at all",
}


class ProxyFailed(Exception):
    """The proxy gave no tunnel. `why` is ours to show; `refused` tells that the proxy decided so, and not a network."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.refused = refused


class ProxyTunnels:
    """Tunnels through one proxy. Its own address is the operator's choice: it may lie in any network."""

    def __init__(self, proxy: OutgoingProxy, inner: httpcore2.AsyncNetworkBackend, lookups: Lookups) -> None:
        self._proxy, self._inner, self._lookups = proxy, inner, lookups

    async def open(self, target: str, port: int) -> httpcore2.AsyncNetworkStream:
        """Return a stream to a host or address behind the proxy. Raises `ProxyFailed`."""
        import h11
        import httpcore2

        async with AsyncExitStack() as unless_open:
            try:
                async with asyncio.timeout(SECONDS):
                    stream = await self._connected()
                    unless_open.push_async_callback(stream.aclose)
                    await self._ask(stream, f"[{target}]:{port}" if ":" in target else f"{target}:{port}")
            except (
                httpcore2.NetworkError,
                httpcore2.TimeoutException,
                NoAddress,
                h11.RemoteProtocolError,
                TimeoutError,
            ) as error:
                failed = ProxyFailed(_why(error))
            except ProxyFailed as error:
                failed = error
            else:
                unless_open.pop_all()
                return stream
        raise failed

    async def _connected(self) -> httpcore2.AsyncNetworkStream:
        import httpcore2

        *others, last = await self._lookups.addresses(self._proxy.host)
        for address in others:
            try:
                return await self._speaking(address)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._speaking(last)

    async def _speaking(self, address: str) -> httpcore2.AsyncNetworkStream:
        stream = await self._inner.connect_tcp(address, self._proxy.port, SECONDS)
        if self._proxy.tls:
            stream = await stream.start_tls(_context(self._proxy.ca), self._proxy.host, SECONDS)
        return stream

    async def _ask(self, stream: httpcore2.AsyncNetworkStream, authority: str) -> None:
        import h11

        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)
        headers = [("Host", authority)]
        if self._proxy.credentials is not None:
            basic = base64.b64encode(self._proxy.credentials.reveal().encode()).decode()
            headers.append(("Proxy-Authorization", f"Basic {basic}"))
        await stream.write(http.send(h11.Request(method="CONNECT", target=authority, headers=headers)) or b"", SECONDS)
        read = 0
        while not isinstance(event := http.next_event(), h11.Response):
            if read > _MOST_HEAD:  # one head, or one after the other
                raise ProxyFailed("it does not answer, and does not stop to send")
            if event is h11.NEED_DATA:
                data = await stream.read(_READ, SECONDS)
                read += len(data)
                http.receive_data(data)
            elif not isinstance(event, h11.InformationalResponse):
                raise ProxyFailed("it closed the connection without an answer")
        if not 200 <= event.status_code < 300:
            why = _REFUSED.get(event.status_code, f"it answers with status {event.status_code}")
            raise ProxyFailed(why, refused=event.status_code in _REFUSED)
        if http.trailing_data[0]:  # it would be taken for the provider's
            raise ProxyFailed("it sends data of its own into the tunnel")


@lru_cache(4)
def _context(ca: str) -> ssl.SSLContext:
    return tls_context(ca)


def _why(error: BaseException) -> str:
    if isinstance(error, NoAddress):
        return "its name has no address"
    if isinstance(error, TimeoutError) or type(error).__name__.endswith("Timeout"):  # httpcore2 has its own
        return "it does not answer in time"
    return f"it does not answer ({type(error).__name__})"
