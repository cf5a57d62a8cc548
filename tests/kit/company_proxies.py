"""Squid and tinyproxy, as companies run them, on ports of loopback: plain, with a login, over TLS, and opening TLS.

Only they know the names in `NAMES`, and a server sees their connections come from `FROM`: a connection from another
address went past them.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives import serialization

from oauthbroker.core.secret import Secret
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.testing import Authority
from tests.kit.cli import free_port
from tests.kit.connect_proxy import carry

LACKS = "the proxies squid and tinyproxy, and bubblewrap (packages squid-openssl, tinyproxy, bubblewrap)"
FROM = "127.0.0.7"
NAMES = ("id.acme.example", "hooks.acme.example", "vault.acme.example", "kms.acme.example")
LOGIN = "corp:sesame-9241"
_CERTGEN = Path("/usr/lib/squid/security_file_certgen")
_SQUID = """\
http_port 127.0.0.1:{plain}
http_port 127.0.0.1:{login}
https_port 127.0.0.1:{tls} tls-cert={folder}/proxy.pem
http_port 127.0.0.1:{opener} ssl-bump tls-cert={folder}/company.pem generate-host-certificates=on
sslcrtd_program {certgen} -s {folder}/certificates -M 4MB
tls_outgoing_options cafile={folder}/world/authority.pem
acl hello at_step SslBump1
ssl_bump peek hello
ssl_bump bump all
auth_param basic program /bin/sh {folder}/login.sh
acl login_port localport {login}
acl known proxy_auth REQUIRED
http_access deny login_port !known
http_access allow all
tcp_outgoing_address {address}
hosts_file {folder}/hosts
logformat asked %>lp %>Hs %rm %ru
access_log stdio:{folder}/access.log asked
buffered_logs off
cache_log {folder}/cache.log
pid_filename none
cache deny all
shutdown_lifetime 0 seconds
visible_hostname proxy
"""
_TINYPROXY = """\
Port {port}
Listen 127.0.0.1
Bind {address}
Timeout 60
MaxClients 50
LogFile "{log}"
LogLevel Connect
{login}
"""
_LOGIN = 'while read -r user password; do [ "$user:$password" = "{}" ] && echo OK || echo ERR; done\n'


def lacks() -> list[str]:
    """Return the missing programs, for `installed.demand`."""
    there = shutil.which("bwrap") and _CERTGEN.exists() and _program("squid") and _program("tinyproxy")
    return [] if there else [LACKS]


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin")


@dataclass(frozen=True, slots=True)
class CompanyProxy:
    """One port of a proxy. `opens_tls` needs `company` trusted for every provider."""

    name: str
    port: int
    log: Path
    ca: str = ""
    login: str = ""
    opens_tls: bool = False

    def setting(self, *, resolves: bool, login: str | None = None, direct_hosts: tuple[str, ...] = ()) -> OutgoingProxy:
        known = self.login if login is None else login
        return OutgoingProxy(
            host="127.0.0.1", port=self.port, tls=bool(self.ca), ca=self.ca, resolves=resolves,
            credentials=Secret(known) if known else None, direct_hosts=direct_hosts,
        )  # fmt: skip

    def size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def asked(self, since: int) -> list[str]:
        """Return the log's lines of this port from a size on, each its method and target."""
        lines = self.log.read_text()[since:].splitlines() if self.log.exists() else []
        if self.name.startswith("squid"):
            return [line.split(" ", 2)[2] for line in lines if line.startswith(f"{self.port} 200 ")]
        return [line.partition("): ")[2].removesuffix(" HTTP/1.1") for line in lines if " CONNECT " in line]


@dataclass(frozen=True, slots=True)
class CompanyProxies:
    """All of them. `world` certifies providers, `company` what the one that opens TLS shows in their place."""

    by_name: dict[str, CompanyProxy]
    world: Authority
    company: Authority

    def trusted(self, proxy: CompanyProxy) -> str:
        return (self.company if proxy.opens_tls else self.world).file.read_text()


