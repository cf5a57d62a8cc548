"""From a thread that has no event loop to a coroutine on one: how the sync faces wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from oauthbroker.core.errors import BrokerError, Code

T = TypeVar("T")


def wait_on(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], timeout: float) -> T:
    """Run the coroutine on `loop` and wait here, for at most `timeout` seconds; then it is cancelled.

    A loop that stands still between two `run_until_complete` has not ended: it does the work when it goes on.

    Raises what the coroutine raises, `brokerUnreachable` when the time is over or the loop is closed, and RuntimeError
    on the loop's own thread, which would wait for itself.
    """
    if _is_here(loop):
        coroutine.close()
        raise RuntimeError("the sync face was called on the event loop's own thread: await the async one there")
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError:  # it is closed
        coroutine.close()
        raise BrokerError(Code.BROKER_UNREACHABLE, note="its event loop has ended") from None
    return _result(future, timeout)


def _result(future: Future[T], timeout: float) -> T:
    note = "its event loop has ended"
    try:
        return future.result(timeout)
    except CancelledError:
        pass
    except TimeoutError:
        if future.done() and not future.cancelled():
            return future.result()  # it came at the last moment, or the error is the coroutine's own
        note = "no answer in time"
    finally:
        future.cancel()  # ours to take back, also when Ctrl-C ended the waiting
    raise BrokerError(Code.BROKER_UNREACHABLE, note=note)


def _is_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
