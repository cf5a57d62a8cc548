"""The client's network layer: one connection pool, one deadline for all tries of a call, one size limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Self, TypeVar

import httpx2

from oauthbroker.client.address import Address
from oauthbroker.client.call import ClientCall, Reply
from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.core.secret import Secret

T = TypeVar("T")
PAUSES = (0.1, 0.4, 1.6)  # seconds between the tries of a call, with a jitter of half either way
CONNECT_SECONDS = 5.0
MAX_BYTES = 4 * 1024 * 1024  # the longest answer: a page of a thousand grants needs a tenth of it
_MAX_WAIT = 3600
# The broker closes idle connections after five seconds. Close them earlier, so that no request meets a closing one.
_LIMITS = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=2.0)


class Wire:
    """Sends calls. Safe for many tasks of one event loop; on another loop it opens connections of its own.

    Redirects are not followed, the environment (proxies, certificates) is not consulted, cookies are not stored.
    """

    def __init__(self, address: Address, *, timeout: float, locale: Locale | None, clock: Clock) -> None:
        self.locale = locale
        self.clock = clock
        self._address = address
        self._timeout = timeout
        self._http: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"Wire({self.url})"

    @property
    def url(self) -> str:
        """Return the address as `parse_address` takes it."""
        return f"unix:{self._address.socket}" if self._address.socket else self._address.base

    async def send(self, call: ClientCall[T], bearer: Secret | None) -> T:
        """Send the call and return its parsed answer.

        A repeatable call is repeated, a few times and within the deadline, after 408, 429, 502, 503, 504 and lost
        answers, as `Retry-After` says. A call that never left this machine is always repeated. Raises what `judge`
        raises, or `brokerUnreachable`.
        """
        deadline = self.clock.monotonic() + self._timeout + call.patience
        body, pauses = _written(call.body), iter(PAUSES)
        while True:
            reply, lost = await self._try(call, body, bearer, deadline - self.clock.monotonic())
            again = call.may_repeat(reply) if reply is not None else not lost.sent or call.repeatable
            pause = next(pauses, None) if again else None
            wait = None if pause is None else _wait(pause * self.clock.jitter(0.5, 1.5), reply)
            if wait is None or self.clock.monotonic() + wait >= deadline:
                break
            await self.clock.sleep(wait)
        if reply is not None:
            return call.judge(reply)
        raise BrokerError(Code.BROKER_UNREACHABLE, note=lost.note)

    async def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        http, self._http = self._http, None
        if http is not None and self._loop is asyncio.get_running_loop():
            await http.aclose()

    async def _try(
        self, call: ClientCall[Any], body: bytes | None, bearer: Secret | None, seconds: float
    ) -> tuple[Reply | None, _Flight]:
        """Try once. Without a reply, the flight has the reason; the libraries' errors are dropped."""
        flight = _Flight()
        try:
            async with asyncio.timeout(max(seconds, 0)):
                return await self._exchange(call, body, bearer, flight), flight
        except TimeoutError:
            flight.note = "no answer in time"
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as exc:
            flight.note = f"no answer ({type(exc).__name__})"
        return None, flight

    async def _exchange(
        self, call: ClientCall[Any], content: bytes | None, bearer: Secret | None, flight: _Flight
    ) -> Reply:
        headers = {"Accept-Encoding": "identity", "Accept": "application/json"}
        if (asked := call.locale or self.locale) is not None:
            headers["Accept-Language"] = asked
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer.reveal()}"
        if content is not None:
            headers["Content-Type"] = "application/json"
        async with self._client().stream(
            call.method,
            self._address.base + call.path,
            params=dict(call.query) or None,
            headers=headers,
            content=content,
            extensions={"trace": flight.trace},
        ) as response:
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise BrokerError(Code.BROKER_ANSWER_INVALID, note="the answer is too large")
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        return Reply(response.status_code, bytes(body), media_type, _seconds(response.headers.get("retry-after", "")))

    def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            socket = self._address.socket
            transport = httpx2.AsyncHTTPTransport(trust_env=False, limits=_LIMITS, uds=socket)
            self._loop = loop
            self._http = httpx2.AsyncClient(
                transport=transport,
                trust_env=False,
                follow_redirects=False,
                timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),  # the deadline for everything is in `_try`
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                headers={"User-Agent": "oauthbroker-client"},
            )
        return self._http


class OnWire:
    """A client whose connections close with its block."""

    __slots__ = ("_bearer", "_locale", "_wire")
    _wire: Wire
    _bearer: Secret | None
    _locale: Locale | None

    async def aclose(self) -> None:
        """Close the connections, which derived clients share."""
        await self._wire.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def _send(self, call: ClientCall[T]) -> T:
        return await self._wire.send(replace(call, locale=self._locale), self._bearer)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._wire!r})"


class _Flight:
    """Records whether the first byte of a request was sent, and why there is no answer."""

    __slots__ = ("note", "sent")

    def __init__(self) -> None:
        self.sent = False
        self.note = ""

    async def trace(self, event: str, _info: dict[str, Any]) -> None:
        if event.endswith("send_request_headers.started"):
            self.sent = True


def _wait(pause: float, reply: Reply | None) -> float:
    asked = reply.retry_after if reply is not None else None
    return pause if asked is None else max(pause, float(asked))


def _seconds(retry_after: str) -> int | None:
    """Parse the broker's Retry-After in seconds (RFC 9110 section 10.2.3). A date, sent by a proxy, is ignored."""
    if not (retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10):
        return None
    return min(int(retry_after), _MAX_WAIT)


def _written(body: Mapping[str, Any] | None) -> bytes | None:
    """Encode the body as JSON; reveals secrets. Raises `requestInvalid` for a value that JSON cannot express."""
    if body is None:
        return None
    said = {name: value.reveal() if isinstance(value, Secret) else value for name, value in body.items()}
    try:
        return json.dumps(said, ensure_ascii=False, allow_nan=False).encode()
    except Exception:  # noqa: BLE001, S110  (an argument whose own code raises)
        pass
    raise BrokerError(Code.REQUEST_INVALID, note="this cannot be written as JSON")
