"""The place of a broker or a store: the process and the event loop that opened it may use it, until it is closed."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from oauthbroker.core.errors import BrokerError, Code

running_loop: Final = asyncio._get_running_loop  # noqa: SLF001  (None in a thread, where the public one raises)
"""Return the event loop that runs here, or None."""
CLOSED: Final = "The broker or its store is closed here. Use it within the block of `open_broker`."
FORKED: Final = (
    "The broker was opened before a fork, which it does not survive. Open one in this process, or use a `SyncRuntime`,"
    " which works in threads and after a fork."
)
OTHER_LOOP: Final = (
    "The broker belongs to another event loop. Await its calls there, or use `oauth(turn).sync` in a thread."
)


class NotUsableHere(BrokerError):
    """`storeUnavailable` for the program that uses a broker where it cannot be used. The sentence is the cause alone,
    and waiting does not help."""

    def __init__(self, cause: str) -> None:
        super().__init__(Code.STORE_UNAVAILABLE, lasting=True)
        self.sentence = cause

    @property
    def retryable(self) -> bool:
        return False


class OpenedHere:
    """Something that one process has opened, and that ends for it when it is `closed`. It belongs to the event loop
    that opened it, or else used it first, until that loop is closed."""

    def __init__(self) -> None:
        self.closed, self.pid = False, os.getpid()
        self.loop = running_loop()

    def end(self) -> None:
        self.closed, self.pid = True, 0

    @property
    def is_over(self) -> bool:
        """Tell whether it is closed, or this is a child process, without the parent's threads and connections."""
        return os.getpid() != self.pid

    def check_open(self) -> None:
        """Raise `storeUnavailable` after its end, and in another process or event loop than its own."""
        if os.getpid() != self.pid:
            raise NotUsableHere(CLOSED if self.closed else FORKED)
        loop = running_loop()
        if loop is not self.loop and loop is not None:
            if self.loop is not None and not self.loop.is_closed():
                raise NotUsableHere(OTHER_LOOP)
            self.loop = loop
