"""The one thread whose event loop sends for all sync clients of this process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from oauthbroker.core.sync_bridge import wait_on

T = TypeVar("T")


@dataclass(slots=True)
class _Worker:
    """The shared loop thread. `process`: a forked child has the object and not the thread."""

    loop: asyncio.AbstractEventLoop
    process: int


_lock = threading.Lock()
_worker: _Worker | None = None


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine and return its result. It has its own deadline; Ctrl-C in the caller's thread cancels it."""
    return wait_on(_loop(), coroutine, None)


def _loop() -> asyncio.AbstractEventLoop:
    global _worker  # noqa: PLW0603  (one thread for the process, started by the first caller)
    with _lock:
        if _worker is None or _worker.process != os.getpid():
            loop = asyncio.new_event_loop()
            started = threading.Event()
            loop.call_soon(started.set)
            threading.Thread(target=loop.run_forever, name="oauthbroker-client", daemon=True).start()
            started.wait()
            _worker = _Worker(loop, os.getpid())
        return _worker.loop


def _after_fork() -> None:
    global _lock  # noqa: PLW0603  (another thread of the parent may have held it)
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
