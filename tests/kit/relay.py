"""`relay.py FROM TO`: pass on connections. Each end is a port on 127.0.0.1, or the path of a Unix socket."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()


async def serve(source: str, target: str) -> None:
    """Serve until standard input ends."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if target.isdigit():
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(target))
            else:
                far_reader, far_writer = await asyncio.open_unix_connection(target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_carry(reader, far_writer), _carry(far_reader, writer))

    if source.isdigit():
        server = await asyncio.start_server(connected, "127.0.0.1", int(source), backlog=1024)
    else:
        server = await asyncio.start_unix_server(connected, source, backlog=1024)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, ended.set)
    async with server:
        os.write(1, b"up\n")
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:3]))
    os._exit(0)
