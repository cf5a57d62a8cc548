"""What base tools share: the arguments that they need, answers within what an output of a call may have, and files
below folders that a tool may use, opened step by step, so that no link leads outside at any moment."""

from __future__ import annotations

import json
import os
import stat
from bisect import bisect_right
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from oauthbroker.tools.calling.context import Json, ToolContext, changeset_folders
from oauthbroker.tools.types.failures import ToolCode, ToolFailure
from oauthbroker.tools.types.results import VALUE

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def decoded(data: bytes, *, is_cut: bool) -> str:
    """Return bytes as a text, with U+FFFD for invalid UTF-8. A last character that was cut is left out."""
    return getincrementaldecoder("utf-8")("replace").decode(data, final=not is_cut)


def cut_to_output(answer: dict[str, Json], member: str, mark: str = "") -> bool:
    """Cut a text of an answer, `mark` at its end, so that the whole answer is an output that a call may have: control
    characters count six bytes in JSON. Return whether it was cut."""

    def size(text: str) -> int:
        return len(json.dumps(answer | {member: text}, ensure_ascii=False).encode())

    text = answer[member]
    if size(text) <= VALUE.size:
        return False
    lengths = range(min(len(text), VALUE.size))
    fits = bisect_right(lengths, VALUE.size, key=lambda length: size(text[:length] + mark)) - 1
    answer[member] = text[: max(fits, 0)] + mark
    return True


def needed(given: Mapping[str, object], name: str) -> str:
    """Return an argument that is a text. A Tool without `parameters` has nothing else that checks it."""
    if isinstance(value := given.get(name), str):
        return value
    problem = "is not a text" if name in given else "is missing"
    raise ToolFailure(f"The argument {name!r} {problem}.", name="ToolArgumentsError", code=ToolCode.ARGUMENTS)


class Confined(NamedTuple):
    """A path below one of the folders of a call."""

    root: Path
    parts: tuple[str, ...]

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)


def confined(ctx: ToolContext, path: str) -> Confined:
    """Return a path as one below the workdir or an open changeset. Raises ToolFailure for any other one."""
    given = Path(path)
    if "\0" not in path and ".." not in given.parts:
        for root in _roots(ctx):
            inside = given.relative_to(root) if given.is_absolute() and given.is_relative_to(root) else given
            if not inside.is_absolute() and inside.parts:
                return Confined(root, inside.parts)
    raise ToolFailure(
        "The path is not below the workdir or an open changeset.",
        name="PathRefused",
        suggestion="Use a path from the workdir, without '..', or one below the workdir of an open changeset.",
    )


def _roots(ctx: ToolContext) -> Iterator[Path]:
    """Yield the workdir, and then the open changesets, which are looked up only if they are needed."""
    yield ctx.workdir
    yield from changeset_folders.get()(ctx)


@contextmanager
def opened_folder(place: Confined, *, make: bool = False) -> Iterator[int]:
    """Open the folder of a file. `make`: make those that are missing. Raises OSError."""
    descriptor = os.open(place.root, _FOLDER)
    try:
        for name in place.parts[:-1]:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
            above, descriptor = descriptor, os.open(name, _FOLDER, dir_fd=descriptor)
            os.close(above)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_file(place: Confined) -> Iterator[int]:
    """Open a regular file for reading. Raises OSError, and ToolFailure for a device, a pipe or a folder."""
    with opened_folder(place) as folder:
        descriptor = os.open(place.parts[-1], os.O_RDONLY | _FILE, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ToolFailure("The path is not a regular file.", name="PathRefused")
        yield descriptor
    finally:
        os.close(descriptor)


def replace_file(place: Confined, content: bytes, *, unique: str) -> None:
    """Write a file whole or not at all. A hard link at its place is replaced and not written through. `unique` names
    the temporary file. Raises as `opened_file`."""
    name, temporary = place.parts[-1], f".{sha256(unique.encode()).hexdigest()[:24]}.tmp"
    with opened_folder(place, make=True) as folder:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        try:
            with open(os.open(temporary, flags, _mode(place), dir_fd=folder), "wb") as target:  # noqa: PTH123
                target.write(content)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def _mode(place: Confined) -> int:
    """Return the permissions of a new file: those of the file that it replaces, if there is one. Raises as a read."""
    try:
        with opened_file(place) as descriptor:
            return os.fstat(descriptor).st_mode & 0o777
    except FileNotFoundError:
        return 0o644
