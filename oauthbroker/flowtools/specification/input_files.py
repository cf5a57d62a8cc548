"""The files that a command is given: tools, and the operator's policies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.specification.policies import Policy, load_policy
from oauthbroker.flowtools.specification.source import MOST_BYTES, FlowRefused
from oauthbroker.plugins import ConfigProblem, SourcePlace

_ENDINGS: Final = (".json", ".yaml", ".yml")


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


def input_policies(paths: list[Path]) -> tuple[list[Policy], list[ConfigProblem]]:
    """Return the policies and the problems of those that cannot be loaded. A second one of a name is a problem."""
    own: dict[str, Policy] = {}
    problems: list[ConfigProblem] = []
    for file in input_files(paths):
        try:
            loaded = load_policy(read_input(file), str(file))
        except FlowRefused as refused:
            problems += refused.problems
            continue
        if loaded.name in own:
            what, hint = "the name of another policy", "give each policy a name of its own"
            problems.append(ConfigProblem.at(SourcePlace(str(file), 1, 1), "name", what, hint))
        own.setdefault(loaded.name, loaded)
    return list(own.values()), problems
