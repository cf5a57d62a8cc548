"""The network of the sync client: sockets, and h11 for HTTP/1.1. Without https no TLS is loaded, and never asyncio."""

from __future__ import annotations

import os
import selectors
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

import h11

from oauthbroker.client.address import Address
from oauthbroker.client.client_call import Reply, reply_of
from oauthbroker.client.transport import CONNECT_SECONDS, IDLE_SECONDS, MAX_IDLE, Request, Sending, check_length
from oauthbroker.core.clock import SystemClock

if TYPE_CHECKING:
    import ssl

    import httpx2

_CHUNK = 65536


class BlockingTransport:
    """Safe for many threads: each exchange has a connection of its own. A forked child opens new ones. `check` sees
    each new connection over a Unix socket, and raises to refuse it."""

    def __init__(self, address: Address, check: Callable[[socket.socket], None] = lambda _: None) -> None:
        self._address, self._check = address, check
        self._url = urlsplit(address.base)
        self._idle: list[_Connection] = []  # its `append` and `pop` are atomic, so that a fork meets no held lock
        self._tls: ssl.SSLContext | None = None
        self._http: tuple[int, httpx2.Client] | None = None  # of this process

    async def exchange(self, request: Request, seconds: float, sending: Sending) -> Reply | None:
        try:
            return self._exchange(request, _Deadline(seconds), sending)
        except TimeoutError:
            sending.note = "no answer in time"
        except (h11.ProtocolError, OSError, ValueError) as exc:
            sending.note = f"no answer ({type(exc).__name__})"
        return None

    async def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
        http, self._http = self._http, None
        if http is not None and http[0] == os.getpid():
            http[1].close()

    def http(self) -> httpx2.Client:
        """Return an HTTP client, for requests whose answers are streamed. A forked child gets one of its own."""
        if self._http is None or self._http[0] != os.getpid():
            import httpx2  # for a tool that calls `client()`

            limits = httpx2.Limits(max_keepalive_connections=MAX_IDLE, keepalive_expiry=IDLE_SECONDS)
            tls = self._context() if self._url.scheme == "https" else False
            transport = httpx2.HTTPTransport(verify=tls, trust_env=False, limits=limits, uds=self._address.socket)
            self._http = os.getpid(), httpx2.Client(transport=transport, trust_env=False, timeout=None)
        return self._http[1]

    def _exchange(self, request: Request, deadline: _Deadline, sending: Sending) -> Reply:
        connection = self._kept() or self._connect(deadline)
        try:
            reply = connection.exchange(self._url, request, deadline, sending)
            kept = len(self._idle) < MAX_IDLE and connection.is_reusable()
        except BaseException:  # Ctrl-C, too: half an answer may follow on this connection
            connection.close()
            raise
        if kept:
            self._idle.append(connection)
        else:
            connection.close()
        return reply

    def _kept(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fresh():
                return connection
            connection.close()
        return None

    def _connect(self, deadline: _Deadline) -> _Connection:
        deadline, path = deadline.at_most(CONNECT_SECONDS), self._address.socket
        raw = _connected_to(self._url, deadline) if path is None else _connected(socket.AF_UNIX, path, deadline)
        try:
            if path is not None:
                self._check(raw)
            if self._url.scheme != "https":
                return _Connection(raw)
            raw.settimeout(deadline.left())
            return _Connection(self._context().wrap_socket(raw, server_hostname=self._url.hostname))
        except BaseException:
            raw.close()
            raise

    def _context(self) -> ssl.SSLContext:
        """Return the trust of the async client: the system's certificates, without the environment."""
        if self._tls is None:
            import httpx2  # only an https address needs TLS, which takes longer to load than the rest of the client

            self._tls = httpx2.create_ssl_context(trust_env=False)
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


class _Deadline:
    """A moment of the system's monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._at = SystemClock.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left. Raises TimeoutError if there are none."""
        left = self._at - SystemClock.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def at_most(self, seconds: float) -> _Deadline:
        return _Deadline(min(self.left(), seconds))


class _Connection:
    """An open connection, used by one thread at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._http = h11.Connection(h11.CLIENT)
        self._process = os.getpid()
        self._used = SystemClock.monotonic()

    def exchange(self, url: SplitResult, request: Request, deadline: _Deadline, sending: Sending) -> Reply:
        content = request.body or b""
        headers = [(b"Host", url.netloc.encode()), *request.raw_headers]
        if request.body is not None or request.method == "POST":
            headers.append((b"Content-Length", str(len(content)).encode()))
        head = h11.Request(method=request.method, target=url.path + request.target, headers=headers)
        written = b"".join(self._http.send(part) or b"" for part in (head, h11.Data(content), h11.EndOfMessage()))
        self._socket.settimeout(deadline.left())
        sending.sent = True
        self._socket.sendall(written)
        return self._answer(deadline)

    def is_reusable(self) -> bool:
        """Begin the next exchange where HTTP allows it. False: close this connection."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self._used = SystemClock.monotonic()
        return True

    def is_fresh(self) -> bool:
        """Return whether the next request may use it: briefly idle, of this process, not closed by the broker."""
        if self._process != os.getpid() or SystemClock.monotonic() - self._used > IDLE_SECONDS:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            return not selector.select(0)  # a broker that has nothing to answer has closed it

    def close(self) -> None:
        self._socket.close()

    def _answer(self, deadline: _Deadline) -> Reply:
        head: h11.Response | None = None
        body = bytearray()
        while not isinstance(event := self._event(deadline), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                check_length(body)
            elif not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("closed before the answer's end")
        if head is None:
            raise h11.RemoteProtocolError("an answer without a status")
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        return reply_of(head.status_code, bytes(body), named)

    def _event(self, deadline: _Deadline) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._socket.settimeout(deadline.left())
            self._http.receive_data(self._socket.recv(_CHUNK))
        return event


def _connected(family: int, address: object, deadline: _Deadline) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.settimeout(deadline.left())
        made.connect(address)  # type: ignore[arg-type]  # a path or what getaddrinfo returned for the family
    except BaseException:
        made.close()
        raise
    return made


def _connected_to(url: SplitResult, deadline: _Deadline) -> socket.socket:
    """Connect to the first of the host's addresses that accepts."""
    refusal = OSError("the host has no address")
    for family, address in _addresses(url, deadline):
        try:
            return _connected(family, address, deadline)
        except OSError as exc:
            refusal = exc
    raise refusal


def _addresses(url: SplitResult, deadline: _Deadline) -> list[tuple[int, object]]:
    """Look the host up in a thread: the system's resolver knows no deadline."""
    found: list[tuple[int, object]] = []
    port = url.port or (443 if url.scheme == "https" else 80)

    def look() -> None:
        try:
            each = socket.getaddrinfo(url.hostname, port, type=socket.SOCK_STREAM)
        except (OSError, ValueError):
            return
        found.extend((family, address) for family, _, _, _, address in each)

    thread = threading.Thread(target=look, name="oauthbroker-client-dns", daemon=True)
    thread.start()
    thread.join(deadline.left())
    return found
