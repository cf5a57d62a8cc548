"""Where a provider may be (case 80): the public internet and what the operator lists, checked again at every connection."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.config import ConfigInvalidError, load
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.protocol.messages import ProviderRequest
from oauthbroker.protocol.network.transport import Transport, TransportFailed
from oauthbroker.testing.authority import Authority
from tests.unit.config.bundles import APP, write
from tests.unit.protocol.kit import RawServer, assert_clean, says

pytestmark = pytest.mark.case("80")

INSIDE = [
    "127.0.0.1", "127.255.255.254", "::1", "0.0.0.0", "::", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "169.254.169.254", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fc00::1", "100.64.0.1", "224.0.0.1", "ff02::1",
    "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "2001:db8::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1",
    "::ffff:169.254.169.254", "::127.0.0.1", "::10.0.0.1", "2002:7f00:1::", "2002:a00:1::1", "64:ff9b::a9fe:a9fe",
    "64:ff9b::7f00:1", "2001::1", "", "localhost", "10.0.0", "0x7f.1", "2130706433", "017700000001", "1.1.1.1.evil",
    "fec0::1", "feff::1", "64:ff9b:1::808:808", "64:ff9b:1:808:8:800::", "64:ff9b:1:fffe::a00:5", "::ffff:0:8.8.8.8",
    "::ffff:0:10.0.0.1", "::8.8.8.8", "2600::5efe:a00:1", "2600::200:5efe:a00:1", "2600::5efe:808:808", "fe80::5efe:808:808",
    "2002:808:808::5efe:a00:1", "2001:0:808:808:0:0:f7f7:f7f7", "2001:0:a00:1:0:0:f5ff:fffe", "100::1", "5f00::1",
    "3fff::1", "2001:2::1", "2001:10::1", "2001:20::1", "4000::1", "192.88.99.1", "192.0.0.9", "64:ff9b::c058:6301",
]  # fmt: skip
OUTSIDE = [
    "8.8.8.8",
    "1.1.1.1",
    "2606:4700:4700::1111",
    "[2606:4700::1]",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::1",
]


@pytest.mark.parametrize("address", INSIDE)
def test_an_inner_address_is_not_admitted(address: str) -> None:
    assert not ProviderNetworks().admits(address)


@pytest.mark.parametrize("address", OUTSIDE)
def test_a_public_address_is_admitted(address: str) -> None:
    assert ProviderNetworks().admits(address)


def test_a_listed_network_is_admitted_and_its_neighbour_is_not() -> None:
    reach = ProviderNetworks(("10.1.0.0/16", "fd12::/32", "192.168.7.7"))
    assert all(map(reach.admits, ("10.1.2.3", "::ffff:10.1.2.3", "fd12::1", "192.168.7.7")))
    assert not any(map(reach.admits, ("10.2.0.1", "fd13::1", "192.168.7.8", "127.0.0.1")))
    assert ProviderNetworks(loopback=True).admits("127.0.0.1")
    assert ProviderNetworks(loopback=True).admits("::1")
    assert not ProviderNetworks(loopback=True).admits("10.0.0.1")


@given(st.ip_addresses(v=4))
def test_a_wrapped_address_is_checked_by_the_address_inside(address: ipaddress.IPv4Address) -> None:
    """No IPv6 spelling of an IPv4 address opens a listener that the address itself does not."""
    plain = ProviderNetworks().admits(str(address))
    assert plain or not any(ProviderNetworks().admits(each) for each in wrapped(address).values())


def wrapped(address: ipaddress.IPv4Address) -> dict[str, str]:
    """Every IPv6 address that leads to an IPv4 one, by how."""
    number, six = int(address), ipaddress.IPv6Address
    high, low = number >> 16, number & 0xFFFF
    spelt = {
        "mapped": six((0xFFFF << 32) | number),
        "NAT64": six((0x0064FF9B << 96) | number),
        "6to4": six((0x2002 << 112) | (number << 80) | 1),
        "compatible": six(number),
        "translated": six((0xFFFF << 48) | number),
        "Teredo client": six((0x20010000 << 96) | (0x08080808 << 64) | (number ^ 0xFFFFFFFF)),
        "Teredo server": six((0x20010000 << 96) | (number << 64) | (0x08080808 ^ 0xFFFFFFFF)),
        "ISATAP": six((0x2606 << 112) | (0x5EFE << 32) | number),
        "local NAT64, 96 bits": six((0x0064FF9B0001FFFE << 64) | number),
        "local NAT64, 64 bits": six((0x0064FF9B00010001 << 64) | (number << 24)),
        "local NAT64, 48 bits": six((0x0064FF9B0001 << 80) | (high << 64) | (low << 40)),
    }
    return {how: str(each) for how, each in spelt.items()}


LISTED = {
    "64:ff9b:1:fffe::/96": "local NAT64, 96 bits",
    "64:ff9b:1:1::/64": "local NAT64, 64 bits",
    "64:ff9b:1::/48": "local NAT64, 48 bits",
    "::ffff:0:0:0/96": "translated",
    "2606::/16": "ISATAP",
    "2001::/32": "Teredo client",
    "::/96": "compatible",
}


@pytest.mark.parametrize(("network", "how"), LISTED.items(), ids=LISTED)
def test_a_listed_way_of_translating_leads_to_no_inner_address_that_is_not_listed_too(network: str, how: str) -> None:
    """An operator behind a translator lists its prefix to reach public providers, and not the neighbours."""
    public, inner = (wrapped(ipaddress.IPv4Address(each))[how] for each in ("8.8.4.4", "10.1.2.3"))
    reach = ProviderNetworks((network,))
    assert (True, False) == (reach.admits(public), reach.admits(inner))
    assert ProviderNetworks((network, "10.1.2.3")).admits(inner)
    assert not ProviderNetworks(("10.1.2.3",)).admits(inner)


# at load


@pytest.mark.parametrize(
    "host", ["10.0.0.5", "169.254.169.254", "[fd00::1]", "[::ffff:10.0.0.5]", "127.0.0.1", "192.168.0.1:8443"]
)
def test_an_endpoint_at_an_inner_address_is_refused_when_it_is_loaded(tmp_path: Path, host: str) -> None:
    text = APP.replace("https://acme.example/token", f"https://{host}/token")
    with pytest.raises(ConfigInvalidError) as caught:
        load(write(tmp_path / "b", app=text))
    (problem,) = caught.value.problems
    assert ("spec.endpoints.tokenUrl", "an address inside your own network") == (problem.path, problem.what)


# at every connection


class Resolver:
    """Gives what the test says, one answer after the other, the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def addresses(self, host: str, app: str = "") -> list[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@asynccontextmanager
async def sending(
    monkeypatch: pytest.MonkeyPatch, *answers: list[str], ca: str = "", **more: Any
) -> AsyncIterator[tuple[Any, Resolver]]:
    resolver, transport = Resolver(*answers), Transport(**more)
    monkeypatch.setattr(transport, "_lookups", resolver)

    async def send(url: str) -> int:
        return (await transport.send(ProviderRequest("GET", url, ca=ca), seconds=5, max_bytes=1000)).status

    yield send, resolver
    await transport.close()


@pytest.mark.parametrize(
    "addresses", [["10.0.0.5"], ["127.0.0.1"], ["169.254.169.254", "fe80::1"], ["::ffff:127.0.0.1"]]
)
async def test_a_name_that_leads_inside_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    dialled = list[str]()

    async def connect(*args: Any, **_: Any) -> Any:
        dialled.append(str(args))
        raise AssertionError

    import httpcore2

    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", connect)
    async with sending(monkeypatch, addresses) as (send, resolver):
        with pytest.raises(BrokerError) as caught:
            await send("https://idp.example/token")
        assert Code.APP_MISCONFIGURED is caught.value.code
        assert "providerNetworks" in (caught.value.note or "")
        assert_clean(caught.value)
        assert (["idp.example"], []) == (resolver.asked, dialled)


async def test_a_name_that_changes_its_mind_leads_to_where_we_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: a name is asked once for each connection, and the checked address is dialled. The second connection
    is checked anew."""
    networks = ProviderNetworks(("127.0.0.1/32",))
    async with RawServer(says(200)) as server:
        url = f"http://127.0.0.1:{server.port}/"
        answers = ["127.0.0.1"], ["127.0.0.2"]
        async with sending(monkeypatch, *answers, plain_http_loopback=True, reach=networks) as (send, resolver):
            monkeypatch.setattr("oauthbroker.protocol.network.transport.Transport.check_url", lambda *_: None)
            assert 200 == await send(url.replace("127.0.0.1", "idp.example"))
            assert (1, 1) == (len(resolver.asked), server.connections)
            with pytest.raises(TransportFailed):
                await send(url.replace("127.0.0.1", "idp.example"))
            assert (2, 1) == (len(resolver.asked), server.connections)


async def test_of_several_addresses_only_those_that_are_admitted_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, and the next one when one does not answer."""
    tried = list[str]()
    import httpcore2

    real = httpcore2.AnyIOBackend.connect_tcp

    async def connect(self: Any, host: str, *args: Any, **more: Any) -> Any:
        tried.append(host)
        return await real(self, host, *args, **more)

    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", connect)
    async with RawServer(says(200)) as server:
        everything = ["10.0.0.5", "127.0.0.9", "127.0.0.1", "192.168.0.1"]
        async with sending(monkeypatch, everything, plain_http_loopback=True) as (send, _):
            assert 200 == await send(server.url)
    assert ["127.0.0.9", "127.0.0.1"] == tried


async def test_tls_goes_by_the_name_and_not_by_the_address_that_was_dialled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The certificate is for 127.0.0.1; at the same address under another name it is a foreign one."""
    authority = Authority(tmp_path)
    async with RawServer(says(200), tls=authority.issue().context) as server:
        ca, reach = authority.file.read_text(), ProviderNetworks(("127.0.0.1",))
        async with sending(monkeypatch, ["127.0.0.1"], ca=ca, reach=reach) as (send, _):
            assert 200 == await send(server.url)
            with pytest.raises(TransportFailed, match="another host"):
                await send(server.url.replace("127.0.0.1", "idp.example"))
        assert 1 == len(server.requests)


@pytest.mark.parametrize("trouble", [None, OSError(-2, "canary"), UnicodeError("canary")], ids=repr)
async def test_a_name_without_an_address_is_a_provider_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception | None
) -> None:
    def resolve(*_: Any, **__: Any) -> list[Any]:
        if trouble is not None:
            raise trouble
        return []

    transport = Transport()
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(TransportFailed, match="no address") as caught:
        await transport.send(ProviderRequest("GET", "https://idp.example/"), seconds=5, max_bytes=1000)
    assert not caught.value.sent
    assert "canary" not in repr(caught.value)
    await transport.close()


@pytest.mark.parametrize(
    "url",
    [
        "https://user@idp.example/",
        "https://u:p@idp.example/",
        "https://idp.example:0/",
        "http://idp.example/",
        "https://[::1",
        "ftp://idp.example/",
    ],
)
async def test_user_info_odd_ports_and_schemes_are_refused_before_anything_is_resolved(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    async with sending(monkeypatch, ["8.8.8.8"]) as (send, resolver):
        with pytest.raises(BrokerError) as caught:
            await send(url)
        assert (Code.APP_MISCONFIGURED, []) == (caught.value.code, resolver.asked)
