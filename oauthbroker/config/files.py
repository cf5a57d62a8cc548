"""Read the files of a bundle, within limits: one file, or a folder and all below it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from oauthbroker.config import yaml_reader
from oauthbroker.config.kinds import OURS, Kinds
from oauthbroker.config.problems import Problems, SourcePlace

MAX_BYTES: Final = 1024 * 1024
MAX_FILES: Final = 1000
MAX_TOTAL_BYTES: Final = 16 * MAX_BYTES
SUFFIXES: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class BundleFile:
    """One file of a bundle. `shown` is its name for reports."""

    shown: str
    folder: Path
    text: str


def read_files(path: Path, problems: Problems) -> list[BundleFile]:
    """Return the YAML files below `path`, in the order of their names. Nothing is written or executed."""
    found: list[BundleFile] = []
    left = MAX_TOTAL_BYTES
    for file in _files(path, problems):
        text = _text(file, min(MAX_BYTES, left), problems)
        if text is not None:
            left -= len(text)
            found.append(BundleFile(_shown(file), file.parent, text))
    return found


def documents_of(files: Iterable[BundleFile], problems: Problems, kinds: Kinds = OURS) -> list[yaml_reader.Document]:
    """Return every YAML document of the files."""
    return [it for each in files for it in yaml_reader.read(each.text, each.shown, each.folder, problems, kinds)]


def _files(path: Path, problems: Problems) -> list[Path]:
    """Return the files. Names with a leading dot are skipped: mounted folders keep older versions there."""
    if not path.is_dir():
        if path.exists():
            return [path]
        problems.unread = True
        problems.add(
            SourcePlace(_shown(path)),
            "",
            "there is no such file or folder",
            "name the folder that holds the YAML files",
        )
        return []
    found: list[Path] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(folder, name) for name in names if name.endswith(SUFFIXES) and not name.startswith(".")]
    if len(found) > MAX_FILES:
        problems.add(SourcePlace(_shown(path)), "", f"more than {MAX_FILES} YAML files", "name a smaller folder")
        problems.unread = True
        return []
    if not found:
        problems.add(
            SourcePlace(_shown(path)),
            "",
            "no YAML file here",
            "put *.yaml files there; `oauthbroker providers show NAME` prints one to start from",
        )
    return sorted(found)


def _text(file: Path, limit: int, problems: Problems) -> str | None:
    """Return the file's text, or None and a problem. No more than the limit is read."""
    raw = read_plain(file, limit)
    what = "not a readable plain file" if raw is None else "too large" if len(raw) > limit else ""
    todo = f"keep each file under {MAX_BYTES // 1024} kB and the bundle under {MAX_TOTAL_BYTES // 1024} kB"
    if raw is None or what:
        problems.add(
            SourcePlace(_shown(file)), "", what, todo if what == "too large" else "check its kind and permissions"
        )
        problems.unread = True
        return None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        problems.unread = True
    problems.add(SourcePlace(_shown(file)), "", "not UTF-8 text", "save it as UTF-8")
    return None


def read_plain(file: Path, most: int) -> bytes | None:
    """Return the file's bytes, or one more than `most` of a larger file. None for any other kind of file, such as a
    pipe, which is opened without waiting."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            return stream.read(most + 1) if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else None
    except OSError:
        return None


def _shown(path: Path) -> str:
    """Return a file's name on one line. It may hold anything but a slash; a report is one line."""
    return "".join(it if it.isprintable() else "?" for it in str(path))
