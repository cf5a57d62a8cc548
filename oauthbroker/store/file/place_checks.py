"""Check a store's place: who can access its files, how full the disk is, whether locks work.

For `oauthbroker doctor` and the like. It changes nothing: the only file it opens for writing has no name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.progress import Count, Progress, unseen
from oauthbroker.store.posix.folders import DATA, TAGS
from oauthbroker.store.posix.system_calls import Fs

NETWORK = frozenset(
    {"9p", "afs", "ceph", "cifs", "davfs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs",
     "fuse.sshfs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs", "vboxsf"}
)  # fmt: skip
LOCAL = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "tmpfs", "xfs", "zfs"})  # all processes see the same names
_MOUNTS = Path("/proc/self/mountinfo")
_TAGS = f"{DATA}/{TAGS}/"  # whose files are links of each other
_COUNTED = 64  # files that are looked at between two reports
_FOREIGN = "owned by another user"
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


@dataclass(frozen=True, slots=True)
class StoreProblem:
    """One file or folder with a fault. `path` is relative to the store's root."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Free space in bytes and in files; `files_free` is None where the file system does not count them."""

    bytes_free: int
    files_free: int | None


def problems(root: Path, progress: Progress = unseen) -> Iterator[StoreProblem]:
    """Yield everything below `<root>/data` that others can access, that another user owns, or that is not a plain
    file: all that opening the store would refuse. In no order. Raises OSError if the root itself cannot be read."""
    found = os.stat(root)  # noqa: PTH116  (of the folder that is meant, links followed)
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        yield StoreProblem(".", "all users may write to this folder")
    data = root / "data"
    try:
        there = data.lstat()
    except FileNotFoundError:
        yield StoreProblem("data", "missing")
        return
    yield from _of_folder(str(data), "data", there, Count("files looked at", None, progress))


def _of_folder(folder: str, name: str, there: os.stat_result, count: Count) -> Iterator[StoreProblem]:
    what = _problem_of(there, stat.S_ISDIR)
    if what:
        yield StoreProblem(name, what)
    if what not in {"", "open to others", _FOREIGN}:
        return
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:  # it was removed meanwhile
        return
    except OSError:
        yield StoreProblem(name, "cannot be read")
        return
    is_tags, known, number = f"{name}/".startswith(_TAGS), set[int](), 0
    with entries:
        for number, entry in enumerate(entries, start=1):
            if number % _COUNTED == 0:
                count.add(_COUNTED)
            if is_tags and entry.inode() in known:  # tags are links of a few files
                continue
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # a record was replaced or removed meanwhile
                continue
            path = f"{name}/{entry.name}"
            if stat.S_ISDIR(found.st_mode):
                yield from _of_folder(entry.path, path, found, count)
            elif what := _problem_of(found, stat.S_ISREG, is_tag=is_tags):
                yield StoreProblem(path, what)
            elif found.st_nlink > 1:
                known.add(found.st_ino)
    count.add(number % _COUNTED)


def _problem_of(found: os.stat_result, is_kind: Callable[[int], bool], *, is_tag: bool = False) -> str:
    if stat.S_ISLNK(found.st_mode):
        return "a link"
    if not is_kind(found.st_mode):
        return "of the wrong type"
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1 and not is_tag:
        return "has a second name"
    if found.st_uid != os.geteuid():
        return _FOREIGN
    return "open to others" if found.st_mode & 0o077 else ""


def space_at(path: Path) -> FreeSpace:
    """Return the free space. Raises OSError."""
    found = os.statvfs(path)
    return FreeSpace(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


def file_system(path: Path) -> str:
    """Return the type of the file system that holds `path`, such as `ext4`; empty if the system does not report it."""
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
    """Tell whether two descriptors of one file exclude each other; None if that needs a named file.

    Touches no lock of the store. Raises OSError if locking itself fails.
    """
    fs = Fs()
    if not hasattr(os, "O_TMPFILE"):
        return None
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
