"""Whether a broker is ending, for everybody who waits long: waits end then, and what is under way is finished."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Life:
    """One broker's. It stops once; `wake` is called then, for those who wait for something else than this."""

    __slots__ = ("_over", "_wake")

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self._over = asyncio.Event()
        self._wake = wake

    @property
    def stopping(self) -> bool:
        return self._over.is_set()

    def stop(self) -> None:
        """From now on nobody begins to wait. Twice is once."""
        if not self.stopping:
            self._over.set()
            self._wake()

    async def over(self) -> None:
        """Returns when the broker stops."""
        await self._over.wait()
