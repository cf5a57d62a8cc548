"""A certification authority for tests: valid certificates, for 127.0.0.1 or a name, and invalid ones."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from oauthbroker.core.dataclasses import dataclass, field

Fault = Literal["", "expired", "notYetValid", "wrongHost", "otherAddress", "selfSigned"]

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
_HOSTS: dict[Fault, x509.GeneralName] = {
    "wrongHost": x509.DNSName("id.example"),
    "otherAddress": x509.IPAddress(ipaddress.ip_address("127.0.0.2")),
}
_Times = tuple[timedelta, timedelta]
_TIMES: dict[Fault, _Times] = {"expired": (-2 * _DAY, -_HOUR), "notYetValid": (_HOUR, _DAY)}


@dataclass(frozen=True, slots=True)
class Certificate:
    """A server's certificate. `trust` is the authority's PEM file: clients that trust it accept a valid certificate."""

    context: ssl.SSLContext
    trust: Path


class Authority:
    """An authority with one key, valid for a day. `folder` holds its files and those of its servers' keys.

    Validity follows the real clock, as TLS clients do.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._signer = _Signer(_named(name), ec.generate_private_key(ec.SECP256R1()))
        self.file = folder / f"{name}.pem"
        certificate = self._signer.certify(self._signer.name, self._signer.key, (-_DAY, _DAY), None)
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, fault: Fault = "", host_name: str = "") -> Certificate:
        """Issue a certificate for a server on 127.0.0.1 or of this name, valid or with one fault; `selfSigned` has no
        authority."""
        name, key = _named("127.0.0.1"), ec.generate_private_key(ec.SECP256R1())
        signer = _Signer(name, key) if fault == "selfSigned" else self._signer
        own = x509.DNSName(host_name) if host_name else _LOOPBACK
        host, times = _HOSTS.get(fault, own), _TIMES.get(fault, (-_DAY, _DAY))
        certificate = signer.certify(name, key, times, host)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = self._folder / f"server-{certificate.serial_number:x}.pem"
        file.touch(0o600)
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return Certificate(context, self.file)


@dataclass(frozen=True, slots=True)
class _Signer:
    name: x509.Name
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    def certify(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, times: _Times, host: x509.GeneralName | None
    ) -> x509.Certificate:
        """Build a certificate with validity `times` around now; without a host an authority's."""
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + times[0])
            .not_valid_after(now + times[1])
            .add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
        )
        if host is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([host]), critical=False)
        return builder.sign(self.key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
