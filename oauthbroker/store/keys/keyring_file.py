"""Read and create the keyring's file. It is never created where a keyring or records exist."""

from __future__ import annotations

import stat
from pathlib import Path

from oauthbroker.store.posix.atomic_files import create_whole, lock_soon
from oauthbroker.store.posix.checked_files import check_folder, closing, content_of
from oauthbroker.store.posix.folders import CORRUPT, LOCKS, open_data
from oauthbroker.store.posix.system_calls import Fs

KEYRING, KEYRING_LIMIT = "keyring", 1024 * 1024


def read_keyring(fs: Fs, path: Path) -> bytes | None:
    """Return the file's bytes, or None if there is no file. Raises `storePermissions` if others can access it, and
    OSError."""
    try:
        folder = fs.open_root(path.parent)
    except FileNotFoundError:
        return None
    with closing(fs, folder):
        check_folder(fs.fstat(folder), path.parent.name)
        return content_of(fs, folder, path.name, KEYRING_LIMIT)


def write_keyring(fs: Fs, path: Path, text: bytes) -> bool:
    """Create the keyring file; False if a keyring or records exist. A lock on the folder lets one writer win."""
    with closing(fs, open_data(fs, path.parent.parent)) as folder:
        lock_soon(fs, folder)
        if _is_taken(fs, folder, path.name):
            return False
        create_whole(fs, folder, path.name, text)
    return True


def replace_keyring(fs: Fs, path: Path, text: bytes) -> None:
    """Replace the keyring file durably: a crash leaves the old one or the new one."""
    with closing(fs, fs.open_root(path.parent)) as folder:
        check_folder(fs.fstat(folder), path.parent.name)
        create_whole(fs, folder, path.name, text)


def _is_taken(fs: Fs, folder: int, keyring: str) -> bool:
    names = fs.listdir(folder)
    return keyring in names or any(_has_entries(fs, folder, name) for name in names if name not in {LOCKS, CORRUPT})


def _has_entries(fs: Fs, folder: int, name: str) -> bool:
    if not stat.S_ISDIR(fs.stat(name, dir_fd=folder).st_mode):
        return False
    with closing(fs, fs.open_folder(name, dir_fd=folder)) as fd:
        return bool(fs.listdir(fd))
