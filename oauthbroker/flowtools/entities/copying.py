"""Copy a database of SQLite while others write to it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path


class CopyRefused(ValueError):
    """There is nothing to copy, or a file in the way."""


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy a database of flows as it is at one moment into a new file that the owner alone can read. The file appears
    when it is complete and on the disk. Raises CopyRefused and OSError."""
    in_the_way = [each for end in ("", "-wal", "-journal") if (each := target.with_name(target.name + end)).exists()]
    if in_the_way:
        raise CopyRefused(f"{in_the_way[0]} exists; name a new file, or move it away while no broker runs")
    new = target.with_name(f".{target.name}.tmp")
    new.unlink(missing_ok=True)  # of a copy that was killed
    os.close(os.open(new, os.O_CREAT | os.O_EXCL, 0o600))
    try:
        _copy(source, new)
        _sync(new)
        os.link(new, target)  # fails if the name is in use
    finally:
        with suppress(FileNotFoundError):
            new.unlink()
    _sync(target.parent)


def _copy(source: Path, new: Path) -> None:
    try:
        with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True, timeout=30.0)) as connection:
            connection.execute("SELECT 1 FROM flow_run LIMIT 1")
            connection.execute("VACUUM INTO ?", (str(new),))
    except sqlite3.Error as error:
        why = str(error)
    else:
        return
    raise CopyRefused(f"{source} is no readable database of flows: {why}")


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
