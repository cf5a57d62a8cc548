"""The MCP SDK's client provider before a slow API: python -m bench.peers.slow <url of the API> <url of the tokens>."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Any

import httpx2
from mcp.shared.auth import OAuthToken

from bench.answering import Answer, answer
from bench.peers.peers import Stored, mcp_client, mcp_provider


def stored(access: str) -> Stored:
    token = OAuthToken(access_token=access, token_type="Bearer", expires_in=3600, refresh_token="r" * 200)
    return Stored(token, mcp_client())


class Measured:
    def __init__(self, api: str) -> None:
        self._api = api

    async def made(self, _request: Mapping[str, Any]) -> Answer:
        mcp_provider(self._api, stored(""))
        return {}

    async def calls(self, request: Mapping[str, Any]) -> Answer:
        """Call in parallel as in a process that has had its token for long: it knows when that token ends."""
        provider = mcp_provider(self._api, stored(request["token"]))
        await provider._initialize()  # noqa: SLF001  (its own way leaves out the end of a stored token)
        provider.context.token_expiry_time = time.time() + request["life"]
        return await self._timed(provider, request["count"])

    async def restarted(self, request: Mapping[str, Any]) -> Answer:
        """Call once in a new process, whose stored token the API no longer takes."""
        return await self._timed(mcp_provider(self._api, stored(request["token"])), 1)

    async def _timed(self, provider: Any, count: int) -> Answer:
        async with httpx2.AsyncClient(auth=provider, timeout=60) as client:
            began = time.perf_counter()
            answers = await asyncio.gather(*(client.post(self._api) for _ in range(count)))
            taken = time.perf_counter() - began
        for each in answers:
            each.raise_for_status()
        return {"seconds": taken}


async def main(api: str) -> None:
    measured = Measured(api)
    await answer({"make": measured.made, "calls": measured.calls, "restarted": measured.restarted})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
