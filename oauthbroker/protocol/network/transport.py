"""The only module that calls providers: one client, one deadline, one size limit, no redirects."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.version import VERSION
from oauthbroker.model.apps import App
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.model.settings import Limits
from oauthbroker.observability.library_log import OURS, not_ours
from oauthbroker.protocol.answer_checks import date_of, retry_after_seconds
from oauthbroker.protocol.messages import Kind, ProviderRequest, ProviderResponse, encode_form, encode_json, reveal
from oauthbroker.protocol.network.dialing import AddressRefused, Asking, Dialer, asking
from oauthbroker.protocol.network.instrumentation import Instrumentation
from oauthbroker.protocol.network.name_lookups import Lookups, NoAddress
from oauthbroker.protocol.network.proxy_tunnel import ProxyFailed
from oauthbroker.protocol.network.tls_contexts import tls_context
from oauthbroker.protocol.redirects import redirect_note

if TYPE_CHECKING:
    import httpcore2
    import httpx2

NOWHERE_INSIDE = ProviderNetworks()
LATE = "no answer in time"
MOST_BYTES = 256 * 1024  # of one answer to the broker, decoded
_MAX_URL = 8 * 1024
_MAX_PIECES = 8 * 1024  # a body in one-byte chunks would cost seconds of CPU time
_PER_ORIGIN = 64  # a slow provider uses up its own connections, never another provider's
_URL_TEXT = re.compile(r"[A-Za-z0-9._~:/?@!$&'()*+,;=%\[\]-]+")  # RFC 3986 without the fragment
_ENCODINGS = frozenset({"", "identity", "gzip", "deflate"})
# OpenSSL's verification results (x509_vfy.h). Its own messages may name hosts.
_CERTIFICATE = {
    9: "it is not valid yet by this machine's clock",
    10: "it has expired by this machine's clock",
    18: "it is signed by itself",
    **dict.fromkeys((19, 20, 21), "its authority is not trusted here"),
    23: "it has been revoked",
    **dict.fromkeys((62, 64), "it is for another host"),
}
_LOGGERS = ("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")))


class TransportFailed(BrokerError):
    """No complete answer. `sent` tells whether the provider may have received the request: False for DNS, connection
    and TLS failures, True for a lost, late or oversized answer. Its code is `outgoingProxyRefused` where the company's
    proxy refused a tunnel."""

    def __init__(self, note: str, *, sent: bool, code: Code = Code.PROVIDER_UNREACHABLE) -> None:
        super().__init__(code, note=note)
        self.sent = sent


class Transport:
    """The HTTP clients for all providers. TLS is always verified and cannot be switched off.

    `plain_http_loopback` is the explicit weakening `plainHttpProvider`: http:// to a literal loopback address. A
    request may name certificates (`ca`) to trust beside the system's. The environment (proxies, SSL_CERT_FILE,
    SSLKEYLOGFILE) is not consulted. `watch` records every request. Connections to addresses outside `reach` are
    refused. With a `proxy` they go through it. Belongs to one event loop; clients are built at the first request.
    """

    def __init__(
        self,
        *,
        plain_http_loopback: bool = False,
        reach: ProviderNetworks = NOWHERE_INSIDE,
        proxy: OutgoingProxy | None = None,
        watch: Instrumentation | None = None,
    ) -> None:
        self._watch = watch
        self._reach = replace(reach, loopback=True) if plain_http_loopback else reach
        self._plain_http = plain_http_loopback
        self._proxy = proxy
        self._clients: dict[str, httpx2.AsyncClient] = {}  # by the certificates trusted beside the system's
        self._lookups = Lookups()
        self._rows = defaultdict[str, asyncio.Semaphore](partial(asyncio.Semaphore, _PER_ORIGIN))
        self._closed = False
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(not_ours)

    @property
    def proxy_resolves(self) -> bool:
        """Tell whether the company's proxy looks names up: then none that a stranger chose is sent to it."""
        return self._proxy is not None and self._proxy.resolves

    def check_url(self, url: str) -> None:
        """Check the address of a request. Raises `appMisconfigured` where `send` would refuse it."""
        check_url(url, plain_http_loopback=self._plain_http)

    async def send(self, request: ProviderRequest, *, seconds: float, max_bytes: int) -> ProviderResponse:
        """Send the request once and return the whole answer, with any status.

        `seconds` bounds everything from the queue to the last byte; `max_bytes` bounds the decoded body. Raises
        `TransportFailed`, or `appMisconfigured` for a refused address.
        """
        self.check_url(request.url)
        if self._watch is None:
            return await self._send(request, seconds, max_bytes)
        return await self._watch.over(request, lambda: self._send(request, seconds, max_bytes))

    async def _send(self, request: ProviderRequest, seconds: float, max_bytes: int) -> ProviderResponse:
        progress = _RequestProgress()
        ours_before, app = OURS.set(True), asking.set(Asking(request.app, request.direct))
        try:
            async with asyncio.timeout(seconds), self._row(request.url):
                return await self._exchange(request, progress, max_bytes)
        except Exception as exc:  # noqa: BLE001 - any exception may carry a URL, a header or a body
            failed = failure_of(exc, sent=progress.sent)
        finally:
            OURS.reset(ours_before)
            asking.reset(app)
        raise failed

    async def close(self) -> None:
        """Close every connection. Later requests fail."""
        self._closed = True
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    async def _exchange(self, request: ProviderRequest, progress: _RequestProgress, max_bytes: int) -> ProviderResponse:
        client = self._client(request.ca)
        headers = {name: reveal(value) for name, value in request.headers.items()}
        headers |= {"Accept": request.accept, "Accept-Encoding": "identity"}
        content, url = None, request.url
        if request.form is not None and request.encoding == "query":
            url += ("&" if "?" in url else "?") + encode_form(request.form).decode()
        elif request.form is not None:
            is_json = request.encoding == "json"
            headers["Content-Type"] = "application/json" if is_json else "application/x-www-form-urlencoded"
            content = encode_json(request.form) if is_json else encode_form(request.form)
        async with client.stream(
            request.method, url, headers=headers, content=content, extensions={"trace": progress.trace}
        ) as response:
            body = await _read(response, max_bytes)
            return ProviderResponse(
                status=response.status_code,
                content_type=response.headers.get("content-type", ""),
                retry_after=retry_after_seconds(
                    response.headers.get("retry-after", ""), response.headers.get("date", ""), SystemClock.now()
                ),
                body=body,
                date=date_of(response.headers.get("date", "")),
                challenge=response.headers.get("www-authenticate", ""),
                redirect=redirect_note(request, response.status_code, response.headers.get("location", "")),
            )

    def dialer(self) -> httpcore2.AsyncNetworkBackend:
        """Return a backend that connects to checked addresses, as this transport does."""
        import httpcore2

        backend: Any = Dialer(httpcore2.AnyIOBackend(), reach=self._reach, lookups=self._lookups, proxy=self._proxy)
        return cast("httpcore2.AsyncNetworkBackend", backend)

    def _row(self, url: str) -> asyncio.Semaphore:
        parts = urlsplit(url)
        return self._rows[f"{parts.scheme}://{parts.netloc.lower()}"]

    def _client(self, ca: str) -> httpx2.AsyncClient:
        if self._closed:
            raise RuntimeError("the transport is closed")
        if ca not in self._clients:
            import httpx2  # which a broker without calls lacks, and the pool with it

            from oauthbroker.protocol.network.pool import PoolTransport, refusing_jar

            self._clients[ca] = httpx2.AsyncClient(
                transport=PoolTransport(tls_context(ca), self.dialer()),
                trust_env=False,
                follow_redirects=False,
                timeout=None,  # httpx2's timeouts are per read; the one deadline for everything is in `send`
                cookies=refusing_jar(),  # no cookie of one user reaches the next
                headers={"User-Agent": f"oauthbroker/{VERSION}"},
            )
        return self._clients[ca]


