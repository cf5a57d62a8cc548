"""The company's proxy: a tunnel for each connection, the certificate checked by name, and nothing inner reached."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.outgoing_proxy import OutgoingProxy, is_public_name
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.protocol.messages import ProviderRequest
from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.protocol.network.api_transport import ApiLimits, ApiTransport
from oauthbroker.protocol.network.transport import Transport, TransportFailed
from oauthbroker.testing import Authority
from tests.kit.connect_proxy import ConnectProxy
from tests.unit.protocol.kit import CANARY, RawServer, assert_clean, raw_answer, says

NAME, OUTSIDE, OUTSIDE6 = "id.acme.example", "93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"
PASSWORD = f"corp:{CANARY}-proxy:with a colon"


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What this machine's resolver knows. A test adds to it."""
    known = {NAME: [OUTSIDE]}

    def looked_up(host: str, *_: Any, **__: Any) -> list[Any]:
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in known[host]]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    return known


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "company")


def at(proxy: ConnectProxy, **more: Any) -> OutgoingProxy:
    return OutgoingProxy(host="127.0.0.1", port=proxy.port, **more)


async def ask(
    proxy: OutgoingProxy | None, url: str, ca: str = "", *, reach: ProviderNetworks | None = None, direct: bool = False
) -> int | BrokerError:
    """Return the answer's status, or the refusal."""
    transport = Transport(reach=reach or ProviderNetworks(), proxy=proxy)
    request = ProviderRequest("POST", url, form={"code": Secret(CANARY)}, ca=ca, direct=direct)
    try:
        return (await transport.send(request, seconds=10, max_bytes=1000)).status
    except BrokerError as error:
        return error
    finally:
        await transport.close()


async def test_here_the_proxy_gets_a_checked_address_and_the_certificate_is_checked_by_name(
    names: Mapping[str, list[str]], authority: Authority
) -> None:
    tls = authority.issue(host_name=NAME).context
    async with RawServer(says(200), tls=tls) as provider, ConnectProxy({f"{OUTSIDE}:443": provider.port}) as proxy:
        assert 200 == await ask(at(proxy), f"https://{NAME}/token", authority.file.read_text())
    assert [f"{OUTSIDE}:443"] == proxy.asked
    assert f"host: {NAME}".encode() in provider.requests[0].lower()


async def test_a_proxy_that_resolves_gets_the_name(names: dict[str, list[str]], authority: Authority) -> None:
    names.clear()
    tls = authority.issue(host_name=NAME).context
    async with RawServer(says(200), tls=tls) as provider, ConnectProxy({f"{NAME}:8443": provider.port}) as proxy:
        assert 200 == await ask(at(proxy, resolves=True), f"https://{NAME}:8443/token", authority.file.read_text())
    assert [f"{NAME}:8443"] == proxy.asked


@pytest.mark.parametrize("resolves", [False, True])
async def test_a_proxy_that_leads_elsewhere_gets_nothing(
    names: Mapping[str, list[str]], authority: Authority, resolves: bool
) -> None:
    """It sees where we go, and cannot be the provider: TLS verifies the provider's name."""
    tls = authority.issue(host_name="evil.example").context
    target = f"{NAME if resolves else OUTSIDE}:443"
    async with RawServer(says(200), tls=tls) as evil, ConnectProxy({target: evil.port}) as proxy:
        refused = await ask(at(proxy, resolves=resolves), f"https://{NAME}/token", authority.file.read_text())
    assert isinstance(refused, TransportFailed)
    assert (False, []) == (refused.sent, evil.requests)
    assert "it is for another host" in refused.note


async def test_a_company_that_opens_tls_works_with_its_authority_and_not_without(
    names: Mapping[str, list[str]], authority: Authority
) -> None:
    tls = authority.issue(host_name=NAME).context
    async with RawServer(says(200), tls=tls) as opener, ConnectProxy({f"{OUTSIDE}:443": opener.port}) as proxy:
        refused = await ask(at(proxy), f"https://{NAME}/token")
        assert isinstance(refused, TransportFailed)
        assert "its authority is not trusted here" in refused.note
        assert 200 == await ask(at(proxy), f"https://{NAME}/token", authority.file.read_text())


