"""Certificates of a certification authority made here: what is refused, and that nothing can switch it off."""

from __future__ import annotations

import inspect
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from oauthbroker.apps import Settings
from oauthbroker.protocol.messages import Request
from oauthbroker.protocol.transport import Transport, TransportFailed
from oauthbroker.secret import Secret
from tests.unit.protocol.kit import CANARY, RawServer, assert_clean, says

DAY = timedelta(days=1)
LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


class Authority:
    """A certification authority with one key; `issue` writes a server's certificate and key into one PEM file."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._build(self._name, self._key, self._now() - DAY, self._now() + DAY, authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(
        self, host: x509.GeneralName = LOOPBACK, *, starts: timedelta = -DAY, ends: timedelta = DAY
    ) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
        certificate = self._build(name, key, self._now() + starts, self._now() + ends, host=host)
        file = self._folder / "server.pem"
        file.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _now(self) -> datetime:
        return datetime.now(UTC)

    def _build(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        starts: datetime,
        ends: datetime,
        *,
        authority: bool = False,
        host: x509.GeneralName | None = None,
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(starts)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if host is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([host]), critical=False)
        return builder.sign(self._key, hashes.SHA256())


@pytest.fixture
def trusted(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "trusted")


async def ask(context: ssl.SSLContext, extra_ca_file: str) -> tuple[int | TransportFailed, RawServer]:
    """The status, or the refusal; and the server, to see what it got."""
    transport = Transport(extra_ca_file=extra_ca_file)
    answer: int | TransportFailed
    async with RawServer(says(200), tls=context) as server:
        request = Request("POST", f"{server.url}/token", form={"code": Secret(CANARY)})
        try:
            answer = (await transport.send(request, seconds=5, max_bytes=1000)).status
        except TransportFailed as error:
            answer = error
        await transport.close()
    return answer, server


@pytest.mark.case("35")
async def test_a_good_certificate_of_a_trusted_authority_is_accepted(trusted):
    answer, server = await ask(trusted.server(), str(trusted.file))
    assert (200, 1) == (answer, len(server.requests))


def _wrong_host(ours: Authority, strangers: Authority) -> ssl.SSLContext:
    return ours.server(x509.DNSName("id.example"))


def _other_address(ours: Authority, strangers: Authority) -> ssl.SSLContext:
    return ours.server(x509.IPAddress(ipaddress.ip_address("127.0.0.2")))


def _expired(ours: Authority, strangers: Authority) -> ssl.SSLContext:
    return ours.server(starts=-2 * DAY, ends=-timedelta(minutes=1))


def _not_yet_valid(ours: Authority, strangers: Authority) -> ssl.SSLContext:
    return ours.server(starts=timedelta(hours=1))


def _unknown_authority(ours: Authority, strangers: Authority) -> ssl.SSLContext:
    return strangers.server()


def _old_protocol(ours: Authority, strangers: Authority) -> ssl.SSLContext:
    context = ours.server()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    return context


@pytest.mark.case("35")
@pytest.mark.parametrize(
    "bad", [_wrong_host, _other_address, _expired, _not_yet_valid, _unknown_authority, _old_protocol]
)
async def test_any_other_certificate_is_refused_before_a_byte_is_sent(bad, trusted, tmp_path):
    answer, server = await ask(bad(trusted, Authority(tmp_path, "strangers")), str(trusted.file))
    assert isinstance(answer, TransportFailed)
    assert_clean(answer)
    assert (False, []) == (answer.sent, server.requests)


@pytest.mark.case("35")
async def test_the_environment_neither_adds_trust_nor_gets_the_session_keys(trusted, tmp_path, monkeypatch):
    keys = tmp_path / "tls-keys.log"
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted.file))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    answer, _ = await ask(trusted.server(), "")
    assert isinstance(answer, TransportFailed)
    assert 200 == (await ask(trusted.server(), str(trusted.file)))[0]
    assert not keys.exists()


@pytest.mark.case("35")
def test_no_switch_turns_verification_off():
    """A new parameter has to pass by here: the two there are can only add trust, or allow plain loopback."""
    assert ["plain_http_loopback", "extra_ca_file"] == list(inspect.signature(Transport).parameters)
    assert not {name for name in Settings.__slots__ if "verify" in name or "tls" in name or "ssl" in name}
