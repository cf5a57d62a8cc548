"""The terms of a listener's connections: deadlines and a limit, half of it per address, with a reserve for probes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any, Generic, Literal, TypeVar

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.core.errors import Code, Locale
from oauthbroker.observability.logging import Log
from oauthbroker.observability.metrics import Metric, Metrics, status_class
from oauthbroker.observability.sampled_lines import SampledLines
from oauthbroker.web.middleware.forwarded import Proxies

SPARE = 8  # connections from this machine beyond the limit, for probes only
TELL_SECONDS = 10.0
_PREFIX = 64  # bits of the IPv6 prefix that one client gets

T = TypeVar("T", bound=Hashable)
ConnectionSlot = Literal["whole", "probe", "none"]


class ConnectionSlots(Generic[T]):
    """The admitted connections of one listener. A refused connection that still gets its answer has no slot.

    One address may hold half of the slots, so that it cannot block the others. Listed proxies, which stand for many
    clients, and Unix sockets, which have no addresses, have no such limit.
    """

    def __init__(self, most: int, proxies: Proxies) -> None:
        self._most = most
        self._proxies = proxies
        self._whole: dict[T, str] = {}
        self._by_client: Counter[str] = Counter()
        self._probes: dict[T, None] = {}

    def take_slot(
        self, connection: T, address: str | None, *, gives_way: Callable[[T], bool]
    ) -> tuple[ConnectionSlot, T | None]:
        """Take a slot. Return it, and the probe that is evicted for it: the oldest one that gives way."""
        client = self._client(address)
        if len(self._whole) < self._most and (not client or self._by_client[client] < max(1, self._most // 2)):
            self._whole[connection] = client
            self._by_client[client] += 1
            return "whole", None
        if address is None or not _is_loopback(address):
            return "none", None
        loser = next(filter(gives_way, self._probes), None) if len(self._probes) >= SPARE else None
        if loser is not None:
            del self._probes[loser]
        if len(self._probes) >= SPARE:
            return "none", None
        self._probes[connection] = None
        return "probe", loser

    def free_slot(self, connection: T) -> None:
        """Free the slot. Idempotent; also for a connection without one."""
        self._probes.pop(connection, None)
        client = self._whole.pop(connection, None)
        if client is not None:
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]

    def _client(self, address: str | None) -> str:
        """Return the address to count; empty if it is not counted."""
        if address is None or self._proxies.lists(address):
            return ""
        at = _parsed(address)
        return str(IPv6Network((at, _PREFIX), strict=False)) if isinstance(at, IPv6Address) else str(at)


def _parsed(address: str) -> object:
    try:
        at = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return getattr(at, "ipv4_mapped", None) or at


def _is_loopback(address: str) -> bool:
    return bool(getattr(_parsed(address), "is_loopback", False))


@dataclass(slots=True)
class Terms:
    """The terms of one listener's connections. Times in seconds; `connections` at once, half of them from one
    address unless it is one of `proxies`. `base`: the path of `publicBaseUrl`. `draining`: each connection takes one
    more request at most. `over`: none is served any longer."""

    log: Log
    _: KW_ONLY
    locale: Locale = "en"
    connections: int = 1_000
    header_seconds: float = 10.0
    write_seconds: float = 60.0
    proxies: Proxies = field(default_factory=Proxies)
    base: str = ""
    slots: ConnectionSlots[Any] = field(init=False)
    lingering: int = field(default=0, init=False)
    draining: bool = field(default=False, init=False)
    over: bool = field(default=False, init=False)
    metrics: Metrics | None = None
    _sampled: SampledLines = field(init=False)
    _turned_away: int = field(default=0, init=False)
    _logged_at: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self.slots, self._sampled = ConnectionSlots(self.connections, self.proxies), SampledLines(self.log)

    def refused(self, now: float, *, status: int, code: Code, note: str) -> None:
        """Count a request that was refused before it had a route. The first ones of a kind in a minute are logged."""
        if self.metrics is not None:
            self.metrics.add(Metric.HTTP_REQUESTS, "-", "other", status_class(status))
        if self._sampled.admits((("status", status), ("code", code.value)), now):
            self.log.info("request", route="-", method="-", status=status, code=code.value, note=note)

    def turn_away(self, now: float) -> None:
        """Count a refused connection. Logged once in a while, with the number."""
        self._turned_away += 1
        if now - self._logged_at >= TELL_SECONDS:
            self.log.warning("too many connections", limit=self.connections, refused=self._turned_away)
            self._logged_at, self._turned_away = now, 0