async def test_the_next_address_is_tried_where_the_proxy_cannot_reach_one(
    names: dict[str, list[str]], authority: Authority
) -> None:
    names[NAME] = [OUTSIDE6, OUTSIDE]
    tls = authority.issue(host_name=NAME).context
    async with RawServer(says(200), tls=tls) as provider, ConnectProxy({f"{OUTSIDE}:443": provider.port}) as proxy:
        assert 200 == await ask(at(proxy), f"https://{NAME}/token", authority.file.read_text())
    assert [f"[{OUTSIDE6}]:443", f"{OUTSIDE}:443"] == proxy.asked


async def test_credentials_go_to_the_proxy_and_not_to_the_provider(
    names: Mapping[str, list[str]], authority: Authority
) -> None:
    tls, ca = authority.issue(host_name=NAME).context, authority.file.read_text()
    leads: dict[str, int] = {}
    async with RawServer(says(200), tls=tls) as provider, ConnectProxy(leads, credentials=PASSWORD) as proxy:
        leads[f"{OUTSIDE}:443"] = provider.port
        assert 200 == await ask(at(proxy, credentials=Secret(PASSWORD)), f"https://{NAME}/token", ca)
        assert b"proxy-authorization" not in provider.requests[0].lower()
        for wrong in (None, Secret("corp:wrong")):
            refused = await ask(at(proxy, credentials=wrong), f"https://{NAME}/token", ca)
            assert isinstance(refused, TransportFailed)
            assert (Code.OUTGOING_PROXY_REFUSED, False) == (refused.code, refused.sent)
            assert "asks for other credentials" in refused.note
            assert_clean(refused)
    assert 1 == len(provider.requests)
    assert CANARY not in repr(at(proxy, credentials=Secret(PASSWORD)))


async def test_tls_to_the_proxy_verifies_the_proxy(
    names: Mapping[str, list[str]], authority: Authority, tmp_path: Path
) -> None:
    inner = Authority(tmp_path, "inner")
    tls, ca = authority.issue(host_name=NAME).context, authority.file.read_text()
    async with (
        RawServer(says(200), tls=tls) as provider,
        ConnectProxy({f"{OUTSIDE}:443": provider.port}, tls=inner.issue().context) as proxy,
    ):
        trusting = at(proxy, tls=True, ca=inner.file.read_text())
        assert 200 == await ask(trusting, f"https://{NAME}/token", ca)
        refused = await ask(at(proxy, tls=True), f"https://{NAME}/token", ca)
    assert isinstance(refused, TransportFailed)
    assert (False, True) == (refused.sent, refused.note.startswith("the outgoing proxy: "))
    assert 1 == len(proxy.asked)


