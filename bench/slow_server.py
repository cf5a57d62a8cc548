"""A token endpoint and an API behind it, each as slow as it is told to be, over loopback.

`python -m bench.slow_server <seconds>` runs one until its standard input ends, and says its port first.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

ENDPOINT, API = "/token", "/mcp"


@dataclass
class SlowServer:
    """Each answer of the token endpoint is a new token, or 429 to more requests in a second than `per_second`; the API
    takes every token that it gave."""

    token_seconds: float
    api_seconds: float = 0.0
    port: int = 0
    per_second: int = 0  # 0: no limit
    refreshes: int = 0
    refused: int = 0
    last: deque[float] = field(default_factory=deque)  # when the requests of a second were taken
    given: set[str] = field(default_factory=set)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def give(self) -> str:
        token = f"token-{len(self.given)}-".ljust(900, "t")
        self.given.add(token)
        return token

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode("latin-1"):
                first, *lines = head.strip().split("\r\n")
                headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
                await reader.readexactly(int(headers.get("content-length", 0)))
                status, body = await self._answer(first.split(" ")[1], headers)
                said = json.dumps(body).encode()
                fields = f"Content-Type: application/json\r\nContent-Length: {len(said)}\r\nCache-Control: no-store"
                writer.write(f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n".encode() + said)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the caller has gone, or the run is over
        finally:
            writer.close()

    async def _answer(self, path: str, headers: Mapping[str, str]) -> tuple[str, dict[str, object]]:
        if path == ENDPOINT and not self._admits():
            self.refused += 1
            return "429 Too Many Requests", {"error": "temporarily_unavailable"}
        if path == ENDPOINT:
            self.refreshes += 1
            await asyncio.sleep(self.token_seconds)
            life = {"token_type": "Bearer", "expires_in": 3600, "refresh_token": f"r{self.refreshes}".ljust(200, "r")}
            return "200 OK", {"access_token": self.give(), **life}
        if path == API and headers.get("authorization", "").removeprefix("Bearer ") in self.given:
            await asyncio.sleep(self.api_seconds)
            return "200 OK", {}
        return ("401 Unauthorized" if path == API else "404 Not Found"), {}

    def _admits(self) -> bool:
        now = time.monotonic()
        while self.last and self.last[0] <= now - 1:
            self.last.popleft()
        if self.per_second and len(self.last) >= self.per_second:
            return False
        self.last.append(now)
        return True


@asynccontextmanager
async def slow_server(
    token_seconds: float, api_seconds: float = 0.0, *, per_second: int = 0
) -> AsyncIterator[SlowServer]:
    served = SlowServer(token_seconds, api_seconds, per_second=per_second)
    server = await asyncio.start_server(served._connection, "127.0.0.1", 0)  # noqa: SLF001
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()


async def main(seconds: str) -> None:
    async with slow_server(float(seconds)) as server:
        print(json.dumps({"port": server.port}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
