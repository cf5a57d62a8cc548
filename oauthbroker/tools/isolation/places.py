"""What processes of tools see of the file system: the mounts of a sandbox, and those of an agent process that has a
user id of its own. Each is a table of options of bubblewrap by their places, in which the deepest place counts."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

Mounts = dict[Path, list[str]]
Paths = Sequence[Path]

_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Libraries, the time zone, and what names and certificates of servers need. No file with users or secrets.
_OF_ETC: Final = (
    *("ld.so.cache", "alternatives", "localtime", "resolv.conf", "hosts", "nsswitch.conf", "services", "protocols"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust/extracted", "crypto-policies"),
)
_PACKAGE: Final = Path(__file__).parents[2]
PYTHON: Final = (Path(sys.base_prefix), Path(sys.prefix), _PACKAGE)
INTERPRETER: Final = os.path.normpath(sys.executable)  # below PYTHON, though it was started by a path with ".."


def opened_folder(path: Path) -> int:
    """Return a descriptor of a folder, of which no part is a symbolic link: a tool may have put one there. Raises
    OSError."""
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY)
    for name in path.absolute().parts[1:]:
        above = descriptor
        try:
            descriptor = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        finally:
            os.close(above)
    return descriptor


def sandbox_mounts(
    readable: Paths, sockets: Paths, *, writable: Mapping[Path, int], hidden: Paths, size: int
) -> Mounts:
    """Return the mounts of a sandbox, which has nothing else. `writable`: folders, each with a descriptor, so that no
    other one is mounted in its place. `size`: bytes of each folder in memory. Raises ValueError for a folder that may
    not be shown."""
    barred = [each.resolve() for each in hidden]
    if any(each.is_relative_to(folder) for folder in writable for each in barred):
        raise ValueError("the workdir of a tool has a folder in it that is hidden from tools")
    if any(folder.is_relative_to(each) for folder in readable for each in barred):
        raise ValueError("the folder of a tool's entry is hidden from tools: move the tool to another folder")
    shown = {path: _link(path) if path.is_symlink() else _read(path) for path in _existing(map(Path, _SYSTEM))}
    shown |= {path: _read(path) for path in (*_existing(Path("/etc", each) for each in _OF_ETC), *readable)}
    bound = [*shown, *PYTHON]
    shown |= {each: _mask(each) for each in _existing(barred) if any(each.is_relative_to(it) for it in bound)}
    shown |= {path: _read(path) for path in (*PYTHON, *sockets)}
    memory = ["--perms", "1777", "--size", str(size), "--tmpfs"]
    shown |= {Path(each): [*memory, each] for each in ("/tmp", "/dev/shm")}  # noqa: S108
    shown |= {Path("/proc"): ["--proc", "/proc", "--remount-ro", "/proc"], Path("/dev"): ["--dev", "/dev"]}
    shown |= {path: ["--bind-fd", str(descriptor), str(path)] for path, descriptor in writable.items()}
    return _in_order(shown)


def agent_mounts(user: int, *, readable: Paths, writable: Mapping[Path, int | None], hidden: Paths) -> Mounts:
    """Return the mounts of processes that root starts as another user: the machine as that user sees it, without what
    is hidden, and with the folders of Python and those named here, even below a folder that the user may not enter."""
    needed = [*PYTHON, *readable, *writable]
    closed = {next((it for it in reversed(each.parents) if not _may_enter(it, user)), None) for each in needed}
    emptied = {each: empty_folder(each) for each in closed if each is not None}
    emptied |= {each: _mask(each) for each in _existing(path.resolve() for path in hidden)}
    above = {folder for each in needed for folder in each.parents if not emptied.keys().isdisjoint(folder.parents)}
    shown = {Path("/"): ["--dev-bind", "/", "/"]} | {each: ["--perms", "0755", "--dir", str(each)] for each in above}
    shown |= emptied | {path: _read(path) for path in (*PYTHON, *readable)}
    for path, descriptor in writable.items():
        shown[path] = [*(["--bind", str(path)] if descriptor is None else ["--bind-fd", str(descriptor)]), str(path)]
    return _in_order(shown)


def empty_folder(path: Path) -> list[str]:
    """Return the options of an empty folder in the place of another one."""
    return ["--perms", "0755", "--tmpfs", str(path)]


def user_named(name: str) -> int:
    """Return the user id of a name, or of a number as text. Raises ValueError."""
    with suppress(KeyError):
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    raise ValueError(f"there is no user {name!r} on this machine: create it, or name another one")


def group_of(user: int) -> int:
    """Return the group of a user; the id itself for a user that the machine does not list."""
    try:
        return pwd.getpwuid(user).pw_gid
    except KeyError:
        return user


def _in_order(mounts: Mounts) -> Mounts:
    """Put a folder before what lies in it."""
    return dict(sorted(mounts.items(), key=lambda it: len(it[0].parts)))


def _may_enter(folder: Path, user: int) -> bool:
    """Return whether the mode of a folder lets a user pass. Lists of access rights are not looked into."""
    status = folder.stat()
    if status.st_uid == user:
        return bool(status.st_mode & 0o100)
    return bool(status.st_mode & (0o010 if status.st_gid == group_of(user) else 0o001))


def _existing(paths: Iterable[Path]) -> list[Path]:
    return [each for each in paths if os.path.exists(each)]  # noqa: PTH110 - Path.exists raises where we may not look


def _read(path: Path) -> list[str]:
    return ["--ro-bind", str(path), str(path)]


def _link(path: Path) -> list[str]:
    return ["--symlink", str(path.readlink()), str(path)]


def _mask(path: Path) -> list[str]:
    return empty_folder(path) if os.path.isdir(path) else ["--ro-bind", os.devnull, str(path)]  # noqa: PTH112 - see above
