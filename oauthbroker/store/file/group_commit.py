"""Sync a folder once for all writes that wait for it at the same time: a group commit."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable


class _Sync:
    """One sync. `error` is its errno, 0 if it succeeded."""

    ended, error = False, 0


class GroupCommit:
    """The syncs of one folder by the threads of this process. `sync` blocks, and raises OSError if it fails."""

    __slots__ = ("_next", "_running", "_sync", "_turn")

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._turn = threading.Condition()
        self._running: _Sync | None = None
        self._next: _Sync | None = None

    def cover(self) -> None:
        """Make everything durable that was done in the folder before this call. Raises OSError if the sync fails that
        covers it.

        A sync that runs already may have begun too early. So this waits for the next one, which the first waiter runs
        for all.
        """
        with self._turn:
            mine = self._next = self._next or _Sync()
            while self._running is not None and not mine.ended:
                self._turn.wait()
            leads = not mine.ended
            if leads:
                self._running, self._next = mine, None
        if leads:
            mine.error = errno.EIO  # for the others, if this thread dies in the sync
            try:
                self._sync()
                mine.error = 0
            except OSError as exc:
                mine.error = exc.errno or errno.EIO
            finally:
                with self._turn:
                    mine.ended, self._running = True, None
                    self._turn.notify_all()
        if mine.error:
            raise OSError(mine.error, os.strerror(mine.error))
