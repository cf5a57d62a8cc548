"""Entries: the Python files of tools and extensions (specification 002, sections 2.7 and 15). Loading a configuration
runs no code of a bundle: it compares the keys of `handlers` with the exports where they are written out. `imported`
runs the file, in the process that calls the tool."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from oauthbroker.tools.types.foreign_values import described, one_line

MOST_BYTES: Final = 1024 * 1024
BASE: Final = "base:"
BASE_TOOLS: Final = ("base:agents", "base:bash", "base:file-system", "base:http-fetch")
HANDLERS: Final = "handlers"
REGISTER: Final = "register"
ProblemText = tuple[str, str]  # what, and the remedy


class EntryRefused(ValueError):
    """An entry cannot be used. The text says why."""


def entry_file(entry: str, folder: Path) -> Path:
    """Return the file of an entry, symbolic links followed. `base:bash` is a tool of this package. Raises EntryRefused
    for a path that leaves the folder of the bundle, and for anything but a Python file."""
    if entry in BASE_TOOLS:
        return Path(__file__).parents[1] / "base" / f"{entry.removeprefix(BASE).replace('-', '_')}.py"
    if entry.startswith(BASE):
        raise EntryRefused("there is no such base tool")
    if "\0" in entry or Path(entry).is_absolute():
        raise EntryRefused("not a path from the folder of the bundle")
    try:
        root = folder.resolve(strict=True)
        file = (root / entry).resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        raise EntryRefused("there is no such file") from None
    except (OSError, RuntimeError) as error:
        raise EntryRefused(f"its path cannot be followed: {type(error).__name__}") from None
    if not file.is_relative_to(root):
        raise EntryRefused("outside the folder of the bundle")
    if not file.is_file() or file.suffix != ".py":
        raise EntryRefused("not a Python file")
    return file


def entry_problem(entry: str, folder: Path, handlers: Iterable[str] | None) -> ProblemText | None:
    """Return why an entry cannot be used, without running it. `handlers`: the exports; None for an extension."""
    remedy = "name a Python file below the folder of the bundle, as in ./tools/bash.py"
    if entry.startswith(BASE):
        close = [f"the nearest is {each}; " for each in get_close_matches(entry, BASE_TOOLS, n=1)]
        remedy = "".join([*close, "there are ", ", ".join(BASE_TOOLS)])
    try:
        file = entry_file(entry, folder)
        remedy = "correct the file"
        tree = _parsed(file)
    except EntryRefused as error:
        return str(error), remedy
    name = REGISTER if handlers is None else HANDLERS
    bound, value = _binding(tree, name)
    if not bound:
        return f"a module without `{name}`", f"define `{name}` in it"
    missing = sorted(set(handlers or ()) - keys) if (keys := _keys(value)) is not None else []
    if missing:
        return f"a module whose `handlers` lacks {', '.join(missing)}", "add a handler for each export"
    return None


def imported(entry: str, folder: Path) -> ModuleType:
    """Run the file of an entry anew and return its module. Raises EntryRefused."""
    file = entry_file(entry, folder)
    if entry.startswith(BASE):
        return import_module(f"oauthbroker.tools.base.{file.stem}")
    name = f"oauthbroker_entry_{sha256(str(file).encode()).hexdigest()[:16]}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise EntryRefused("not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise EntryRefused(f"its import raised {described(error, file)}") from None
    return module


@contextmanager
def loading(owner: str, entry: str) -> Iterator[None]:
    """Add to each EntryRefused of the block what cannot be loaded from where."""
    try:
        yield
    except EntryRefused as error:
        raise EntryRefused(f"{owner} cannot be loaded from {entry}: {error}") from None


def entry_object(owner: str, entry: str, folder: Path, name: str, fits: Callable[[Any], bool]) -> Any:
    """Run the file of an entry anew, and return its object of a name. Raises EntryRefused, also if it does not fit."""
    with loading(owner, entry):
        found = getattr(imported(entry, folder), name, None)
        if not fits(found):
            raise EntryRefused(f"it has no usable `{name}`")
        return found


def _parsed(file: Path) -> ast.Module:
    with file.open("rb") as stream:
        source = stream.read(MOST_BYTES + 1)
    if len(source) > MOST_BYTES:
        raise EntryRefused("too large")
    try:
        return ast.parse(source)
    except SyntaxError as error:
        place = ":".join(str(each) for each in (file.name, error.lineno, error.offset) if each is not None)
        raise EntryRefused(f"not readable as Python, {place}: {one_line(error.msg)}") from None
    except (ValueError, RecursionError, MemoryError):
        raise EntryRefused(f"not readable as Python, {file.name}") from None


def _binding(tree: ast.Module, name: str) -> tuple[bool, ast.expr | None]:
    """Return whether a module may bind a name, and the expression if it assigns one and uses the name nowhere else."""
    uses, bound, value = 0, False, None
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=there)], value=given) if there == name:
                value = given
            case ast.AnnAssign(target=ast.Name(id=there), value=given) if there == name:
                value = given
            case ast.Name(id=there) if there == name:
                uses, bound = uses + 1, bound or isinstance(node.ctx, ast.Store)
            case ast.FunctionDef(name=there) | ast.AsyncFunctionDef(name=there) if there == name:
                bound = True
            case ast.ImportFrom(names=names) if any((each.asname or each.name) in {name, "*"} for each in names):
                bound = True
    return bound, value if uses == 1 else None


def _keys(value: ast.expr | None) -> set[str] | None:
    """Return the keys of a dictionary that is written out. None if they cannot be read."""
    if not isinstance(value, ast.Dict):
        return None
    keys = [key.value if isinstance(key, ast.Constant) else None for key in value.keys]
    texts = {key for key in keys if isinstance(key, str)}
    return texts if len(texts) == len(keys) else None
