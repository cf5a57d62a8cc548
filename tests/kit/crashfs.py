"""File layers that count, fail or crash at a chosen call, and the disks that a crash may leave.

A crash loses an unknown part of the unsynced data. `CrashFs.clones` creates one folder for each possible outcome, and a
test opens the store in each of them.
"""

from __future__ import annotations

import os
import random
import stat
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from oauthbroker.store.posix.system_calls import Fs

CALLS = tuple(
    name
    for name in vars(Fs)
    if not name.startswith("_") and name not in {"leftovers", "only_reads", "monotonic", "give_way"}
)


class Crash(BaseException):
    """The machine stopped. Not an Exception, so that no handler catches it as a failure."""


class HookedFs(Fs):
    """An `Fs` whose every call goes through `_step`."""

    def _step(self, call: str, _args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """Override this. `run` makes the real call; `args` begin with the folder, if the call has one."""
        raise NotImplementedError


def _hooked(call: str) -> Callable[..., Any]:
    def method(self: HookedFs, *args: Any, **folders: int) -> Any:
        run = partial(getattr(super(HookedFs, self), call), *args, **folders)
        return self._step(call, (*list(folders.values())[:1], *args), run)

    return method


for _call in CALLS:
    setattr(HookedFs, _call, _hooked(_call))


class CountingFs(HookedFs):
    """Counts calls by name in `calls`."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def _step(self, call: str, _args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        self.calls[call] += 1
        return run()


class FaultyFs(HookedFs):
    """Fails one call: the `number`-th after `arm`, counted from 0. `fired` names it; None when it was never reached."""

    def __init__(self) -> None:
        self.fired: str | None = None
        self._left: int | None = None
        self._errno = 0
        self._lock = threading.Lock()

    def arm(self, number: int, errno: int) -> None:
        self._left, self._errno, self.fired = number, errno, None

    def disarm(self) -> None:
        self._left = None

    def _step(self, call: str, _args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        if not self._is_due(call):
            return run()
        if call == "close":  # a failing close still closes the descriptor
            run()
        raise OSError(self._errno, os.strerror(self._errno))

    def _is_due(self, call: str) -> bool:
        with self._lock:
            if self._left is None:
                return False
            self._left -= 1
            if self._left >= 0:
                return False
            self._left, self.fired = None, call
            return True


@dataclass(slots=True)
class _Inode:
    """The synced content of one file, or the mark of a folder."""

    synced: bytes = b""
    is_folder: bool = False


@dataclass(slots=True)
class _Folder:
    """A folder's names: the synced ones, and the changes since its last sync."""

    synced: dict[str, int] = field(default_factory=dict)
    since: list[tuple[str, ...]] = field(default_factory=list)
    now: dict[str, int] = field(default_factory=dict)


class CrashFs(HookedFs):
    """Stops the machine at the `number`-th call after `arm` below `root`, before that call has any effect.

    The content of `root` at creation counts as synced. After the crash every call raises `Crash`, until `restore` (for
    cleanup).
    """

    def __init__(self, root: Path) -> None:
        self.fired: str | None = None
        self._root = root
        self._left: int | None = None
        self._lock = threading.RLock()
        self._inodes: list[_Inode] = []
        self._folders: dict[int, _Folder] = {}
        self._number_of: dict[int, int] = {}  # real inode -> our number; real ones are reused
        self._top = self._remember(root)

    def arm(self, number: int) -> None:
        self._left, self.fired = number, None

    def restore(self) -> None:
        self._left = None

    def _step(self, call: str, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        with self._lock:
            if self._left is not None:
                self._left -= 1
                if self._left < 0:
                    self.fired = self.fired or call
                    if call == "close":  # a dead process has no descriptors
                        run()
                    raise Crash(call)
            return self._followed(call, args, run)

    def clones(self, parent: Path, *, seeds: int = 3, only: Collection[str] = ()) -> Iterator[Path]:
        """Yield a folder below `parent` for each disk that the crash may have left: all, none or some of the unsynced
        names (`seeds` ways), and none, half or all of the unsynced bytes.

        They are called clone-<way of the names, from 0>-<share of the bytes: 0.0, 0.5, 1.0>; `only` selects some.
        """
        choices: list[Callable[[], bool]] = [lambda: True, lambda: False]
        choices += [partial(_toss, random.Random(seed)) for seed in range(seeds)]
        for names, choose in enumerate(choices):
            for part in (0.0, 0.5, 1.0):
                clone = parent / f"clone-{names}-{part}"
                if not only or clone.name in only:
                    self._write(self._top, self._root, clone, choose, part)
                    yield clone

    def _followed(self, call: str, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        before = self._names_of(args[0]) if call in {"make_folder", "create_file", "open_lock"} else {}
        result = run()
        match call, args:
            case (("create_file" | "open_lock" | "make_folder"), (folder, name)) if name not in before:
                self._change(folder, "link", name, str(self._number_new(folder, name, is_folder=call == "make_folder")))
            case "link", (folder, _, name):
                number = self._number_of[os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino]
                self._change(folder, "link", name, str(number))
            case "rename", (folder, old, new):
                self._change(folder, "rename", old, new)
            case "unlink", (folder, name):
                self._change(folder, "unlink", name)
            case "fsync", (fd,):
                self._sync(fd)
        return result

    def _names_of(self, folder: int) -> dict[str, int]:
        return self._folders[self._number_of[os.fstat(folder).st_ino]].now

    def _number_new(self, folder: int, name: str, *, is_folder: bool) -> int:
        number = len(self._inodes)
        self._inodes.append(_Inode(is_folder=is_folder))
        self._number_of[os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino] = number
        if is_folder:
            self._folders[number] = _Folder()
        return number

    def _change(self, folder: int, *change: str) -> None:
        known = self._folders[self._number_of[os.fstat(folder).st_ino]]
        if change[0] == "rename":
            change = (*change, str(known.now[change[1]]))
        known.since.append(change)
        _apply(known.now, change)

    def _sync(self, fd: int) -> None:
        found = os.fstat(fd)
        number = self._number_of[found.st_ino]
        if stat.S_ISDIR(found.st_mode):
            folder = self._folders[number]
            folder.synced, folder.since = dict(folder.now), []
        else:
            self._inodes[number].synced = Path(f"/proc/self/fd/{fd}").read_bytes()

    def _remember(self, path: Path) -> int:
        """Record the current content as synced."""
        number = len(self._inodes)
        if (known := self._number_of.setdefault(path.stat().st_ino, number)) != number:
            return known  # a further name of a file
        self._inodes.append(_Inode(is_folder=path.is_dir()))
        if not path.is_dir():
            self._inodes[number].synced = path.read_bytes()
            return number
        folder = self._folders[number] = _Folder()
        for child in sorted(path.iterdir()):
            folder.now[child.name] = self._remember(child)
        folder.synced = dict(folder.now)
        return number

    def _write(self, number: int, real: Path | None, clone: Path, choose: Callable[[], bool], part: float) -> None:
        """Write one file or folder of a clone. `real` is its current path, if it still exists."""
        inode = self._inodes[number]
        if inode.is_folder:
            clone.mkdir(mode=0o700, parents=True)
            self._write_folder(self._folders[number], real, clone, choose, part)
            return
        current = real.read_bytes() if real else inode.synced
        body = current[: int(len(current) * part)] + bytes(len(current) - int(len(current) * part))
        clone.touch(mode=0o600)
        clone.write_bytes(inode.synced if part == 0.0 or current == inode.synced else body)

    def _write_folder(
        self, folder: _Folder, real: Path | None, clone: Path, choose: Callable[[], bool], part: float
    ) -> None:
        names = dict(folder.synced)
        for change in folder.since:
            if choose():
                _apply(names, change)
        where = {number: name for name, number in folder.now.items()}
        for name, number in names.items():
            source = real / where[number] if real and number in where else None
            self._write(number, source, clone / name, choose, part)


def _apply(names: dict[str, int], change: tuple[str, ...]) -> None:
    match change:
        case "link", name, number:
            names[name] = int(number)
        case "unlink", name:
            names.pop(name, None)
        case "rename", old, new, number:
            names.pop(old, None)
            names[new] = int(number)


def _toss(dice: random.Random) -> bool:
    return dice.random() < 0.5
