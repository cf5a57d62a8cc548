"""Run each test of this folder on asyncio's own loop, and on uvloop, which `oauthbroker serve` prefers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import uvloop

LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return LOOPS
