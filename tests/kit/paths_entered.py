"""Record which folders of the package a piece of work enters, and by which functions."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

_PREFIX = f"{Path(__file__).parents[2]}/oauthbroker/"
NOT_OURS = frozenset({"testing"})  # the provider and the browser of the test
Entered = dict[str, set[str]]


def folder_of(file: str) -> str:
    """Return the folder of a source file, empty if it is outside of the package."""
    return Path(file[len(_PREFIX) :]).parts[0].removesuffix(".py") if file.startswith(_PREFIX) else ""


@contextmanager
def entering() -> Iterator[Entered]:
    """Yield a table that fills while the block runs: each folder, and the functions of it that were called."""
    entered: Entered = defaultdict(set)
    folders: dict[str, str] = {}

    def on_call(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        file = frame.f_code.co_filename
        folder = folders.get(file)
        if folder is None:
            folder = folders[file] = folder_of(file)
        if folder and folder not in NOT_OURS:
            entered[folder].add(f"{Path(file).stem}.{frame.f_code.co_qualname}")

    before = sys.getprofile()
    threading.setprofile(on_call)
    sys.setprofile(on_call)
    try:
        yield entered
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
