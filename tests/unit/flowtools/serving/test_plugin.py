"""The plug-in's background work: it goes on after what stopped it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.running.resuming import doing
from oauthbroker.flowtools.serving import plugin

pytestmark = pytest.mark.rule("run-serves")


async def test_runs_go_on_once_the_events_of_the_plugin_are_no_longer_forwarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries, resumes = 0, asyncio.Event()

    @asynccontextmanager
    async def resuming(*_: Any, **__: Any) -> AsyncIterator[None]:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise BrokerError(Code.AGENT_FORWARDED)
        resumes.set()
        yield

    monkeypatch.setattr(plugin, "resuming", resuming)
    monkeypatch.setattr(plugin, "LOOK_SECONDS", 0.0)
    ready = asyncio.Event()
    ready.set()
    service: Any = SimpleNamespace(ready=ready, runs=None, flow_of=None, pool=None)
    async with doing(plugin._go_on(SimpleNamespace(), service)):  # type: ignore[arg-type]
        await asyncio.wait_for(resumes.wait(), 10)
