"""Our own access log: the route, the status and the time of each request; never a path, a query or a header.

Servers log the request line, and ours would carry tickets and codes; so theirs is off (`uvicorn_options`).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from oauthbroker.core.clock import Clock, random_text
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError
from oauthbroker.observability.logging import Log
from oauthbroker.observability.metrics import Metric, Metrics, status_class
from oauthbroker.observability.sampled_lines import SampledLines
from oauthbroker.web.middleware.exchange import EXCHANGE

ID_BITS, ID_LENGTH = 96, 16
IDS_AT_ONCE = 64
_REFUSED = 400
_NOT: Mapping[str, str] = {}


@dataclass(slots=True)
class Begun:
    """A request under way: its id, and when it began."""

    id: str
    at: float


class RequestLog:
    """Counts each request, and writes a line for it. Lines that a stranger can cause are sampled: refusals, and answers
    to requests without credentials."""

    __slots__ = ("_clock", "_ids", "_info", "_metrics", "_sampled")

    def __init__(self, clock: Clock, log: Log, metrics: Metrics) -> None:
        self._clock, self._metrics, self._info, self._sampled = clock, metrics, log.info, SampledLines(log)
        self._ids: list[str] = []

    def begin_request(self) -> Begun:
        if not self._ids:
            drawn = random_text(self._clock, IDS_AT_ONCE * ID_BITS)
            self._ids = [drawn[at : at + ID_LENGTH] for at in range(0, len(drawn), ID_LENGTH)]
        return Begun(self._ids.pop(), self._clock.monotonic())

    def end_request(
        self,
        begun: Begun,
        route: str,
        method: str,
        status: int,
        refused: Mapping[str, str] = _NOT,
        *,
        known: bool = True,
    ) -> None:
        """Write the line. `status` is 0 if the client had left before an answer. `known`: it had credentials."""
        self._metrics.count((Metric.HTTP_REQUESTS, (route, method, status_class(status))))
        if not (known and 0 < status < _REFUSED):
            about = ("code", refused.get("code", "")) if status >= _REFUSED else ("route", route)
            kind = (("status", status), about, ("known", known))
            if not self._sampled.admits(kind, self._clock.monotonic()):
                return
        self._info(
            "request",
            route=route,
            method=method,
            status=status,
            duration_ms=round((self._clock.monotonic() - begun.at) * 1000, 1),
            request_id=begun.id,
            **refused,
        )


def request_id(scope: MutableMapping[str, Any]) -> str:
    """Return the id that the gate gave this request; empty without it."""
    exchange = scope.get(EXCHANGE)
    return "" if exchange is None else str(exchange.id)


def note_refusal(scope: MutableMapping[str, Any], error: BrokerError) -> None:
    """Note the code of a refusal for the request's line, and our own words for the operator. Nothing of the request."""
    exchange = scope.get(EXCHANGE)
    if exchange is not None:
        exchange.refused = {"code": error.code.value, **({"note": error.note} if error.note else {})}


def note_known(scope: MutableMapping[str, Any]) -> None:
    """Note that a request has good credentials, so that the line of its success is always written."""
    exchange = scope.get(EXCHANGE)
    if exchange is not None:
        exchange.is_known = True


def route_template(scope: MutableMapping[str, Any]) -> str:
    """`/connect/{ticket}` as declared, `-` where nothing matched: what people typed is never repeated."""
    return str(getattr(scope.get("route"), "path", "-"))


def uvicorn_options() -> dict[str, Any]:
    """Return the keyword arguments for `uvicorn.Config` that the pages rely on.

    `log_level` is given on purpose: left out, a root logger below DEBUG makes uvicorn trace whole requests.
    `proxy_headers` off: X-Forwarded-* is what a client says about itself.
    """
    return {
        "access_log": False,
        "log_config": None,
        "log_level": "info",
        "proxy_headers": False,
        "server_header": False,
        "http": "h11",
        "ws": "none",
        "h11_max_incomplete_event_size": 32 * 1024,
    }
