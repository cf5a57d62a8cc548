"""Who beside us could have written a file that the broker reads: its owner, its mode, and its folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from oauthbroker.config.problems.problems import ConfigProblem, Problems, SourcePlace
from oauthbroker.config.reading.files import bundle_files, shown

_MOST_LINKS: Final = 40  # as Linux
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def foreign_writer(file: Path) -> tuple[str, str] | None:
    """Return why another user could have written a file, and what to do; None if root or we alone could. Links are
    followed: who made one, or may replace it, has chosen the text. Raises OSError."""
    at = file.absolute()
    for _ in range(_MOST_LINKS):
        folder, found = at.parent.resolve(), at.lstat()
        if is_open(folder):
            return f"all users may write to {shown(folder)}", f"run chmod o-w {shown(folder)}"
        for owner, place in ((folder.stat().st_uid, folder), (found.st_uid, at)):
            if owner not in {0, os.geteuid()}:
                return f"{shown(place)} belongs to another user", "look through it, then make it yours with chown"
        if not stat.S_ISLNK(found.st_mode):
            is_right = not found.st_mode & _OTHERS_WRITE
            return None if is_right else ("other users can write to this file", f"run chmod 600 {shown(at)}")
        at = folder / at.readlink()
    return "too many links", "put the file here"


def open_to_all(bundle: Path) -> Iterator[ConfigProblem]:
    """Yield a warning for each file of a bundle, and each folder on the way, that all users may write to."""
    root = bundle if bundle.is_dir() else bundle.parent
    files = bundle_files(bundle, Problems())
    folders = {each for file in files for each in file.parents if each.is_relative_to(root)}
    for place in sorted({*folders, *files}):
        if place.exists() and is_open(place):
            what = "all users of this machine may write to it"
            yield ConfigProblem.at(SourcePlace(shown(place)), "", what, f"run chmod o-w {shown(place)}")


def is_open(place: Path) -> bool:
    """Return whether all users may change a file or folder. One with the sticky bit or mounted read-only, as Kubernetes
    mounts a ConfigMap with 0777, they may not."""
    mode = place.stat().st_mode
    if not mode & stat.S_IWOTH or (stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
        return False
    return not os.statvfs(place).f_flag & os.ST_RDONLY