@contextmanager
def company_proxies() -> Iterator[CompanyProxies]:
    """Run all of them for the block. The folder is open to the user to which squid changes when root starts it."""
    with tempfile.TemporaryDirectory(prefix="proxies-", dir="/tmp") as made, contextlib.ExitStack() as stack:
        folder = Path(made)
        folder.chmod(0o777)
        world, company, inner = (_authority(folder / name) for name in ("world", "company", "inner"))
        (folder / "hosts").write_text("".join(f"127.0.0.1 {name}\n" for name in NAMES))
        found = [
            *_squid(stack, folder, company, inner),
            _tinyproxy(stack, folder, "tinyproxy", ""),
            _tinyproxy(stack, folder, "tinyproxy with a login", LOGIN),
        ]
        yield CompanyProxies({each.name: each for each in found}, world, company)


def _authority(folder: Path) -> Authority:
    folder.mkdir()
    return Authority(folder)


def _squid(stack: contextlib.ExitStack, folder: Path, company: Authority, inner: Authority) -> list[CompanyProxy]:
    """Run one squid with a port of each kind. It reads its keys as another user where root starts it."""
    ports = {name: free_port() for name in ("plain", "login", "tls", "opener")}
    inner.issue()
    (own,) = inner.file.parent.glob("server-*.pem")
    (folder / "proxy.pem").write_bytes(own.read_bytes())
    key = company._signer.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "company.pem").write_bytes(company.file.read_bytes() + key)
    (folder / "login.sh").write_text(_LOGIN.format(LOGIN))
    log = folder / "access.log"
    made = [str(_CERTGEN), "-c", "-s", str(folder / "certificates"), "-M", "4MB"]
    subprocess.run(made, check=True, capture_output=True, timeout=60)
    for path in (folder / "certificates", *(folder / "certificates").rglob("*")):
        path.chmod(0o777)
    config = folder / "squid.conf"
    config.write_text(_SQUID.format(folder=folder, certgen=_CERTGEN, address=FROM, **ports))
    stack.enter_context(_run([str(_program("squid")), "-N", "-f", str(config)], folder / "cache.log", *ports.values()))
    return [
        CompanyProxy("squid", ports["plain"], log),
        CompanyProxy("squid with a login", ports["login"], log, login=LOGIN),
        CompanyProxy("squid over TLS", ports["tls"], log, ca=inner.file.read_text()),
        CompanyProxy("squid that opens TLS", ports["opener"], log, opens_tls=True),
    ]


def _tinyproxy(stack: contextlib.ExitStack, folder: Path, name: str, login: str) -> CompanyProxy:
    """Run one with the names in a file of hosts of its own: it has no setting for them."""
    port, config, log = free_port(), folder / f"{name}.conf", folder / f"{name}.log"
    basic = f"BasicAuth {login.replace(':', ' ')}" if login else ""
    config.write_text(_TINYPROXY.format(port=port, address=FROM, log=log, login=basic))
    inside = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", str(folder / "hosts"), "/etc/hosts", "--die-with-parent"]
    stack.enter_context(_run([*inside, str(_program("tinyproxy")), "-d", "-c", str(config)], log, port))
    return CompanyProxy(name, port, log, login=login)


@contextmanager
def _run(command: list[str], log: Path, *ports: int) -> Iterator[None]:
    """Run a server for the block, from when it listens."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for port in ports:
            _await_port(port, process, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(log.read_text() if log.exists() else "a proxy does not listen")


class Entrance:
    """Where a host of the outside is, at a name: TLS with that name's certificate, and a server on loopback behind it.
    `callers` are the addresses that connected."""

    def __init__(self, name: str, world: Authority) -> None:
        self.name, self.port, self.behind = name, free_port(), 0
        self.callers: list[str] = []
        self._tls: ssl.SSLContext = world.issue(host_name=name).context
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"https://{self.name}:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._enter, "127.0.0.1", self.port, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.callers.append(writer.get_extra_info("peername")[0])
        with contextlib.suppress(OSError, ssl.SSLError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.behind)
            await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))
