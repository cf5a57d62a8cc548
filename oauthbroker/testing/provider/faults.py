"""Invalid and slow answers: silence, trickles, floods, cuts, bombs, arbitrary bytes."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Awaitable, Callable
from functools import cache

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.testing.provider.http import Answer, Reply, Wire

Work = Callable[[], Answer]
"""An endpoint's honest work, and its answer."""
Step = Callable[[Work], Awaitable[Reply]]
"""The handling of one request."""


class Hold:
    """A request that is kept waiting. Usable from another thread than the provider's."""

    def __init__(self) -> None:
        self._arrived, self._released = threading.Event(), threading.Event()

    def release(self) -> None:
        """Release the request, and later ones that wait here, to an honest answer."""
        self._released.set()

    async def arrived(self, timeout: float = 5.0) -> None:
        """Return once a request waits here. Raises TimeoutError after `timeout` seconds or more."""
        await wait_until(self._arrived.is_set, timeout)

    async def wait(self) -> None:
        """Report the request and wait for `release`. Called by the provider."""
        self._arrived.set()
        while not self._released.is_set():
            await asyncio.sleep(0.002)


async def wait_until(claim: Callable[[], bool], timeout: float = 5.0) -> None:
    """Return once `claim()` is true, asked every 2 ms. Raises TimeoutError after so many looks as `timeout` seconds
    have room for: a machine that is busy or stands still takes none of them away."""
    for _ in range(round(timeout / 0.002) + 1):
        if claim():
            return
        await asyncio.sleep(0.002)
    raise TimeoutError(f"not true within {timeout} s")


@dataclass(frozen=True, slots=True)
class Drip:
    """Sends bytes one by one. The headers come at once unless they drip too."""

    answer: Answer
    bytes_per_second: float
    headers_too: bool = False

    async def send(self, wire: Wire) -> None:
        head, body = self.answer.head(), b"" if wire.is_head else self.answer.body
        at_once, slowly = (b"", head + body) if self.headers_too else (head, body)
        await wire.write(at_once)
        for byte in slowly:
            await wire.write(bytes([byte]))
            await asyncio.sleep(1 / self.bytes_per_second)


@dataclass(frozen=True, slots=True)
class Raw:
    """Sends exactly these bytes, then closes the connection."""

    data: bytes = field(repr=False)

    async def send(self, wire: Wire) -> None:
        await wire.write(self.data)


@dataclass(frozen=True, slots=True)
class Cut:
    """Sends no answer: the connection ends, orderly or by a reset."""

    reset: bool = False

    async def send(self, wire: Wire) -> None:
        if self.reset:
            wire.reset()


@dataclass(frozen=True, slots=True)
class Endless:
    """Sends a body that never ends, as fast as it is read: chunked, or with a Content-Length of a petabyte."""

    chunked: bool = True

    async def send(self, wire: Wire) -> None:
        framing = "transfer-encoding: chunked" if self.chunked else f"content-length: {10**15}"
        await wire.write(f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{framing}\r\n\r\n".encode())
        block = b" " * 65536
        piece = b"10000\r\n" + block + b"\r\n" if self.chunked else block
        while True:
            await wire.write(piece)


@cache
def gzip_bomb(megabytes: int) -> Answer:
    """Build a JSON answer of a few kilobytes that unpacks to `megabytes` of blanks before its document."""
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(b" " * (1 << 20)) for _ in range(megabytes))
    packed += packer.compress(b'{"access_token": "boom", "token_type": "bearer"}') + packer.flush()
    return Answer(200, (("content-type", "application/json"), ("content-encoding", "gzip")), packed)
