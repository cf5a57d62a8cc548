"""Key providers, which wrap the keyring. They are called at start and at rotation, never to read or write a record."""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.store.keys.key_wrapping import open_box, seal_box
from oauthbroker.store.posix.atomic_files import create_whole, lock_soon
from oauthbroker.store.posix.checked_files import check_root, closing, sync_names
from oauthbroker.store.posix.system_calls import Fs, at_border

_PREFIX = "oab-kek-1:"
_LABEL = "oab/kek/1"
_LIMIT, KEY_BYTES = 1024, 32


class KeyProvider(Protocol):
    """Wraps and unwraps a few dozen bytes. Implement this for a KMS or a vault."""

    def id(self) -> str:
        """Return a printable id of the key. The same key always has the same id."""
        ...

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Wrap `secret`. It unwraps only with the same `context`."""
        ...

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Unwrap a wrapped secret. Raises `keyMismatch` if another key wrapped it, `recordCorrupt` for damage."""
        ...

    def health(self) -> None:
        """Raise a BrokerError if the key cannot be used now."""
        ...


class LocalKek:
    """A 32-byte key in memory; base of the providers that read it from a file or from the environment."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id()})"

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("a key is neither pickled nor copied")

    def text(self) -> Secret:
        """Return the text of a key file with this key."""
        return Secret(_encode(self._key).decode().strip())

    def id(self) -> str:
        return "kek-" + hmac.digest(self._key, b"oab/kek/id", "sha256")[:8].hex()

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        return seal_box(self._key, _LABEL, context, secret)

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        return open_box(self._key, _LABEL, context, wrapped)

    def health(self) -> None:
        """Do nothing: a key in memory is always available."""


class EnvKek(LocalKek):
    """A key from an environment variable, with the text of a key file. Warn: the environment keeps it."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        super().__init__(key_of_text(text))


class FileKek(LocalKek):
    """A key in its own file, 0600, outside the store; also a systemd credential (0400, or 0440 of root)."""

    __slots__ = ("_fs", "_outside", "_path")

    def __init__(self, *, key: bytes, path: Path, outside: Sequence[Path], fs: Fs) -> None:
        super().__init__(key)
        self._path, self._outside, self._fs = path, tuple(outside), fs

    @classmethod
    def create(cls, path: Path, *, outside: Sequence[Path] = (), fs: Fs | None = None) -> FileKek:
        """Create a key file (0600, in an existing folder). Raises `keyExists` if the file exists."""
        fs = fs or Fs()
        check_outside(path, outside)
        key = os.urandom(KEY_BYTES)
        created = at_border(lambda: _write_key(fs, path, _encode(key)))
        if not created:
            raise BrokerError(Code.KEY_EXISTS)
        return cls(key=key, path=path, outside=outside, fs=fs)

    @classmethod
    def open(cls, path: Path, *, outside: Sequence[Path] = (), fs: Fs | None = None, durably: bool = False) -> FileKek:
        """Read a key file; with `durably`, sync its name to the disk first.

        Raises `keyUnknown` if there is none, `keyMismatch` if it holds no key, and `storePermissions` if others can
        access it, it is a link, or it lies below a folder of `outside`.
        """
        fs = fs or Fs()
        check_outside(path, outside)
        text = at_border(lambda: _read_key(fs, path, durably=durably))
        if text is None:
            raise BrokerError(Code.KEY_UNKNOWN, note="there is no key file")
        return cls(key=key_of_text(text), path=path, outside=outside, fs=fs)

    def health(self) -> None:
        """Check that the key file still holds this key. Raises `keyMismatch` and as `open` does."""
        if FileKek.open(self._path, outside=self._outside, fs=self._fs).id() != self.id():
            raise BrokerError(Code.KEY_MISMATCH, note="the key file was replaced")


def check_outside(path: Path, folders: Sequence[Path]) -> None:
    """Check that a key lies in none of the folders, links followed. Raises `storePermissions`."""
    if any(path.resolve().is_relative_to(folder.resolve()) for folder in folders):
        raise BrokerError(Code.STORE_PERMISSIONS, note="the key file lies in the store or in the bundle")


def _write_key(fs: Fs, path: Path, text: bytes) -> bool:
    """Write the key file; False if one exists. A lock on the folder lets one writer win."""
    with closing(fs, fs.open_root(path.parent)) as folder:
        check_root(fs.fstat(folder))
        lock_soon(fs, folder)
        if path.name in fs.listdir(folder):
            return False
        create_whole(fs, folder, path.name, text)
    return True


def _read_key(fs: Fs, path: Path, *, durably: bool) -> str | None:
    try:
        with closing(fs, fs.open_root(path.parent)) as folder:
            check_root(fs.fstat(folder))
            if durably:
                sync_names(fs, folder)
            fd = fs.open_file(path.name, dir_fd=folder)
    except FileNotFoundError:
        return None
    with closing(fs, fd):
        _check_key_file(fs.fstat(fd))
        return fs.read(fd, _LIMIT).decode("ascii", "replace")


def _check_key_file(found: os.stat_result) -> None:
    """Check the file's rights: ours with 0600 or less, or root's with at most 0440, as systemd shows a credential."""
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise BrokerError(Code.STORE_PERMISSIONS, note="the key file is not a plain file")
    ours = found.st_uid == os.geteuid() and not found.st_mode & 0o077
    credential = found.st_uid == 0 != os.geteuid() and not found.st_mode & 0o337
    if not ours and not credential:
        raise BrokerError(Code.STORE_PERMISSIONS, note="the key file is open to others")


def _encode(key: bytes) -> bytes:
    return _PREFIX.encode() + base64.urlsafe_b64encode(key).rstrip(b"=") + b"\n"


def key_of_text(text: str) -> bytes:
    """Return the key in the text of a key file. Raises `keyMismatch` for another text."""
    key = b""
    body = text.strip()
    if body.startswith(_PREFIX) and len(body) == len(_PREFIX) + 43:
        try:
            key = base64.b64decode(body[len(_PREFIX) :] + "=", altchars=b"-_", validate=True)
        except binascii.Error:
            key = b""
    if len(key) != KEY_BYTES:
        raise BrokerError(Code.KEY_MISMATCH, note="this is not a key file")
    return key
