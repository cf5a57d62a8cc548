"""JSON documents that are written once and never changed, in a folder of plain files."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from filelock import FileLock, Timeout

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.specification.source import FlowRefused, refusal_at
from oauthbroker.plugins import decode_json

Document = Mapping[str, Any]
Result = TypeVar("Result")
FORMAT: Final = 1
MOST_BYTES: Final = 8 * 1024 * 1024
LOCK_SECONDS: Final = 10.0
DAMAGED: Final = "damaged, or not written by this program", "restore it from a backup"
_TOOL = re.compile(r"(?=.{1,128}$)[a-z][A-Za-z0-9]*(\.[a-z][A-Za-z0-9]*)*")
_FILE = re.compile(r"([1-9][0-9]{0,17})\.json")
_LOCK, _NEW = ".lock", ".new"


class WriteOnceFiles:
    """The files `<tool>/<kind>/<number>.json` below a folder. Names of another form are left alone.

    A document is written beside its place, synced, and linked to its name, which fails if the name is in use. So after
    a crash each file is whole or absent, and no writer changes one.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other writers away. Raises BrokerError if one holds the lock for long."""
        _at_border(self.root, lambda: self.root.mkdir(parents=True, exist_ok=True))
        lock = FileLock(self.root / _LOCK)
        try:
            _at_border(self.root, lambda: lock.acquire(timeout=LOCK_SECONDS))
        except Timeout:
            raise BrokerError(Code.STORE_LOCKED, note=f"another command writes to {self.root}") from None
        try:
            yield
        finally:
            lock.release()

    def tools(self) -> list[str]:
        return sorted(filter(_TOOL.fullmatch, self._listed(self.root)))

    def numbers(self, tool: str, kind: str) -> list[int]:
        """Return the numbers of the documents, ascending."""
        found = map(_FILE.fullmatch, self._listed(self.root / tool / kind) if _TOOL.fullmatch(tool) else ())
        return sorted(int(each[1]) for each in found if each)

    def read(self, tool: str, kind: str, number: int, members: Mapping[str, type]) -> Document:
        """Return a document with exactly these members. Raises FlowRefused if it is damaged or of a newer format."""
        path = self.path(tool, kind, number)
        raw = _at_border(path, lambda: _read(path))
        try:
            document = (
                decode_json(raw, Code.REQUEST_INVALID, most_values=MOST_BYTES) if len(raw) <= MOST_BYTES else None
            )
        except BrokerError:
            document = None
        if isinstance(document, dict) and type(document.get("format")) is int and document["format"] > FORMAT:
            raise refused(path, "of a newer format", "upgrade oauthbroker")
        wanted = {"format": int, "name": str, **members}
        if (
            not isinstance(document, dict)
            or {name: type(value) for name, value in document.items()} != wanted
            or (document["format"], document["name"]) != (FORMAT, tool)
        ):
            raise refused(path, *DAMAGED)
        return document

    def write(self, tool: str, kind: str, number: int, document: Document) -> None:
        """Write a new document, durably. The caller holds the lock. A document that is there is never written over."""
        path, new = self.path(tool, kind, number), self.root / _NEW
        data = json.dumps({"format": FORMAT, "name": tool, **document}, indent=1, ensure_ascii=False).encode()
        if len(data) > MOST_BYTES:
            raise BrokerError(Code.REQUEST_INVALID, note=f"{path}: more than {MOST_BYTES} bytes")

        def write() -> None:
            _make_folders(self.root, path.parent)
            new.unlink(missing_ok=True)  # of a command that was killed
            fd = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(fd, rest) :]
                os.fsync(fd)
            finally:
                os.close(fd)
            os.link(new, path)
            _sync(path.parent)
            new.unlink()

        _at_border(path, write)

    def path(self, tool: str, kind: str, number: int) -> Path:
        if not _TOOL.fullmatch(tool):
            raise BrokerError(Code.REQUEST_INVALID, note="a tool's name is camelCase, with dots")
        return self.root / tool / kind / f"{number}.json"

    def _listed(self, folder: Path) -> list[str]:
        return _at_border(folder, lambda: [each.name for each in folder.iterdir()] if folder.is_dir() else [])


def refused(path: Path, what: str, hint: str) -> FlowRefused:
    """Return the refusal of a file as a whole, by its place in the folder: pages of the broker show it, too."""
    return refusal_at("/".join(path.parts[-3:]), what, hint)


def _read(path: Path) -> bytes:
    """Return the bytes of a regular file, at most one too many; none for a link, a folder or a pipe."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return b""
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _make_folders(root: Path, folder: Path) -> None:
    for each in (folder.parent, folder):
        each.mkdir(exist_ok=True)
        _sync(each.parent)
    _sync(root.absolute().parent)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _at_border(path: Path, work: Callable[[], Result]) -> Result:
    try:
        return work()
    except OSError as error:
        if isinstance(error, Timeout):
            raise
        note = f"{path}: {error.strerror}"
    raise BrokerError(Code.STORE_UNAVAILABLE, note=note)
