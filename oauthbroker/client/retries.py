"""The client's calls on a network: one deadline for all tries of a call, and the pauses between them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

from oauthbroker.client.address import Address
from oauthbroker.client.client_call import ClientCall, Reply
from oauthbroker.client.transport import ClientTransport, Request, Sending
from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.core.secret import Secret
from oauthbroker.core.version import VERSION
from oauthbroker.model.token_request import WrongArgument

T = TypeVar("T")
AGENT = f"oauthbroker-client/{VERSION}"
PAUSES = (0.1, 0.4, 1.6)  # seconds between the tries of a call, with a jitter of half either way


class BrokerAway(BrokerError):
    """`brokerUnreachable` that names the address, which holds no secret: a wrong one is the usual cause."""

    def __init__(self, address: str, note: str = "") -> None:
        super().__init__(Code.BROKER_UNREACHABLE, note=note)
        self.address = address

    def message(self, locale: Locale = "en") -> str:
        return f"{super().message(locale)} ({self.address})"


class Wire:
    """Sends calls over a transport, which opens connections as they are needed.

    Redirects are not followed, the environment (proxies, certificates) is not consulted, cookies are not stored.
    """

    def __init__(
        self, address: Address, transport: ClientTransport, *, timeout: float, locale: Locale | None, clock: Clock
    ) -> None:
        self.locale = locale
        self.clock = clock
        self.transport = transport
        self.timeout = timeout
        self._address = address

    def __repr__(self) -> str:
        return f"Wire({self.url})"

    @property
    def url(self) -> str:
        """Return the address as `parse_address` takes it."""
        return f"unix:{self._address.socket}" if self._address.socket else self._address.base

    @property
    def base(self) -> str:
        """Return the address of a request's target."""
        return self._address.base

    async def send(self, call: ClientCall[T], bearer: Secret | None) -> T:
        """Send the call and return its parsed answer.

        A repeatable call is repeated, a few times and within the deadline, after 408, 429, 502, 503, 504 and lost
        answers, as `Retry-After` says. A call that never left this machine is always repeated. Raises what `validate`
        raises, or `brokerUnreachable`.
        """
        deadline = self.clock.monotonic() + self.timeout + call.patience
        request, pauses = self._request(call, bearer), iter(PAUSES)
        while True:
            sending = Sending()
            reply = await self.transport.exchange(request, deadline - self.clock.monotonic(), sending)
            again = call.may_repeat(reply) if reply is not None else not sending.sent or call.repeatable
            pause = next(pauses, None) if again else None
            wait = None if pause is None else pause_of(pause * self.clock.jitter(0.5, 1.5), reply)
            if wait is None or self.clock.monotonic() + wait >= deadline:
                break
            await self.clock.sleep(wait)
        if reply is not None:
            return call.validate(reply)
        raise BrokerAway(self.url, sending.note)

    async def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        await self.transport.close()

    def _request(self, call: ClientCall[Any], bearer: Secret | None) -> Request:
        headers = {"User-Agent": AGENT, "Accept-Encoding": "identity", "Accept": "application/json"}
        if (asked := call.locale or self.locale) is not None:
            headers["Accept-Language"] = asked
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer.reveal()}"
        body = call.content if call.content is not None or call.body is None else written(call.body)
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        if call.headers:
            named = {name.lower() for name in call.headers}
            headers = {name: value for name, value in headers.items() if name.lower() not in named} | {**call.headers}
        query = f"?{urlencode(call.query, errors='replace')}" if call.query else ""
        return Request(method=call.method, target=call.path + query, headers=headers, body=body)


ClientParts = tuple[Wire, Secret, Locale, str, Sequence[str] | None]  # the network, turn token, language, app, scopes


class OnWire:
    """A client whose connections close with its block."""

    __slots__ = ("_bearer", "_locale", "_wire")
    _wire: Wire
    _bearer: Secret | None
    _locale: Locale | None

    @classmethod
    def _on(cls, wire: Wire, bearer: Secret | None, locale: Locale | None = None) -> Self:
        """Create a client that shares the connections of another one."""
        made = cls.__new__(cls)
        made._wire, made._bearer, made._locale = wire, bearer, locale  # noqa: SLF001
        return made

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


def pause_of(pause: float, reply: Reply | None) -> float:
    """Return the seconds until the next try, as `Retry-After` says."""
    asked = reply.retry_after if reply is not None else None
    return pause if asked is None else max(pause, float(asked))


def written(body: Mapping[str, Any]) -> bytes:
    """Encode the body as JSON; reveals secrets. Raises `requestInvalid` for a value that JSON cannot express."""
    said = {name: value.reveal() if isinstance(value, Secret) else value for name, value in body.items()}
    try:
        return json.dumps(said, ensure_ascii=False, allow_nan=False).encode()
    except Exception:  # noqa: BLE001, S110  (an argument whose own code raises)
        pass
    raise WrongArgument("notJson")
