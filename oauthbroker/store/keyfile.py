"""The keyring's file: read whole, written once, never where a keyring or records already are."""

from __future__ import annotations

import stat
from pathlib import Path

from oauthbroker.errors import BrokerError, Code
from oauthbroker.store.files import check_folder, check_root, close, create_whole, own_folder, read_file
from oauthbroker.store.folders import CORRUPT, LOCKS
from oauthbroker.store.fs import Fs

_LIMIT = 1024 * 1024


def read_keyring(fs: Fs, path: Path) -> bytes | None:
    """The file's bytes, or None where there is none. Raises `storePermissions` when others can reach it, OSError."""
    try:
        folder = fs.open_root(path.parent)
    except FileNotFoundError:
        return None
    try:
        check_folder(fs.fstat(folder))
        found = read_file(fs, folder, path.name, _LIMIT)
    finally:
        close(fs, folder)
    return found[0] if found else None


def write_keyring(fs: Fs, path: Path, text: bytes) -> bool:
    """False when a keyring or records are there. A lock on the folder makes sure of one winner."""
    fs.make_root(path.parent.parent)
    root = fs.open_root(path.parent.parent)
    try:
        check_root(fs.fstat(root))
        folder = own_folder(fs, root, path.parent.name)
    finally:
        close(fs, root)
    try:
        if not fs.try_lock(folder):
            raise BrokerError(Code.STORE_LOCKED)
        if _is_taken(fs, folder, path.name):
            return False
        create_whole(fs, folder, path.name, text)
    finally:
        close(fs, folder)
    return True


def _is_taken(fs: Fs, folder: int, keyring: str) -> bool:
    names = fs.listdir(folder)
    return keyring in names or any(_has_entries(fs, folder, name) for name in names if name not in {LOCKS, CORRUPT})


def _has_entries(fs: Fs, folder: int, name: str) -> bool:
    if not stat.S_ISDIR(fs.stat(folder, name).st_mode):
        return False
    fd = fs.open_folder(folder, name)
    try:
        return bool(fs.listdir(fd))
    finally:
        close(fs, fd)
