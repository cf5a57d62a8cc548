"""Create files: one that an option names, never over another one, and those of a folder to serve from."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from oauthbroker.cli.output.tables import shown
from oauthbroker.core.refused import Refused


@contextmanager
def new_file(path: Path, mode: int = 0o666) -> Iterator[TextIO]:
    """Create a file for the block. If an exception ends the block, such as Ctrl-C, it is removed, so that the same
    command can be typed again. Raises Refused if the file exists or cannot be created."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        fault = "exists. Name a new file"
    except OSError:
        fault = "cannot be created. Name a file in a folder that exists and is yours"
    else:
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as stream:
                yield stream
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return
    raise Refused(f"{shown(str(path))} {fault}. Nothing was changed.")


def keep_from_others() -> None:
    """Let no other user write to what this process makes, under any umask."""
    os.umask(os.umask(0o022) | 0o022)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder of the package. Modes and dates are those of new files: a package may be read-only."""
    target.mkdir()
    for each in source.iterdir():
        copy_folder(each, target / each.name) if each.is_dir() else shutil.copyfile(each, target / each.name)
