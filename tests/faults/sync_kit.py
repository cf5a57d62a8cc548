"""A disk whose syncs fail when the test says so, and the disks that differ in what a reader finds."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oauthbroker.store.posix.folders import LOCKS
from tests.kit.crashfs import CrashFs


class FailingSync(CrashFs):
    """The `number`-th sync after `arm_sync` fails, and the one that comes `then` syncs later. `late`: it has worked,
    without an error; else it does nothing."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.left, self.then, self.late, self.failed = -1, -1, False, 0

    def arm_sync(self, number: int, *, then: int = -1, late: bool = False) -> None:
        self.left, self.then, self.late, self.failed = number, then, late, 0

    @contextmanager
    def sound(self) -> Iterator[None]:
        """No sync fails meanwhile, and none is counted."""
        left, self.left = self.left, -1
        yield
        self.left = left

    def _step(self, call: str, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        if call != "fsync" or self.left < 0:
            return super()._step(call, args, run)
        self.left -= 1
        if self.left >= 0:
            return super()._step(call, args, run)
        self.left, self.then, self.failed = self.then, -1, self.failed + 1
        if self.late:
            super()._step(call, args, run)
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def different(clones: Iterator[Path]) -> Iterator[Path]:
    """Of disks with the same records one. Locks and temporary files are never read."""
    seen = set[str]()
    for clone in clones:
        digest = hashlib.sha256()
        for path in sorted(clone.rglob("*")):
            if path.is_file() and LOCKS not in path.parts and not path.name.startswith("."):
                digest.update(f"{path.relative_to(clone)}\0{path.read_bytes().hex()}\0".encode())
        if digest.hexdigest() not in seen:
            seen.add(digest.hexdigest())
            yield clone
