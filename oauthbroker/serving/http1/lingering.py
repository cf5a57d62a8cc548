"""Close a connection so that the client can still read the answer, within a time limit.

Closing a socket with unread bytes resets the connection, and the client may never see the refusal (RFC 9112 section
9.6). So we stop sending, discard input for a moment, and then close.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

LINGER_SECONDS = 2.0
LINGER_BYTES = 4 * 1024 * 1024


class PartingTransport(asyncio.Transport):
    """Wraps a connection's transport. `write_seconds`: the time that a client may leave output unread.
    `still_sends`: the client's request is incomplete."""

    def __init__(
        self,
        *,
        inner: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        write_seconds: float,
        still_sends: Callable[[], bool],
    ) -> None:
        super().__init__()
        self._inner, self._loop, self._write_seconds, self._still_sends = inner, loop, write_seconds, still_sends
        self._timer: asyncio.TimerHandle | None = None
        self._parting = self._paused = False
        self._forgotten = 0

    def part(self) -> None:
        """Close the connection of a client that may still be sending, and may still have to read the answer."""
        if self.is_closing():
            return
        self._parting = True
        self._abort_in(self._write_seconds if self._inner.get_write_buffer_size() else LINGER_SECONDS)
        self._inner.write_eof()
        self._inner.resume_reading()

    def forget(self, data: bytes) -> None:
        """Discard input after the end."""
        self._forgotten += len(data)
        if self._forgotten > LINGER_BYTES:
            self._inner.abort()

    def lost(self) -> None:
        """Stop waiting: the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hold_up(self) -> None:
        """Start the time limit: the client does not read."""
        if self._timer is None:
            self._abort_in(self._write_seconds)

    def go_on(self) -> None:
        """Stop the time limit: the client reads again."""
        if self._parting:
            self._abort_in(LINGER_SECONDS)
        elif not self._inner.is_closing():
            self.lost()

    def _abort_in(self, seconds: float) -> None:
        self.lost()
        self._timer = self._loop.call_later(seconds, self._inner.abort)

    def close(self) -> None:
        if self.is_closing():
            return
        if self._still_sends() or self._paused or self._inner.get_write_buffer_size():
            self.part()
        else:
            self._inner.close()

    def is_closing(self) -> bool:
        return self._parting or self._inner.is_closing()

    def abort(self) -> None:
        self._inner.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._inner.write(data)

    def pause_reading(self) -> None:
        self._paused = True
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        self._inner.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._inner.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)
