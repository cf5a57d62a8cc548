"""Remember the request heads of one listener that the parser has accepted, and what the application made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Coroutine
from typing import Any

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.web.api.warm_tokens import ROUTE, Headers, WarmHead, WarmTokens

LONGEST = 6 * 1024  # bytes of a head that is remembered: a turn token of full length fits
MOST = 10_000
_LINE, _END = f"POST {ROUTE} HTTP/1.1\r\n".encode(), b"\r\n\r\n"


class KnownHeads:
    """The heads of requests that `WarmTokens` may answer, by their digest, so that no token is kept.

    The meaning of a head follows from its bytes alone. A request whose head has the same bytes as one that was checked
    and parsed before needs neither again.
    """

    def __init__(self, warm: WarmTokens | None) -> None:
        self._warm = warm
        self._heads = Bounded[bytes, WarmHead](MOST)
        self._default: Headers | None = None
        self._lines = b""

    def answer(self, received: bytes, default: Headers) -> bytes | None:
        """Return the whole answer to exactly one request that is here completely, with the `default` headers. None if
        it has to be read and handled like any other."""
        head, end = self._found(received)
        if self._warm is None or head is None or len(received) != end + head.length:
            return None
        answer = self._warm.answer(head, received[end:])
        return None if answer is None else self._status_and(default) + answer

    def question(self, received: bytes, default: Headers) -> Coroutine[Any, Any, bytes | None] | None:
        """Return what asks the store for the answer to such a request. None if that need not be asked."""
        head, end = self._found(received)
        if self._warm is None or head is None or len(received) != end + head.length:
            return None
        asking = self._warm.question(head, received[end:])
        return None if asking is None else self._asked(asking, default)

    async def _asked(self, asking: Coroutine[Any, Any, bytes | None], default: Headers) -> bytes | None:
        answer = await asking
        return None if answer is None else self._status_and(default) + answer

    def lacks_body(self, received: bytes) -> bool:
        """Tell whether this is a known head, and less than its body."""
        head, end = self._found(received)
        return head is not None and len(received) < end + head.length

    def _found(self, received: bytes) -> tuple[WarmHead | None, int]:
        """Return the known head at the start, and its length."""
        end = received.find(_END, 0, LONGEST) + len(_END)
        return (self._heads.get(_digest(received[:end])) if end >= len(_END) else None), end

    def learn(self, head: bytes, headers: Headers, *, check_host: bool) -> None:
        """Remember a head that was answered, if `WarmTokens` may answer it the next time. `headers`: its own."""
        if self._warm is None or len(head) > LONGEST or not head.startswith(_LINE):
            return
        known = self._warm.head(headers, check_host=check_host)
        if known is not None:
            self._heads.keep(_digest(head), known)

    def _status_and(self, default: Headers) -> bytes:
        """Return the status line with the default headers. The server replaces its default headers once a second."""
        if default is not self._default:
            self._default = default
            self._lines = b"HTTP/1.1 200 OK\r\n" + b"".join(b"%b: %b\r\n" % pair for pair in default)
        return self._lines


def _digest(head: bytes) -> bytes:
    return hashlib.sha256(head).digest()
