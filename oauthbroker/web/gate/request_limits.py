"""The gate before every route: our hosts, how much may come in and for how long, and the headers of every answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oauthbroker.core.errors import BrokerError, Code, Locale, place_of
from oauthbroker.core.sentences import listed
from oauthbroker.observability.logging import Log
from oauthbroker.web.gate.error_responses import answer, bare_answer
from oauthbroker.web.middleware.access_log import request_id
from oauthbroker.web.middleware.forwarded import Proxies
from oauthbroker.web.middleware.security_headers import raw_security_headers

TARGET_LIMIT = 8 * 1024  # bytes of path, and of query
REFUSAL_LIMIT = 32 * 1024  # of a query with an `error`: some providers send a whole page as its description (case 8)
BODY_LIMIT = 64 * 1024
PROXIED = "/v1/proxy/"
IMPORTED = ("POST", "/v1/grants")
STREAM_LIMIT = 64 * 1024 * 1024  # of a body that is passed on or read as it comes; nothing of it is read for a stranger
PEER = "oauthbroker.peer"  # in scope["extensions"] of what came over our Unix socket: {"uid": 1000}
LOCAL = "oauthbroker.local"  # in scope["extensions"] of what came over the socket of a person's own connections
PROBES = frozenset({"/healthz", "/readyz"})
_DEADLINE = "deadline"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DEFAULT_PORTS = {"https": 443, "http": 80}


def may_take_long(request: Request) -> None:
    """Lift the time limit of a route that waits for something. Its caller's body has been read by then, or has limits
    of its own."""
    limit = request.scope.get("state", {}).get(_DEADLINE)
    if limit is not None:
        limit.reschedule(None)


def allowed_hosts(public_base_url: str, extra: Iterable[str] = ()) -> frozenset[str]:
    """Return the values of Host we answer to: the public one, also with or without a default port, and `extra`."""
    parts = urlsplit(public_base_url)
    host = parts.netloc.rpartition("@")[2].lower()
    hosts = {host, *(name.lower() for name in extra)}
    default = _DEFAULT_PORTS.get(parts.scheme)
    if parts.port is None:
        hosts.add(f"{host}:{default}")
    elif parts.port == default:
        hosts.add(host.rpartition(":")[0])
    return frozenset(hosts)


def own_hosts(host: str, port: int) -> frozenset[str]:
    """Return the names by which callers on this machine may address a listener without a public name. No foreign page
    can make a browser send one of these."""
    names = {host.strip("[]").lower()}
    if names & {"127.0.0.1", "::1", "localhost"}:
        names |= {"127.0.0.1", "::1", "localhost"}
    return frozenset(f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in names)


def is_ours(hosts: list[bytes], ours: frozenset[str]) -> bool:
    """Return whether the values of Host are one, and it is one of ours."""
    return len(hosts) == 1 and hosts[0].decode("latin-1").lower() in ours


def _other_host(ours: frozenset[str]) -> BrokerError:
    """Return `hostNotAllowed` that names the hosts of the configuration."""
    refused = BrokerError(Code.HOST_NOT_ALLOWED, hosts=listed(sorted(ours)))
    refused.hint = "hostsServed"
    return refused


class Guard:
    """ASGI middleware inside AccessLog, around the routes: `Starlette(middleware=[Middleware(AccessLog, ...),
    Middleware(Guard, ...)])`, so that a fault becomes our fixed page before any server prints it.

    Host is not checked for health probes, which tell nothing and are asked by address, nor on our Unix socket, where it
    says nothing. `proxies` may name another client than the connection's other end. An answer has to begin after
    `seconds`, unless its route says `may_take_long`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: frozenset[str],
        locale: Locale,
        log: Log,
        proxies: Proxies | None = None,
        seconds: float | None = None,
        https: bool = False,
    ) -> None:
        self.app, self.hosts, self.locale, self.log = app, hosts, locale, log
        self.security_headers = raw_security_headers(https=https)
        self.proxies = proxies or Proxies()
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.proxies.look_behind(scope)
        announced = [value for name, value in scope["headers"] if name == b"content-length"]
        coded = b"transfer-encoding" in dict(scope["headers"])
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        streams = path.startswith(PROXIED) or (scope["method"], path) == IMPORTED
        most = STREAM_LIMIT if streams else BODY_LIMIT
        bodiless = not coded and announced in ([], [b"0"])
        exchange = _Exchange(receive, send, bodiless=bodiless, most=most, headers=self.security_headers)
        response = self._refusal(scope, path, announced, coded=coded, most=most)
        if response is None:
            response = await self._run(scope, exchange)
        if response is not None and not exchange.started:
            await response(scope, exchange.receive, exchange.send)

    async def _run(self, scope: Scope, exchange: _Exchange) -> Response | None:
        """Let the routes answer. Return a response for their failures."""
        try:
            async with asyncio.timeout(self.seconds) as limit:
                scope.setdefault("state", {})[_DEADLINE] = exchange.limit = limit
                try:
                    await self.app(scope, exchange.receive, exchange.send)
                finally:
                    exchange.limit = None
        except ClientDisconnect:
            return None
        except Exception as exc:  # noqa: BLE001 - the last fence: nothing may reach a server that prints messages
            if isinstance(exc, BrokerError) and not exchange.started:
                return answer(exc, Request(scope), self.locale)
            if isinstance(exc, HTTPException) and not exchange.started:
                return bare_answer(exc.status_code, Request(scope), self.locale, exc.headers)
            if limit.expired():
                return self._too_late(scope, exchange)
            self.log.error(
                "fault",
                exception=type(exc).__qualname__,
                place=place_of(exc, below=__name__),
                request_id=request_id(scope),
            )
            return bare_answer(500, Request(scope), self.locale)
        return None

    def _too_late(self, scope: Scope, exchange: _Exchange) -> Response:
        """Answer a request whose body, or whose answer, did not come in time."""
        error = BrokerError(Code.REQUEST_TIMEOUT, note="no answer yet" if exchange.received_all else "no body yet")
        response = answer(error, Request(scope), self.locale, status=503 if exchange.received_all else None)
        response.headers["connection"] = "close"
        return response

    def _refusal(self, scope: Scope, path: str, announced: list[bytes], *, coded: bool, most: int) -> Response | None:
        """Check (1) Host (2) size of the target (3) its characters (4) the body's announced size; None lets it pass."""
        validated = path not in PROBES and PEER not in (scope.get("extensions") or {})
        if validated and not is_ours([value for name, value in scope["headers"] if name == b"host"], self.hosts):
            return answer(_other_host(self.hosts), Request(scope), self.locale)
        query = scope["query_string"]
        if len(scope.get("raw_path") or b"") > TARGET_LIMIT or (len(query) > TARGET_LIMIT and _is_too_long(query)):
            return answer(BrokerError(Code.REQUEST_TOO_LARGE), Request(scope), self.locale, status=414)
        if _CONTROL.search(scope["path"]):
            return answer(BrokerError(Code.REQUEST_INVALID), Request(scope), self.locale)
        refused = _body_refusal(announced, coded=coded, most=most)
        if refused is None:
            return None
        response = answer(BrokerError(refused), Request(scope), self.locale)
        response.headers["connection"] = "close"  # the body is on its way and will not be read
        return response