ANSWERS: dict[str, tuple[bytes, str, Code]] = {
    "407": (b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n", "credentials", Code.OUTGOING_PROXY_REFUSED),
    "403": (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", "forbids", Code.OUTGOING_PROXY_REFUSED),
    "502": (b"HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n", "status 502", Code.PROVIDER_UNREACHABLE),
    "503": (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "status 503", Code.PROVIDER_UNREACHABLE),
    "a redirect": (
        b"HTTP/1.1 302 Go\r\nLocation: http://evil.example/\r\nContent-Length: 0\r\n\r\n",
        "status 302",
        Code.PROVIDER_UNREACHABLE,
    ),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n\r\n", "does not answer", Code.PROVIDER_UNREACHABLE),
    "an endless head": (
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 65536 + b"\r\n\r\n",
        "does not answer",
        Code.PROVIDER_UNREACHABLE,
    ),
    "one answer of class 1xx after the other": (
        b"HTTP/1.1 100 Continue\r\n\r\n" * 2000,
        "does not stop to send",
        Code.PROVIDER_UNREACHABLE,
    ),
    "half an answer": (b"HTTP/1.1 200 OK\r\nX: y", "does not answer", Code.PROVIDER_UNREACHABLE),
    "bytes behind it": (b"HTTP/1.1 200 OK\r\n\r\n\x16\x03\x03", "data of its own", Code.PROVIDER_UNREACHABLE),
    "an upgrade": (
        b"HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "does not answer",
        Code.PROVIDER_UNREACHABLE,
    ),
}


@pytest.mark.parametrize(("answer", "note", "code"), ANSWERS.values(), ids=ANSWERS)
async def test_any_other_answer_of_the_proxy_is_its_own_failure(
    names: Mapping[str, list[str]], answer: bytes, note: str, code: Code
) -> None:
    async with ConnectProxy({}, says=answer) as proxy:
        refused = await ask(at(proxy), f"https://{NAME}/token")
    assert isinstance(refused, TransportFailed)
    assert (code, False, True) == (refused.code, refused.sent, refused.note.startswith("the outgoing proxy: "))
    assert note in refused.note
    assert_clean(refused)


async def test_a_proxy_that_is_not_there_is_named_as_the_cause(names: Mapping[str, list[str]]) -> None:
    async with ConnectProxy({}) as proxy:
        gone = at(proxy)
    refused = await ask(gone, f"https://{NAME}/token")
    assert isinstance(refused, TransportFailed)
    assert "the outgoing proxy: it does not answer (ConnectError)" == refused.note
    refused = await ask(replace(gone, host="proxy.corp.example"), f"https://{NAME}/token")
    assert isinstance(refused, TransportFailed)
    assert "the outgoing proxy: its name has no address" == refused.note


async def test_a_name_without_an_address_here_names_the_other_mode(names: dict[str, list[str]]) -> None:
    """The usual case of a machine that resolves inner names alone. Without a proxy, and past it, nothing names it."""
    names.clear()
    async with ConnectProxy({}) as proxy:
        for way, hint in ((at(proxy), True), (None, False), (at(proxy, direct_hosts=(NAME,)), False)):
            refused = await ask(way, f"https://{NAME}/token")
            assert isinstance(refused, TransportFailed)
            assert (False, hint) == (refused.sent, "outgoingProxy.resolve: proxy" in refused.note)
            assert "no address" in refused.note
    assert [] == proxy.asked


@pytest.mark.parametrize("listed", [NAME, ".acme.example", "ID.acme.EXAMPLE".lower()])
async def test_an_exception_goes_past_the_proxy_by_the_same_rules_as_without_one(
    names: dict[str, list[str]], authority: Authority, listed: str
) -> None:
    names[NAME] = ["127.0.0.1"]
    tls, ca = authority.issue(host_name=NAME).context, authority.file.read_text()
    here = ProviderNetworks(("127.0.0.0/8",))
    async with RawServer(says(200), tls=tls) as provider, ConnectProxy({}) as proxy:
        url = f"https://{NAME}:{provider.port}/token"
        assert 200 == await ask(at(proxy, direct_hosts=(listed,)), url, ca, reach=here)
        inner = await ask(at(proxy, direct_hosts=(listed,)), url, ca)
        assert isinstance(inner, BrokerError)
        assert Code.APP_MISCONFIGURED is inner.code
        assert 200 == await ask(at(proxy), url, ca, reach=here, direct=True)
    assert [] == proxy.asked


@pytest.mark.parametrize("other", ["acme.example", "notacme.example", "id.acme.example.evil.example"])
async def test_a_suffix_names_hosts_below_it_alone(names: dict[str, list[str]], other: str) -> None:
    names[other] = [OUTSIDE]
    async with ConnectProxy({}) as proxy:
        await ask(at(proxy, direct_hosts=(".acme.example",)), f"https://{other}/token")
    assert [f"{OUTSIDE}:443"] == proxy.asked


async def test_a_request_to_an_api_takes_the_same_way(names: Mapping[str, list[str]], authority: Authority) -> None:
    tls, ca = authority.issue(host_name=NAME).context, authority.file.read_text()
    async with RawServer(says(200), tls=tls) as api, ConnectProxy({f"{OUTSIDE}:443": api.port}) as proxy:
        transport = Transport(proxy=at(proxy))
        requests = ApiTransport(transport)
        request = ApiRequest(method="GET", scheme="https", host=NAME, port=443, path="/me", headers=(), ca=ca)
        answer = await requests.send(request, ApiLimits())
        await answer.aclose()
        await requests.close()
        await transport.close()
    assert (200, [f"{OUTSIDE}:443"]) == (answer.status, proxy.asked)


# Inner networks stay out of reach, with a proxy and without

INNER_ADDRESSES = [
    "127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.7", "172.16.5.5", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "192.0.0.192", "198.18.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "fd12:3456::1",
    "::ffff:10.0.0.7", "::ffff:169.254.169.254", "64:ff9b::a00:7", "2002:a00:7::1", "ff02::1",
]  # fmt: skip
INNER_NAMES = [
    "localhost", "LOCALHOST", "localhost.", "metadata", "intranet", "db", "metadata.google.internal", "vault.svc",
    "vault.default.svc.cluster.local", "printer.local", "router.lan", "nas.home", "nas.home.arpa", "app.intranet",
    "mail.corp", "vault.default", "api.cluster", "x.test", "x.invalid",
    "x.alt", "db.private", "x.localdomain", "a.localhost", "hidden.onion",
    "2130706433", "0x7f000001", "017700000001", "127.1", "0x7f.1", "0177.0.0.1", "10.7", "1.2.3.0x4", "169.254.169.254",
    "example.0x7f", "id.acme.example.", "id..acme.example", ".acme.example", "-id.acme.example",
    "id.acme.example-", "id_.acme.exam_ple", "bücher.example", "id.acme.example%00.evil.example", "[::1]",
    "[::ffff:127.0.0.1]", "x" * 64 + ".example", ("a" * 60 + ".") * 5 + "example",
]  # fmt: skip


@pytest.mark.case("37")
@pytest.mark.parametrize("way", ["none", "here"])
@pytest.mark.parametrize("address", INNER_ADDRESSES)
async def test_a_name_that_leads_inside_is_never_dialed(names: dict[str, list[str]], address: str, way: str) -> None:
    names[NAME] = [address]
    async with RawServer(says(200)) as inner, ConnectProxy({}) as proxy:
        refused = await ask(at(proxy) if way == "here" else None, f"https://{NAME}:{inner.port}/token")
    assert isinstance(refused, BrokerError)
    assert (Code.APP_MISCONFIGURED, [], 0) == (refused.code, proxy.asked, inner.connections)


@pytest.mark.case("37")
@pytest.mark.parametrize("way", ["none", "here", "proxy"])
@pytest.mark.parametrize("host", INNER_NAMES)
async def test_no_inner_name_is_sent_to_a_proxy(names: dict[str, list[str]], host: str, way: str) -> None:
    """This machine's resolver would lead it inside, and the proxy's too."""
    names |= {each: ["10.0.0.7"] for each in (host, host.lower(), host.rstrip("."))}
    proxies = {"none": False, "here": False, "proxy": True}
    async with RawServer(says(200)) as inner, ConnectProxy({f"{host}:{inner.port}": inner.port}) as proxy:
        through = None if way == "none" else at(proxy, resolves=proxies[way])
        refused = await ask(through, f"https://{host}:{inner.port}/token")
    assert isinstance(refused, BrokerError)
    assert ([], 0) == (proxy.asked, inner.connections)


@pytest.mark.parametrize(
    "name",
    ["id.acme.example", "a.b", "xn--bcher-kva.example", "ID.Acme.Example", "x_y.example", "1.example", "a-b.c-d"],
)
def test_a_name_of_two_labels_or_more_is_public(name: str) -> None:
    assert is_public_name(name)


@pytest.mark.parametrize("name", INNER_NAMES)
def test_another_name_is_not(name: str) -> None:
    assert not is_public_name(name)


async def test_a_resolving_proxy_answers_with_the_providers_page_only_inside_the_tunnel(
    names: Mapping[str, list[str]],
) -> None:
    """What a proxy says in place of a tunnel is no answer of the provider, tokens or not."""
    page = raw_answer(200, b'{"access_token": "planted", "token_type": "bearer"}')
    async with ConnectProxy({}, says=page) as proxy:
        refused = await ask(at(proxy, resolves=True), f"https://{NAME}/token")
    assert isinstance(refused, TransportFailed)
    assert not refused.sent
