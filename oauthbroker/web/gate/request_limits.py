"""The gate before every route: our hosts, how much may come in and for how long, and the headers of every answer."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from oauthbroker.core.errors import BrokerError, Code, Locale, place_of
from oauthbroker.core.foreign_code import ForeignFault
from oauthbroker.core.path_steps import WrongPercentSign, check_percent_signs
from oauthbroker.core.sentences import listed
from oauthbroker.observability.logging import Log
from oauthbroker.observability.tracing import Span, is_traced, span
from oauthbroker.web.gate.error_responses import answer, bare_answer
from oauthbroker.web.html.form_routes import below_root
from oauthbroker.web.middleware.access_log import RequestLog, route_template
from oauthbroker.web.middleware.deadlines import Deadlines
from oauthbroker.web.middleware.exchange import EXCHANGE, HttpExchange, only_value
from oauthbroker.web.middleware.forwarded import Proxies
from oauthbroker.web.middleware.security_headers import raw_security_headers

TARGET_LIMIT = 8 * 1024  # bytes of path, and of query
REFUSAL_LIMIT = 32 * 1024  # of a query with an `error`: some providers send a whole page as its description (case 8)
BODY_LIMIT = 64 * 1024
API = "/v1/"
PROXIED = f"{API}proxy/"
IMPORTED = ("POST", "/v1/grants")
STREAM_LIMIT = 64 * 1024 * 1024  # of a body that is passed on or read as it comes; nothing of it is read for a stranger
PEER = "oauthbroker.peer"  # in scope["extensions"] of what came over our Unix socket: {"uid": 1000}
LOCAL = "oauthbroker.local"  # in scope["extensions"] of what came over the socket of a person's own connections
PROBES = frozenset({"/healthz", "/readyz"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BODILESS = frozenset({"GET", "HEAD"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DISGUISED = re.compile(rb"%(?:2[DEF]|3[0-9]|[46][1-9A-F]|[57][0-9A]|5F)", re.IGNORECASE)  # -./0-9A-Za-z_
_DEFAULT_PORTS = {"https": 443, "http": 80}


def may_take_long(request: Request) -> None:
    """Lift the time limit of a route that waits for something. Its caller's body has been read by then, or has limits
    of its own."""
    exchange = request.scope.get(EXCHANGE)
    if exchange is not None:
        exchange.take_time()


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


def is_ours(host: bytes | None, ours: frozenset[str]) -> bool:
    """Return whether the value of Host is one of ours."""
    return host is not None and host.decode("latin-1").lower() in ours


def _other_host(ours: frozenset[str]) -> BrokerError:
    """Return `hostNotAllowed` that names the hosts of the configuration."""
    refused = BrokerError(Code.HOST_NOT_ALLOWED, hosts=listed(sorted(ours)))
    refused.hint = "hostsServed"
    return refused


class UnsupportedBody(BrokerError):
    """`unsupportedMediaType` that says more of the body: `hint` is the sentence."""

    def __init__(self, hint: str) -> None:
        super().__init__(Code.UNSUPPORTED_MEDIA_TYPE)
        self.hint = hint


class Gate:
    """The outermost ASGI layer: one count, span, line and id (X-Request-Id) for each request, the checks before its
    route, and a fence, so that a fault becomes our fixed page before any server prints it.

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
        requests: RequestLog,
        proxies: Proxies,
        seconds: float,
        https: bool = False,
    ) -> None:
        self.app, self.hosts, self.locale, self.log, self.requests = app, hosts, locale, log, requests
        self.proxies, self.deadlines = proxies, Deadlines(seconds)
        self.security_headers = raw_security_headers(https=https)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self.app(scope, receive, send)
        else:
            begun = self.requests.begin_request()
            exchange = HttpExchange(
                receive, send, request_id=begun.id, headers=self.security_headers, deadlines=self.deadlines
            )
            scope[EXCHANGE] = exchange
            method = scope["method"] if scope["method"] in _METHODS else "other"
            try:
                if is_traced():
                    await self._serve_traced(scope, exchange, method)
                else:
                    await self._serve(scope, exchange)
            finally:
                del scope[EXCHANGE]  # a server's scope and its `receive` would keep each other
                route, known = route_template(scope), exchange.is_known
                self.requests.end_request(begun, route, method, exchange.status, exchange.refused, known=known)

    async def _serve_traced(self, scope: Scope, exchange: HttpExchange, method: str) -> None:
        with span(Span.HTTP, traceparent=_traceparent(scope), method=method) as spanned:
            await self._serve(scope, exchange)
            spanned.set(route=route_template(scope), status=exchange.status)

    async def _serve(self, scope: Scope, exchange: HttpExchange) -> None:
        exchange.is_relayed = self.proxies.look_behind(scope)
        response = self._refusal(scope, exchange)
        if response is None:
            response = await self._run(scope, exchange)
        if response is not None and not exchange.status:
            await response(scope, exchange.receive, exchange.send)

    def _refusal(self, scope: Scope, exchange: HttpExchange) -> Response | None:
        """Check (1) Host (2) size of the target (3) its characters (4) the body's announced size and coding; None
        lets it pass.

        A path is routed decoded. A character that needs no percent sign has none, and two hexadecimal digits follow
        each (RFC 3986 section 2.1), so that a proxy in front, which may compare the path as it was sent, sees the same
        one. The path of a forwarded request is its provider's, and checked with its target.
        """
        headers, path = dict(scope["headers"]), below_root(scope)
        twice = _repeated(scope["headers"]) if len(headers) < len(scope["headers"]) else ()
        validated = path not in PROBES and PEER not in (scope.get("extensions") or {})
        if validated and (b"host" in twice or not is_ours(headers.get(b"host"), self.hosts)):
            return answer(_other_host(self.hosts), Request(scope), self.locale)
        query, raw = scope["query_string"], scope.get("raw_path") or b""
        if len(raw) > TARGET_LIMIT or (query and _is_too_long(query)):
            return answer(BrokerError(Code.REQUEST_TOO_LARGE), Request(scope), self.locale, status=414)
        is_forwarded = path.startswith(PROXIED)
        try:
            _check_path(b"" if is_forwarded else raw, scope["path"])
        except BrokerError as wrong:
            return answer(wrong, Request(scope), self.locale)
        streams = is_forwarded or (scope["method"], path) == IMPORTED
        exchange.most = STREAM_LIMIT if streams else BODY_LIMIT
        announced, coded = headers.get(b"content-length"), b"transfer-encoding" in headers
        if b"content-length" in twice or (announced is not None and coded):  # two announcements (case 84)
            refused = BrokerError(Code.REQUEST_INVALID)
        elif announced is not None and (not announced.isdigit() or int(announced[:20]) > exchange.most):
            refused = BrokerError(Code.REQUEST_TOO_LARGE)
        else:
            exchange.received_all = not coded and announced in (None, b"0")
            if b"content-encoding" not in headers or is_forwarded or scope["method"] in _BODILESS:
                return None
            if headers[b"content-encoding"].lower() == b"identity":
                return None
            refused = UnsupportedBody("bodyEncoded")
        response = answer(refused, Request(scope), self.locale)
        response.headers["connection"] = "close"  # the body is on its way and will not be read
        return response

    async def _run(self, scope: Scope, exchange: HttpExchange) -> Response | None:
        """Let the routes answer. Return a response for their failures."""
        try:
            self.deadlines.set(exchange)
            try:
                await self.app(scope, exchange.receive, exchange.send)
            finally:
                is_late = exchange.end_time()
        except ClientDisconnect:
            return None
        except asyncio.CancelledError:
            if not is_late:
                raise
            return self._too_late(scope, exchange)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - the last fence: a server would print the message
            if isinstance(exc, BrokerError) and not exchange.status:
                return answer(exc, Request(scope), self.locale)
            if isinstance(exc, HTTPException) and not exchange.status:
                return bare_answer(exc.status_code, Request(scope), self.locale, exc.headers)
            if exchange.is_late:
                return self._too_late(scope, exchange)
            place = str(exc) if isinstance(exc, ForeignFault) else place_of(exc, below=__name__)
            self.log.error("fault", exception=type(exc).__qualname__, place=place, request_id=exchange.id)
            return bare_answer(500, Request(scope), self.locale)
        return None

    def _too_late(self, scope: Scope, exchange: HttpExchange) -> Response:
        """Answer a request whose body, or whose answer, did not come in time."""
        error = BrokerError(Code.REQUEST_TIMEOUT, note="no answer yet" if exchange.received_all else "no body yet")
        response = answer(error, Request(scope), self.locale, status=503 if exchange.received_all else None)
        response.headers["connection"] = "close"
        return response


def _check_path(raw: bytes, decoded: str) -> None:
    """Raise `requestInvalid` for a path that is not written plainly, or holds a control character."""
    if b"%" in raw:
        if _DISGUISED.search(raw):
            raise WrongPercentSign("a plain character of the path is percent-encoded")
        check_percent_signs(raw.decode("latin-1"))
    if _CONTROL.search(decoded):
        raise BrokerError(Code.REQUEST_INVALID, note="a control character in the path")


def _repeated(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    count = Counter(name for name, _ in headers)
    return frozenset(name for name, times in count.items() if times > 1)


def _traceparent(scope: Scope) -> str:
    """Return the trace of an API caller. A traceparent of a user's browser is ignored."""
    if not below_root(scope).startswith(API):
        return ""
    return (only_value(scope["headers"], b"traceparent") or b"").decode("latin-1")


def _is_too_long(query: bytes) -> bool:
    """Return whether a query is too long. It is read only up to the larger limit."""
    return len(query) > TARGET_LIMIT and (len(query) > REFUSAL_LIMIT or b"&error=" not in b"&" + query)
