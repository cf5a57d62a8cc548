"""A serving process: the garbage collector's full passes leave out the objects of its start."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.serving.listeners import Listeners
from oauthbroker.workers import worker

LONGEST = 0.005
MEASURE = """
import gc, time
import oauthbroker.web.app, oauthbroker.wiring
from oauthbroker.serving.event_loop import spare_the_start
spare_the_start()
def taken():
    began = time.thread_time()
    gc.collect()
    return time.thread_time() - began
print(gc.get_freeze_count(), min(taken() for _ in range(3)))
"""


def test_a_full_pass_after_the_start_takes_no_time() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, timeout=60)
    frozen, seconds = done.stdout.split()
    assert int(frozen) > 20_000
    assert float(seconds) < LONGEST


async def test_a_worker_spares_its_start_before_it_says_that_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()

    @asynccontextmanager
    async def block(*_: Any, **__: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(life=SimpleNamespace(stop=lambda: None))

    def serving() -> None:
        said.append("serving")
        task.cancel()

    for name in ("open_broker", "broker_served", "_reloading"):
        monkeypatch.setattr(worker, name, block)
    for name in ("on_signals", "calm_libraries"):
        monkeypatch.setattr(worker, name, lambda *_: nullcontext())
    for name in ("_raise_descriptor_limit", "_say_serving", "len"):
        monkeypatch.setattr(worker, name, lambda *_: 0, raising=False)
    monkeypatch.setattr(gc, "freeze", lambda: said.append("spared"))
    log = cast("Any", SimpleNamespace())
    task = asyncio.ensure_future(
        worker.serve(Path("oauthbroker.yaml"), Listeners(()), SystemClock(), log, on_serving=serving)
    )
    with suppress(asyncio.CancelledError):
        await task
    assert ["spared", "serving"] == said
