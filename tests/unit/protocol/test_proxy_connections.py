"""Connections through the company's proxy: kept ones, ones that wait when their request ends, and a silent proxy."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.model.settings import Limits
from oauthbroker.protocol.messages import ProviderRequest
from oauthbroker.protocol.network import proxy_tunnel
from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.protocol.network.api_transport import ApiLimits, ApiTransport
from oauthbroker.protocol.network.transport import Transport, TransportFailed
from oauthbroker.testing import Authority
from tests.kit.connect_proxy import ConnectProxy
from tests.kit.waiting import until
from tests.unit.protocol.kit import RawServer

OUTSIDE = "93.184.216.34"
HERE = ProviderNetworks(("127.0.0.0/8",))

Sends = Callable[[Transport, str, int, float], Coroutine[Any, Any, None]]


class Silent:
    """Accepts connections on 127.0.0.1, reads, and says nothing. `open` counts those that the other side keeps."""

    def __init__(self, says: bytes = b"") -> None:
        self._says, self.open, self.heard, self.port = says, 0, b"", 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        writer.write(self._says)
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                self.heard += data
        self.open -= 1
        writer.close()


@contextlib.asynccontextmanager
async def silent(says: bytes = b"") -> AsyncIterator[Silent]:
    it = Silent(says)
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.port = server.sockets[0].getsockname()[1]
    try:
        yield it
    finally:
        server.close()
    await until(lambda: it.open == 0)  # every test: no connection is left


async def by_transport(transport: Transport, host: str, port: int, seconds: float) -> None:
    await transport.send(ProviderRequest("GET", f"https://{host}:{port}/"), seconds=seconds, max_bytes=1000)


async def by_api(transport: Transport, host: str, port: int, seconds: float) -> None:
    request = ApiRequest(method="GET", scheme="https", host=host, port=port, path="/", headers=())
    await ApiTransport(transport).send(request, ApiLimits(seconds=seconds))


both = pytest.mark.parametrize("sends", [by_transport, by_api])
WAITS: dict[str, tuple[Sends, bytes | None]] = {
    "a provider's TLS": (by_api, None),
    "a provider's TLS in a tunnel": (by_api, b"HTTP/1.1 200 OK\r\n\r\n"),
    "the proxy's answer": (by_api, b""),
    "the proxy's answer to an exchange": (by_transport, b""),
}


@pytest.mark.parametrize(("sends", "says"), WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("ends", ["late", "cancelled"])
async def test_a_connection_that_waits_is_closed_with_its_request(sends: Sends, says: bytes | None, ends: str) -> None:
    async with silent(says or b"") as server:
        proxy = None if says is None else OutgoingProxy(host="127.0.0.1", port=server.port)
        transport = Transport(reach=HERE, proxy=proxy)
        host, port = ("127.0.0.1", server.port) if proxy is None else (OUTSIDE, 443)
        asking = asyncio.create_task(sends(transport, host, port, 0.3 if ends == "late" else 60))
        await until(lambda: server.heard)
        if ends == "cancelled":
            asking.cancel()
        await asyncio.wait([asking], timeout=10)
        assert asking.done()
        await transport.close()


@both
async def test_a_silent_proxy_is_named_as_the_cause(sends: Sends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_tunnel, "SECONDS", 0.2)
    async with silent() as server:
        transport = Transport(proxy=OutgoingProxy(host="127.0.0.1", port=server.port))
        with pytest.raises(TransportFailed) as failed:
            await sends(transport, OUTSIDE, 443, 10)
        await transport.close()
    assert (Code.PROVIDER_UNREACHABLE, False) == (failed.value.code, failed.value.sent)
    assert "the outgoing proxy: it does not answer in time" == failed.value.note


async def test_a_kept_tunnel_is_used_again_and_only_for_requests_that_go_through_the_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    authority, leads = Authority(tmp_path, "company"), dict[str, int]()

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")

    tls = authority.issue(host_name="api.acme.example").context
    async with RawServer(answers, tls=tls) as api, ConnectProxy(leads) as proxy:
        leads[f"127.0.0.1:{api.port}"] = api.port
        transport = Transport(reach=HERE, proxy=OutgoingProxy(host="127.0.0.1", port=proxy.port))
        requests = ApiTransport(transport)
        ask = ApiRequest(
            method="GET", scheme="https", host="api.acme.example", port=api.port, path="/", headers=(),
            account="one", ca=authority.file.read_text(),
        )  # fmt: skip
        for request in (ask, ask, replace(ask, direct=True), replace(ask, direct=True)):
            answer = await requests.send(request, ApiLimits())
            assert [] == [piece async for piece in answer.chunks()]
            await answer.aclose()
        assert (1, 2) == (len(proxy.asked), api.connections)
        await requests.close()
        await transport.close()


def test_a_silent_proxy_is_noticed_before_the_providers_time_is_over() -> None:
    assert proxy_tunnel.SECONDS < Limits().provider_seconds
