"""What a store stands on: who can reach its files, how full the disk is, whether locks exclude each other there.

For an operator's checkup. It changes nothing: the only file it opens for writing has no name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from oauthbroker.store.fs import Fs

NETWORK = frozenset(
    {"9p", "afs", "ceph", "cifs", "davfs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs",
     "fuse.sshfs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs", "vboxsf"}
)  # fmt: skip
_MOUNTS = Path("/proc/self/mountinfo")
_FOREIGN = "owned by somebody else"
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


@dataclass(frozen=True, slots=True)
class Flaw:
    """One file or folder that is not as it must be. `path` is relative to the store's root."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class Room:
    """What is free to us, in bytes and in files; `files_free` is None where the file system does not count them."""

    bytes_free: int
    bytes_all: int
    files_free: int | None


def flaws(root: Path) -> Iterator[Flaw]:
    """Everything below `<root>/data` that others can reach, that is somebody else's, or that is no plain file: what
    opening the store refuses, all of it at once. Raises OSError where the root itself cannot be read."""
    found = os.stat(root)  # noqa: PTH116  (of the folder that is meant, links followed)
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        yield Flaw(".", "everybody may change this folder")
    data = root / "data"
    yield from _of_folder(data, "data")


def _of_folder(folder: Path, name: str) -> Iterator[Flaw]:
    what = _flaw_of(folder, stat.S_ISDIR)
    if what:
        yield Flaw(name, what)
    if what in {"", "open to others", _FOREIGN}:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            yield Flaw(name, "cannot be read")
            return
        for entry in entries:
            path = f"{name}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from _of_folder(Path(entry.path), path)
            elif what := _flaw_of(Path(entry.path), stat.S_ISREG):
                yield Flaw(path, what)


def _flaw_of(path: Path, is_kind: Callable[[int], bool]) -> str:
    try:
        found = path.lstat()
    except FileNotFoundError:  # a record that was replaced or removed while we looked
        return "" if path.name != "data" else "missing"
    if stat.S_ISLNK(found.st_mode):
        return "a link"
    if not is_kind(found.st_mode):
        return "not what it should be"
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        return "has a second name"
    if found.st_uid != os.geteuid():
        return _FOREIGN
    return "open to others" if found.st_mode & 0o077 else ""


def room_at(path: Path) -> Room:
    """Raises OSError."""
    found = os.statvfs(path)
    return Room(
        bytes_free=found.f_bavail * found.f_frsize,
        bytes_all=found.f_blocks * found.f_frsize,
        files_free=found.f_favail if found.f_files else None,
    )


def file_system(path: Path) -> str:
    """The type of the file system that holds `path`, `ext4` say; empty where the system does not tell."""
    try:
        lines, real = _MOUNTS.read_text("utf-8", "surrogateescape").splitlines(), path.resolve()
    except OSError:
        return ""
    best, kind = -1, ""
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = _unescaped(before.split()[4])
        if real.is_relative_to(mount) and len(mount) >= best:
            best, kind = len(mount), after.split()[0]
    return kind


def _unescaped(text: str) -> str:
    for written, meant in _ESCAPES.items():
        text = text.replace(written, meant)
    return text


def locks_exclude(folder: Path) -> bool | None:
    """Whether two descriptors of one file cannot both lock it; None where it cannot be tried without leaving a name.

    No lock of the store is touched. Raises OSError where locking itself fails.
    """
    fs = Fs()
    try:
        first = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        second = os.open(f"/proc/self/fd/{first}", os.O_RDWR | os.O_CLOEXEC)
        try:
            return fs.try_lock(first) and not fs.try_lock(second)
        finally:
            os.close(second)
    finally:
        os.close(first)
