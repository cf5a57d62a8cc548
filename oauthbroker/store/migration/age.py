"""Encrypt an archive with age while it is written, and decrypt it while it is read. No plain text touches the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyrage

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.progress import Count, Progress, unseen
from oauthbroker.core.refused import Refused
from oauthbroker.store.migration.archive import DAMAGED, ArchiveReader
from oauthbroker.store.posix.atomic_files import collect_temps, replacing
from oauthbroker.store.posix.checked_files import closing, read_file
from oauthbroker.store.posix.system_calls import Fs, at_border

_MOST_IDENTITIES: Final = 64 * 1024
_WRONG: Final = "No identity of that file opens the archive, or the beginning of the archive is damaged."


def recipients(words: Sequence[str]) -> list[Any]:
    """Return the recipients of the lines of a file or of options, comments left out. Raises Refused."""
    found = [_parsed(pyrage.x25519.Recipient.from_str, word, "age1", "A recipient") for word in _entries(words)]
    if not found:
        raise Refused("Who shall be able to import it? Say --recipient age1..., as `age-keygen` prints it.")
    return found


def identities(path: Path) -> list[Any]:
    """Return the identities in a file that only its owner can read. Raises Refused and `storePermissions`."""
    found = at_border(lambda: _read(path))
    if found is None:
        raise Refused(f"There is no file {path}.")
    lines = _entries(found.decode("utf-8", "replace").splitlines())
    if not lines:
        raise Refused(f"{path} has no identity.")
    if all(line.startswith("age1") for line in lines):
        raise Refused(f"{path} has recipients, and no identity in it. Name the file that `age-keygen -o FILE` wrote.")
    return [_parsed(pyrage.x25519.Identity.from_str, line, "AGE-SECRET-KEY-1", f"A line of {path}") for line in lines]


def archive_file(path: Path) -> BinaryIO:
    """Open an archive for reading. Raises Refused."""
    try:
        return path.open("rb")
    except OSError as error:
        word = errno.errorcode.get(error.errno or 0, "OSError")
    raise Refused(f"{path} cannot be read: {word}.")


def _read(path: Path) -> bytes | None:
    fs = Fs()
    with closing(fs, fs.open_root(path.parent)) as folder:
        found = read_file(fs, folder, path.name, _MOST_IDENTITIES)
    return found[0] if found else None


def _entries(lines: Sequence[str]) -> list[str]:
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _parsed(parse: Callable[[str], Any], word: str, start: str, what: str) -> Any:
    try:
        return parse(word)
    except (pyrage.RecipientError, pyrage.IdentityError):
        pass
    raise Refused(f"{what} is not of the form {start}..., as `age-keygen` writes it.")


def encrypt(path: Path, lines: Iterator[bytes], to: Sequence[Any]) -> None:
    """Write a new file of mode 0600, whole or not at all. Raises what `lines` raises, and Refused."""
    try:
        return _encrypt(Fs(), path, lines, to)
    except OSError as error:
        word = errno.errorcode.get(error.errno or 0, "OSError")
    raise Refused(f"{path} cannot be written: {word}.")


def _encrypt(fs: Fs, path: Path, lines: Iterator[bytes], to: Sequence[Any]) -> None:
    with closing(fs, fs.open_root(path.parent)) as folder:
        if path.name in fs.listdir(folder):
            raise Refused(f"{path} exists, and nothing is overwritten. Choose another name.")
        with suppress(OSError, BrokerError):
            collect_temps(fs, folder, f".{path.name}.")
        with replacing(fs, folder, path.name) as fd:
            _piped(lines, lambda data: fs.write(fd, data), to)
            fs.fsync(fd)
        fs.fsync(folder)


def _piped(lines: Iterator[bytes], write: Callable[[bytes], int], to: Sequence[Any]) -> None:
    ends = _Ends(lines, write)
    try:
        pyrage.encrypt_io(ends, ends, to)
    except BaseException as error:  # noqa: BLE001 (the one of the two ends was first)
        failed = ends.failed or error
    else:
        return
    raise failed


class _Ends:
    """The two ends of an encryption. `failed` is the exception of one of them: the library passes on only its text."""

    def __init__(self, lines: Iterator[bytes], write: Callable[[bytes], int]) -> None:
        self._lines, self._write = lines, write
        self._rest = bytearray()
        self.failed: BaseException | None = None

    def read(self, size: int) -> bytes:
        try:
            while len(self._rest) < size and (line := next(self._lines, None)) is not None:
                self._rest += line
        except BaseException as error:
            self.failed = error
            raise
        taken = bytes(self._rest[:size])
        del self._rest[:size]
        return taken

    def write(self, data: bytes) -> int:
        try:
            return self._write(data)
        except BaseException as error:
            self.failed = error
            raise

    def flush(self) -> None:
        """Do nothing: the file is synced at the end."""


class _Watched:
    """An encrypted file whose reads are counted."""

    def __init__(self, file: BinaryIO, count: Count) -> None:
        self._file, self._count = file, count

    def read(self, size: int) -> bytes:
        piece = self._file.read(size)
        self._count.add(len(piece))
        return piece


def decrypt(
    file: BinaryIO,
    reader: ArchiveReader,
    using: Sequence[Any],
    what: str = "bytes of the archive read",
    progress: Progress = unseen,
) -> None:
    """Give the plain text to the reader. Raises Refused for a file that does not open."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    try:
        pyrage.decrypt_io(_Watched(file, Count(what, size, progress)), reader, using)
    except pyrage.DecryptError:
        text = _WRONG
    except OSError:
        text = DAMAGED
    else:
        return
    raise Refused(text)
