"""A small HTTP proxy: CONNECT, Basic credentials, its own list of where names and addresses lead, and a log."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Mapping
from typing import Self


class ConnectProxy:
    """Tunnels to the ports on 127.0.0.1 that `leads` names by `host:port`; 502 for others. `asked` are the targets in
    their order, `heads` the whole requests. With `says` each request gets these bytes instead."""

    def __init__(
        self,
        leads: Mapping[str, int],
        *,
        credentials: str = "",
        tls: ssl.SSLContext | None = None,
        says: bytes = b"",
    ) -> None:
        self._leads, self._credentials, self._tls, self._says = leads, credentials, tls, says
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.asked: list[str] = []
        self.heads: list[bytes] = []
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._answer(reader, writer, await reader.readuntil(b"\r\n\r\n"))
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        method, target, _ = head.decode("latin-1").split(" ", 2)
        self.heads.append(head)
        self.asked.append(target)
        port, known = self._leads.get(target), base64.b64encode(self._credentials.encode())
        if self._says or method != "CONNECT":
            writer.write(self._says or b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
        elif self._credentials and b"\r\nProxy-Authorization: Basic " + known + b"\r\n" not in head:
            writer.write(b"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n")
        elif port is None:
            writer.write(b"HTTP/1.1 502 Where\r\nContent-Length: 0\r\n\r\n")
        else:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n")
            try:
                await asyncio.gather(_carry(reader, far_writer), _carry(far_reader, writer))
            finally:
                far_writer.close()
        await writer.drain()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()
