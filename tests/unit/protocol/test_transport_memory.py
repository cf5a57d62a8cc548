"""Bodies meant to fill the memory, against a real socket, measured from outside in a process of their own."""

from __future__ import annotations

import asyncio
import sys
import zlib

import pytest

from tests.unit.protocol.kit import RawServer, raw_answer

BOMB_SIZE = 300_000_000
GROWTH_LIMIT_KB = 20 * 1024

CLIENT = """
import asyncio, re, sys
from oauthbroker.protocol.messages import ProviderRequest
from oauthbroker.protocol.network.transport import Transport, TransportFailed

def peak_kb():  # of this process alone: ru_maxrss survives an exec and would show the parent's
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

async def main(base):
    transport = Transport(plain_http_loopback=True)
    async def get(path):
        try:
            answer = await transport.send(ProviderRequest("GET", base + path), seconds=10, max_bytes=256 * 1024)
        except TransportFailed as error:
            return error.note
        return str(len(answer.body))
    notes = [await get("/small")]
    before = peak_kb()
    notes += [await get(path) for path in sys.argv[2:]]
    print(peak_kb() - before, *notes, sep="|")
    await transport.close()

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def bomb() -> bytes:
    block = b"0" * 10_000_000
    packer = zlib.compressobj(9, wbits=31)  # gzip framing
    return b"".join([*(packer.compress(block) for _ in range(BOMB_SIZE // len(block))), packer.flush()])


@pytest.mark.slow
@pytest.mark.case("24")
async def test_a_gigabyte_a_gzip_bomb_and_endless_chunks_cost_less_than_20_mb(bomb):
    assert len(bomb) < 400_000

    async def handler(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = server.requests[-1].split(b" ")[1]
        if path == b"/small":
            writer.write(raw_answer(200, b"x" * 200_000))
        elif path == b"/bomb":
            writer.write(raw_answer(200, bomb, content_encoding="gzip"))
        elif path == b"/gigabyte":
            writer.write(raw_answer(200, b"", content_length="1000000000"))
        else:
            writer.write(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
        await writer.drain()
        while path in {b"/gigabyte", b"/chunks"}:
            writer.write(b"0" * 65536 if path == b"/gigabyte" else b"10000\r\n" + b"0" * 65536 + b"\r\n")
            await writer.drain()

    server = RawServer(handler)
    async with server:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, server.url, "/bomb", "/gigabyte", "/chunks", stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await asyncio.wait_for(child.communicate(), 30)
    growth, small, *others = printed.decode().strip().split("|")
    assert ("200000", ["the answer is too large"] * 3) == (small, others)
    assert int(growth) < GROWTH_LIMIT_KB
