"""A small HTTP proxy: CONNECT, Basic credentials, its own list of where names and addresses lead, and a log."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Mapping

from tests.unit.protocol.kit import RawServer


class ConnectProxy(RawServer):
    """Tunnels to the ports on 127.0.0.1 that `leads` names by `host:port`; 502 for others. `asked` are the targets in
    their order. With `says` each request gets these bytes instead."""

    def __init__(
        self,
        leads: Mapping[str, int],
        *,
        credentials: str = "",
        tls: ssl.SSLContext | None = None,
        says: bytes = b"",
    ) -> None:
        super().__init__(self._answer, tls)
        self._leads, self._credentials, self._says = leads, credentials, says
        self.asked: list[str] = []

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = self.requests[-1]
        method, target, _ = head.decode("latin-1").split(" ", 2)
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
                await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))
            finally:
                far_writer.close()
        await writer.drain()


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction of a tunnel to its end."""
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
