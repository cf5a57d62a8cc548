"""Find the files that a command is given, and read JSON or YAML into data that remembers the place of every value."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from oauthbroker import BrokerError, Code, ConfigInvalidError
from oauthbroker.flowtools.specification.failures import json_fault
from oauthbroker.plugins import ConfigProblem, SourcePlace, YamlDocument, harmless_text, read_json, read_yaml

Keys = tuple[str | int, ...]
MOST_BYTES: Final = 1024 * 1024
MOST_VALUES: Final = 20_000
_ENDINGS: Final = (".json", ".yaml", ".yml")


class FlowRefused(ValueError):
    """A document was refused as a whole. `problems` has everything that was found, in the order of the file."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda each: (each.file, each.line, each.column)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSource:
    """A document as written. `digest` is the SHA-256 of its bytes."""

    document: YamlDocument = field(repr=False)
    digest: str

    @property
    def file(self) -> str:
        return self.document.file

    @property
    def data(self) -> Any:
        return self.document.data

    def problem(self, path: Keys, what: str, hint: str) -> ConfigProblem:
        """Return a problem at a path, or at the nearest value around it."""
        shown = "".join(f"[{each}]" if isinstance(each, int) else f".{each[:64]!s}" for each in path).lstrip(".")
        return ConfigProblem.at(self.document.value_at(path), harmless_text(shown), what, hint)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return what to do about a name that is not known; empty if none that is known looks like it."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f"the nearest known name is {close[0]}" if close else ""


def refusal_at(file: str, what: str, hint: str) -> FlowRefused:
    """Return the refusal of a file as a whole."""
    return FlowRefused([ConfigProblem.at(SourcePlace(file, 1, 1), "", what, hint)])


def read_source(raw: bytes, file: str) -> FlowSource:
    """Read one document: YAML where the file's name ends in `.yaml` or `.yml`, else JSON. Raises FlowRefused."""
    try:
        documents = read_yaml(raw.decode(), file) if file.endswith((".yaml", ".yml")) else [read_json(raw, file)]
    except UnicodeDecodeError:
        raise refusal_at(file, "no UTF-8", "save it as UTF-8") from None
    except ConfigInvalidError as refused:
        raise FlowRefused(refused.problems) from None
    if not documents:
        raise refusal_at(file, "an empty file", "write one document")
    if len(documents) > 1:
        place = documents[1].value_at(())
        raise FlowRefused([ConfigProblem.at(place, "", "a second document", "write one document to a file")])
    if len(documents[0].values) > MOST_VALUES:
        raise refusal_at(file, f"more than {MOST_VALUES} values", "split it")
    source = FlowSource(document=documents[0], digest=hashlib.sha256(raw).hexdigest())
    if (fault := json_fault(source.data)) is not None:
        raise FlowRefused([source.problem(fault[0], f"a value that no flow takes ({fault[1]})", "write another one")])
    return source


def input_files(paths: list[Path]) -> list[Path]:
    """Return the files, and those in the folders. Raises BrokerError for a folder without any."""
    found = []
    for path in paths:
        inside = sorted(each for each in path.rglob("*") if each.suffix in _ENDINGS) if path.is_dir() else [path]
        if not inside:
            raise BrokerError(Code.REQUEST_INVALID, note=f"{path}: no .json, .yaml or .yml file")
        found += inside
    return found


def read_input(file: Path) -> bytes:
    """Return the bytes of a file, at most one too many. Raises BrokerError."""
    try:
        with file.open("rb") as source:
            return source.read(MOST_BYTES + 1)
    except OSError as error:
        raise BrokerError(Code.REQUEST_INVALID, note=f"{file}: {error.strerror}") from None