async def send_for(
    app: App, request: ProviderRequest, kind: Kind, transport: Transport, limits: Limits
) -> ProviderResponse:
    """Send a request for an app, within the limits of a provider call. Raises as `Transport.send`."""
    request = request.for_app(app, kind)
    return await transport.send(request, seconds=limits.provider_seconds, max_bytes=MOST_BYTES)


def check_url(url: str, *, plain_http_loopback: bool) -> None:
    """Check an address: https with a host, in printable ASCII, without user-info or fragment; http only to a literal
    loopback address with that weakening on. Raises `appMisconfigured`."""
    if not _is_fit(url, plain_http_loopback=plain_http_loopback):
        raise BrokerError(Code.APP_MISCONFIGURED, note="the address of an endpoint is refused")


def _is_fit(url: str, *, plain_http_loopback: bool) -> bool:
    if len(url) > _MAX_URL or not _URL_TEXT.fullmatch(url):
        return False
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or "@" in parts.netloc or port == 0:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and plain_http_loopback and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name, even "localhost", resolves to any address


class TooLarge(Exception):
    """The answer is longer than its limit."""


def failure_of(error: Exception, *, sent: bool) -> BrokerError:
    """Return the error of a failed exchange, in our words: a library's may hold a URL, a header or a body. Raise it
    outside the `except` block."""
    if isinstance(error, AddressRefused):
        return BrokerError(Code.APP_MISCONFIGURED, note=error.note)
    if isinstance(error, ProxyFailed):
        code = Code.OUTGOING_PROXY_REFUSED if error.refused else Code.PROVIDER_UNREACHABLE
        return TransportFailed(f"the outgoing proxy: {error.why}", sent=False, code=code)
    if isinstance(error, TooLarge):
        note = "the answer is too large"
    elif isinstance(error, TimeoutError) or type(error).__name__.endswith("Timeout"):  # httpcore2 has its own
        note = LATE
    elif isinstance(error, NoAddress):
        note = error.note
    else:
        note = _tls_failure(error) or f"the exchange broke off ({type(error).__name__})"
    return TransportFailed(note, sent=sent)