class _Exchange:
    """One request's two ends: counts what comes in, adds the security headers to what goes out."""

    def __init__(
        self, receive: Receive, send: Send, *, bodiless: bool, most: int, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        self._headers = headers
        self._receive, self._send, self._most = receive, send, most
        self.started = False
        self.received_all = bodiless
        self._received = 0
        self.limit: asyncio.Timeout | None = None  # the answer has to begin within it, and then may take its time

    async def receive(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        self.received_all = not message.get("more_body", False)
        if self._received > self._most:
            raise BrokerError(Code.REQUEST_TOO_LARGE)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            if self.limit is not None and not self.limit.expired():
                self.limit.reschedule(None)
            said = {name.lower() for name, _ in message["headers"]}
            ours = [pair for pair in self._headers if pair[0] not in said]
            message = {**message, "headers": [*message["headers"], *ours]}
            if self._received > self._most:
                MutableHeaders(scope=message)["connection"] = "close"
        await self._send(message)


def _body_refusal(announced: list[bytes], *, coded: bool, most: int) -> Code | None:
    """Check the announced length. Two announcements are refused (case 84)."""
    if len(announced) > 1 or (announced and coded):
        return Code.REQUEST_INVALID
    if announced and (not announced[0].isdigit() or int(announced[0][:20]) > most):
        return Code.REQUEST_TOO_LARGE
    return None


def _is_too_long(query: bytes) -> bool:
    """Return whether a long query is too long. It is read only up to the larger limit."""
    return len(query) > REFUSAL_LIMIT or b"&error=" not in b"&" + query
