"""The port between the client's calls and a network: one request out, one answer in."""

from __future__ import annotations

from typing import Protocol

from oauthbroker.client.client_call import Reply
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code

CONNECT_SECONDS = 5.0
MAX_BYTES = 4 * 1024 * 1024  # the longest answer: a page of a thousand grants needs a tenth of it
# The broker closes idle connections after five seconds. Close them earlier, so that no request meets a closing one.
IDLE_SECONDS = 2.0
MAX_IDLE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request. `target`: path and query below the broker's address."""

    method: str
    target: str
    headers: dict[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        return [(name.encode("ascii"), value.encode("latin-1")) for name, value in self.headers.items()]


@dataclass(slots=True)
class Sending:
    """One try of a request. `sent`: its first byte has left; `note`: why there is no answer."""

    sent: bool = False
    note: str = ""


class ClientTransport(Protocol):
    """Sends requests. The async client's waits on its event loop, and the sync client's blocks the thread."""

    async def exchange(self, request: Request, seconds: float, sending: Sending) -> Reply | None:
        """Send the request and return its answer within `seconds`. None: `sending` has the reason. Raises
        `brokerAnswerInvalid` for an answer longer than MAX_BYTES. The errors of its libraries are dropped."""
        ...

    async def close(self) -> None: ...


def check_length(body: bytearray) -> None:
    """Check the part of an answer that has arrived. Raises `brokerAnswerInvalid` if it is too long already."""
    if len(body) > MAX_BYTES:
        raise BrokerError(Code.BROKER_ANSWER_INVALID, note="the answer is too large")
