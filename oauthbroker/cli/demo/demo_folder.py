"""Prepare the demo's folder, emptied at every start, and its key, kept elsewhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import lock_descriptor

from oauthbroker.core.refused import Refused

MARKER = ".made-by-oauthbroker-demo"


@contextmanager
def fresh(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield (the empty folder, a key file's path elsewhere), for one demo at a time. The key is deleted afterwards.

    Raises Refused for a folder that no demo made, and while another demo runs there. No other folder is ever emptied.
    """
    folder = folder.absolute()
    marker = _marked(folder)
    try:
        if not lock_descriptor(marker, blocking=False):
            raise Refused(f"Another demo is running in {folder}. Stop it, or start this one in another folder.")
        for child in folder.iterdir():
            if child.name != MARKER:
                _remove(child)
        folder.chmod(0o700)
        with TemporaryDirectory(prefix="oauthbroker-demo-") as elsewhere:
            yield folder, Path(elsewhere, "demo.kek")
    finally:
        os.close(marker)


def _marked(folder: Path) -> int:
    """Open the marker file of the folder, and make it in an empty folder. Raises Refused."""
    why = ""
    try:
        if folder.is_symlink() or (folder.exists() and not _ours(folder)):
            raise Refused(f"{folder} was not made by a demo, so it is left alone. Move it away, or start elsewhere.")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(folder / MARKER, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = error.strerror or "it cannot be made"
    raise Refused(f"Cannot use {folder}: {why}. Start the demo in a folder where you may write.")


def _ours(folder: Path) -> bool:
    """Return whether the folder has our marker or is empty."""
    return folder.is_dir() and ((folder / MARKER).is_file() or not any(folder.iterdir()))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
