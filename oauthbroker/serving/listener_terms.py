"""The terms of one listener's connections: limits and deadlines."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from oauthbroker.core.errors import Locale
from oauthbroker.observability.logging import Log
from oauthbroker.serving.connection_seats import Seats
from oauthbroker.web.forwarded import Proxies

TELL_SECONDS = 10.0


@dataclass(slots=True)
class Terms:
    """The terms of one listener's connections. Times in seconds; `connections` at once, half of them from one
    address unless it is one of `proxies`. `over`: it accepts no connection any longer."""

    log: Log
    _: KW_ONLY
    locale: Locale = "en"
    connections: int = 1_000
    header_seconds: float = 10.0
    write_seconds: float = 60.0
    proxies: Proxies = field(default_factory=Proxies)
    seats: Seats[Any] = field(init=False)
    lingering: int = field(default=0, init=False)
    over: bool = field(default=False, init=False)
    _turned_away: int = field(default=0, init=False)
    _told_at: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self.seats = Seats(self.connections, self.proxies)

    def turn_away(self, now: float) -> None:
        """Count a refused connection. Logged once in a while, with the number."""
        self._turned_away += 1
        if now - self._told_at >= TELL_SECONDS:
            self.log.warning("too many connections", limit=self.connections, refused=self._turned_away)
            self._told_at, self._turned_away = now, 0
