"""The signals of a serving process and of a parent of several. A parent loads no server for them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

from oauthbroker.serving.hardening import ORPHANED

ENDS = (signal.SIGTERM, signal.SIGINT)
AGAIN = signal.SIGHUP


@contextlib.contextmanager
def on_signals(
    end: Callable[[], object],
    again: Callable[[], object] | None = None,
    orphaned: Callable[[], object] | None = None,
) -> Iterator[None]:
    """Call `end` in the running loop on SIGTERM and SIGINT, `again` on SIGHUP, and `orphaned` on the parent's death,
    instead of the default actions."""
    loop = asyncio.get_running_loop()
    named = {**dict.fromkeys(ENDS, end), AGAIN: again, ORPHANED: orphaned}
    reactions = {each: react for each, react in named.items() if react is not None}
    for each, react in reactions.items():
        loop.add_signal_handler(each, react)
    try:
        yield
    finally:
        for each in reactions:
            loop.remove_signal_handler(each)
