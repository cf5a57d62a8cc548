"""A broker's API that answers as a test scripts it, over real sockets: for what a good broker never does."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from oauthbroker.client import Options
from oauthbroker.testing import TestClock

TURN_TOKEN = "oabt." + "l" * 22 + "." + "s" * 43
KEY = "oabk." + "i" * 22 + "." + "s" * 43
ASK = {"oauthAppRef": {"kind": "OAuthApp", "name": "mail"}}
READY = {"status": "ready", "accessToken": "at-1", "tokenType": "bearer", "scopes": ["read"]}


@dataclass
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class FakeBroker:
    """Answers the next request with the next of `answers`, the last one for ever. None: closes without a word."""

    url: str = ""
    answers: list[bytes | Answer | None] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    connections: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while (request := await _read(reader)) is not None:
                self.asked.append(request)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if answer is None:
                    break
                if callable(answer):
                    await answer(writer)
                    break
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # who asked has left, or the test has ended
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    first, *lines = head.decode("latin-1").split("\r\n")
    if not first:
        return None
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ")
    return Asked(method, path, headers, json.loads(body) if body else None)


def says(status: int, body: Any = None, *, media: str = "application/json", **headers: str) -> bytes:
    """An answer; bytes are its body as they are."""
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(content)}", f"content-type: {media}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


def refuses(status: int, code: str, **headers: str) -> bytes:
    """A problem as the broker writes it (RFC 9457)."""
    body = {"type": "about:blank", "title": "x", "status": status, "code": code}
    return says(status, body, media="application/problem+json", **headers)


@asynccontextmanager
async def fake_broker(
    *answers: bytes | Answer | None, socket: str = "", tls: ssl.SSLContext | None = None
) -> AsyncIterator[FakeBroker]:
    fake = FakeBroker(answers=list(answers))
    if socket:
        server = await asyncio.start_unix_server(fake.serve, socket)
        fake.url = f"unix:{socket}"
    else:
        server = await asyncio.start_server(fake.serve, "127.0.0.1", 0, ssl=tls)
        fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.close()


def patient(seconds: float = 30, **more: Any) -> Options:
    """Pauses between tries take no time."""
    return Options(timeout=seconds, clock=TestClock(), **more)