@dataclass(slots=True)
class _RequestProgress:
    """Records whether the first byte of a request was sent."""

    sent: bool = False

    async def trace(self, event: str, _info: dict[str, Any]) -> None:
        if event.endswith("send_request_headers.started"):
            self.sent = True


async def _read(response: httpx2.Response, max_bytes: int) -> bytes:
    """Read the decoded body. We request identity encoding; a compressed body is counted after decoding."""
    if response.headers.get("content-encoding", "").strip().lower() not in _ENCODINGS:
        raise ValueError("an encoding that was not asked for")
    body, pieces = bytearray(), 0
    async for chunk in response.aiter_bytes():
        body += chunk
        pieces += 1
        if len(body) > max_bytes or response.num_bytes_downloaded > max_bytes or pieces > _MAX_PIECES:
            raise TooLarge
    return bytes(body)


def _tls_failure(error: BaseException) -> str:
    """Return a note such as `TLS: the provider's certificate is refused, its authority is not trusted here`;
    empty if TLS was not the cause.

    Walks through causes and contexts, because HTTP libraries wrap the socket's errors.
    """
    import ssl  # imported here: a broker without provider calls does not need it

    seen: BaseException | None = error
    for _ in range(10):
        if isinstance(seen, ssl.SSLCertVerificationError):
            why = _CERTIFICATE.get(seen.verify_code, f"OpenSSL's reason {seen.verify_code}")
            return f"TLS: the provider's certificate is refused, {why}"
        if isinstance(seen, ssl.SSLError):
            return "TLS: no safe connection could be agreed on"
        if seen is None:
            break
        seen = seen.__cause__ or seen.__context__
    return ""
