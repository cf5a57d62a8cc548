"""Read the files of a bundle, within limits: one file, or a folder and all below it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from oauthbroker.config.problems.problems import Problems, SourcePlace
from oauthbroker.config.reading import yaml_reader
from oauthbroker.config.written.kinds import OURS, Kinds
from oauthbroker.core.dataclasses import dataclass

MAX_BYTES: Final = 1024 * 1024
MAX_FILES: Final = 1000
MAX_TOTAL_BYTES: Final = 16 * MAX_BYTES
SUFFIXES: Final = (".yaml", ".yml")
ENVIRONMENT: Final = ".env"


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
    for file in bundle_files(path, problems):
        text = _text(file, min(MAX_BYTES, left), problems)
        if text is not None:
            left -= len(text)
            found.append(BundleFile(shown(file), file.parent, text))
    return found


def documents_of(
    files: Iterable[BundleFile], problems: Problems, kinds: Kinds = OURS
) -> list[yaml_reader.YamlDocument]:
    """Return every YAML document of the files."""
    return [it for each in files for it in yaml_reader.read(each.text, each.shown, each.folder, problems, kinds)]


def bundle_files(path: Path, problems: Problems) -> list[Path]:
    """Return the files. Names with a leading dot are skipped: mounted folders keep older versions there."""
    if not path.is_dir():
        if path.exists():
            return [path]
        hint = "name the folder that holds the YAML files"
        _report_unread(path, "no such file or directory", hint, problems)
        return []
    found: list[Path] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(folder, name) for name in names if name.endswith(SUFFIXES) and not name.startswith(".")]
    if len(found) > MAX_FILES:
        _report_unread(path, f"more than {MAX_FILES} YAML files", "name a smaller folder", problems)
        return []
    if not found:
        hint = "put *.yaml files there; `oauthbroker providers show NAME` prints one to start from"
        problems.add(SourcePlace(shown(path)), "", "no YAML file here", hint)
    return sorted(found)


def configuration_files(folder: Path, *, deep: bool) -> list[Path]:
    """Return what a bundle's folder holds beside the code of tools: its YAML files, and files and folders whose names
    begin with a dot, such as `.env` and `.git`. `deep`: the bundle is the folder, and not one file in it."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        here = [*folders, *names] if Path(place) == folder else []
        found += [Path(place, each) for each in here if each.startswith(".") and not each.startswith("..")]
        folders[:] = [each for each in folders if deep and not each.startswith(".")]
        found += [Path(place, each) for each in names if each.endswith(SUFFIXES)]
    return found


def environment_file(bundle: Path) -> Path:
    """Return the place of the file of variables beside a bundle."""
    return bundle.absolute().parent / ENVIRONMENT


def _text(file: Path, limit: int, problems: Problems) -> str | None:
    """Return the file's text, or None and a problem. No more than the limit is read."""
    raw = read_plain(file, limit)
    if raw is None:
        _report_unread(file, "not a readable plain file", "check its kind and permissions", problems)
    elif len(raw) > limit:
        hint = f"keep each file under {MAX_BYTES // 1024} kB and the bundle under {MAX_TOTAL_BYTES // 1024} kB"
        _report_unread(file, "too large", hint, problems)
    else:
        with suppress(UnicodeDecodeError):
            if b"\0" not in raw:  # UTF-16 without its mark
                return raw.decode("utf-8-sig")
        _report_unread(file, "not UTF-8 text", "save it as UTF-8", problems)
    return None


def _report_unread(path: Path, what: str, hint: str, problems: Problems) -> None:
    problems.add(SourcePlace(shown(path)), "", what, hint)
    problems.unread = True


def read_plain(file: Path, most: int) -> bytes | None:
    """Return the file's bytes, or one more than `most` of a larger file. None for any other kind of file, such as a
    pipe, which is opened without waiting."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            return stream.read(most + 1) if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else None
    except OSError:
        return None


def absolute(folder: Path, path: str) -> str:
    """Return a path from this folder, absolute and without `..`, links not followed: a mount may appear later."""
    return os.path.abspath(folder / Path(path).expanduser())  # noqa: PTH100 - resolve() follows links


def shown(path: Path) -> str:
    """Return a file's name on one line. It may hold anything but a slash; a report is one line."""
    return "".join(it if it.isprintable() else "?" for it in str(path))
