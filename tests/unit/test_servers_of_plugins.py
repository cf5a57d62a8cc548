"""The plug-ins' HTTP servers leave signals to the command: uvicorn's own would end it before its broker is closed."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from oauthbroker.mcp import serving
from oauthbroker.tools import commands


async def test_the_pages_of_a_gateway_are_served_without_handlers_of_signals() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with serving._server(lambda: None).capture_signals():
        assert before == signal.getsignal(signal.SIGTERM)


async def test_the_api_of_the_orchestrators_agents_is_served_without_handlers_of_signals() -> None:
    before = signal.getsignal(signal.SIGTERM)
    broker: Any = SimpleNamespace(bundle=SimpleNamespace(settings=SimpleNamespace(public_base_url="http://broker")))
    async with asyncio.timeout(10), commands._api(broker) as address:
        while not Path(address.removeprefix("unix:")).exists():
            await asyncio.sleep(0.01)
        assert before == signal.getsignal(signal.SIGTERM)
