"""Certificates of a certification authority made here: which are refused, and that nothing can switch the check off."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from oauthbroker.core.secret import Secret
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.model.settings import Settings
from oauthbroker.protocol.messages import ProviderRequest
from oauthbroker.protocol.network.tls_contexts import tls_context
from oauthbroker.protocol.network.transport import Transport, TransportFailed
from oauthbroker.testing import Authority
from oauthbroker.testing.authority import Fault
from tests.unit.protocol.kit import CANARY, RawServer, assert_clean, says

HERE = ProviderNetworks(("127.0.0.0/8",))


@pytest.fixture
def trusted(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "trusted")


async def ask(context: ssl.SSLContext, ca: str) -> tuple[int | TransportFailed, RawServer]:
    """The status, or the refusal; and the server, with its requests."""
    transport = Transport(reach=HERE)
    answer: int | TransportFailed
    async with RawServer(says(200), tls=context) as server:
        request = ProviderRequest("POST", f"{server.url}/token", form={"code": Secret(CANARY)}, ca=ca)
        try:
            answer = (await transport.send(request, seconds=5, max_bytes=1000)).status
        except TransportFailed as error:
            answer = error
        await transport.close()
    return answer, server


@pytest.mark.case("35")
async def test_a_good_certificate_of_a_trusted_authority_is_accepted(trusted):
    answer, server = await ask(trusted.issue().context, trusted.file.read_text())
    assert (200, 1) == (answer, len(server.requests))


def _unknown_authority(ours: Authority, strangers: Authority) -> ssl.SSLContext:
    return strangers.issue().context


def _old_protocol(ours: Authority, strangers: Authority) -> ssl.SSLContext:
    context = ours.issue().context
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    return context


def _with_fault(fault: Fault) -> Callable[[Authority, Authority], ssl.SSLContext]:
    return lambda ours, strangers: ours.issue(fault).context


FAULTS = {fault: _with_fault(fault) for fault in get_args(Fault) if fault}
BAD = {**FAULTS, "unknownAuthority": _unknown_authority, "oldProtocol": _old_protocol}


@pytest.mark.case("35")
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_any_other_certificate_is_refused_before_a_byte_is_sent(bad, trusted, tmp_path):
    answer, server = await ask(bad(trusted, Authority(tmp_path, "strangers")), trusted.file.read_text())
    assert isinstance(answer, TransportFailed)
    assert_clean(answer)
    assert (False, []) == (answer.sent, server.requests)
    assert (answer.note or "").startswith("TLS: "), answer.note


WORDS = {
    "expired": "it has expired",
    "notYetValid": "it is not valid yet",
    "wrongHost": "it is for another host",
    "otherAddress": "it is for another host",
    "selfSigned": "it is signed by itself",
    "unknownAuthority": "its authority is not trusted here",
    "oldProtocol": "no safe connection",
}


@pytest.mark.case("35")
@pytest.mark.parametrize("bad, words", [(BAD[name], words) for name, words in WORDS.items()], ids=WORDS)
async def test_the_operator_is_told_the_fault_of_the_certificate(bad, words, trusted, tmp_path):
    answer, _ = await ask(bad(trusted, Authority(tmp_path, "strangers")), trusted.file.read_text())
    assert isinstance(answer, TransportFailed)
    assert words in (answer.note or "")


async def test_a_server_that_speaks_no_tls_and_one_that_is_not_there_are_told_apart():
    transport = Transport(reach=HERE)

    async def plain(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TransportFailed, match="TLS: no safe connection"):
            await transport.send(ProviderRequest("GET", f"https://127.0.0.1:{port}/"), seconds=5, max_bytes=1000)
    with pytest.raises(TransportFailed, match="broke off"):
        await transport.send(ProviderRequest("GET", "https://127.0.0.1:1/"), seconds=5, max_bytes=1000)
    await transport.close()


@pytest.mark.case("35")
async def test_the_environment_neither_adds_trust_nor_gets_the_session_keys(trusted, tmp_path, monkeypatch):
    keys = tmp_path / "tls-keys.log"
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted.file))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    answer, _ = await ask(trusted.issue().context, "")
    assert isinstance(answer, TransportFailed)
    assert 200 == (await ask(trusted.issue().context, trusted.file.read_text()))[0]
    assert not keys.exists()


@pytest.mark.case("35")
async def test_an_authority_is_trusted_for_the_requests_that_name_it_and_for_no_other(trusted, tmp_path):
    """In any order: one app's authority is not trusted for another."""
    other, transport = Authority(tmp_path, "other"), Transport(reach=HERE)
    async with RawServer(says(200), tls=trusted.issue().context) as server:
        for ca in (trusted.file.read_text(), "", other.file.read_text(), trusted.file.read_text()):
            asked = transport.send(ProviderRequest("GET", server.url, ca=ca), seconds=5, max_bytes=1000)
            if ca == trusted.file.read_text():
                assert 200 == (await asked).status
            else:
                with pytest.raises(TransportFailed, match="not trusted here"):
                    await asked
    await transport.close()


@pytest.mark.case("35")
def test_the_systems_authorities_stay_beside_a_private_one(trusted):
    assert len(tls_context("").get_ca_certs()) > 0
    both = tls_context(trusted.file.read_text()).get_ca_certs(binary_form=True)
    assert len(both) == len(tls_context("").get_ca_certs()) + 1


@pytest.mark.case("35")
def test_no_switch_turns_verification_off():
    """A new parameter has to pass by here: those there are can only allow plain loopback or more networks,
    or lead through a proxy, with TLS inside. A request can only add trust."""
    assert ["plain_http_loopback", "reach", "proxy", "watch"] == list(inspect.signature(Transport).parameters)
    assert not {name for name in Settings.__slots__ if "verify" in name or "tls" in name or "ssl" in name}
