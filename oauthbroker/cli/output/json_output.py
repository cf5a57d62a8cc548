"""Print the one JSON document of `--json`: the answer, or the error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import typer

from oauthbroker.cli.output.commands_here import runnable

FLAG = "--json"
_answered: ContextVar[list[bool]] = ContextVar("oauthbroker_answered")  # a list: tasks have copies of the context


def wanted(arguments: Sequence[str]) -> bool:
    """Return whether this command line asks for JSON. Checked before parsing, which may fail."""
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return FLAG in words


def begin() -> None:
    """Reset for a new command line."""
    _answered.set([])


def answer(document: Any) -> None:
    """Print the document, with control characters escaped."""
    _answered.get([]).append(True)
    typer.echo(dumped(document))


def say(text: str, document: Any, *, as_json: bool) -> None:
    """Print the sentence, or the JSON document in its place."""
    if as_json:
        answer(document)
    else:
        typer.echo(runnable(text))


class ListAnswer:
    """Prints one JSON list in parts, so that a long one is never in memory: alone, or as the member `name` after the
    others of a document."""

    def __init__(self, document: Mapping[str, Any] | None = None, name: str = "") -> None:
        self._before, self._indent, self._end = "", "", "]"
        if document:
            self._before, self._indent, self._end = f'{dumped(document)[:-2]},\n  "{name}": ', "  ", "]\n}"
        self._is_empty = True

    def add(self, documents: Sequence[Any]) -> None:
        if documents:
            self._print(dumped(documents)[1:-2].replace("\n", f"\n{self._indent}"))
            self._is_empty = False

    def end(self) -> None:
        self._print(self._end if self._is_empty else f"\n{self._indent}{self._end}", is_end=True)

    def _print(self, text: str, *, is_end: bool = False) -> None:
        _answered.get([]).append(True)
        begun = "" if is_end and not self._is_empty else f"{self._before}[" if self._is_empty else ","
        typer.echo(f"{begun}{text}", nl=is_end)


def begin_stream() -> None:
    """Announce a stream: each line is a document of its own, until the user stops it. Stopping is no error."""
    _answered.get([]).append(True)


def one_of_many(document: Any) -> None:
    """Print one line of a stream."""
    typer.echo(dumped(document, indent=None))


def refuse(code: str, message: str, **more: Any) -> None:
    """Print the error of a command, unless an answer was printed."""
    if not _answered.get([]):
        answer({"error": {"code": code, "message": message, **more}})


def dumped(document: Any, *, indent: int | None = 2) -> str:
    """Return JSON for people and programs. Terminal control characters are escaped, all other text is kept."""
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def tell_record(record: dict[str, Any], *, as_json: bool) -> None:
    """Print the record. YAML escapes non-ASCII characters, so no stored text can control the terminal."""
    if as_json:
        answer(record)
    else:
        import yaml  # here: most commands need none

        typer.echo(yaml.safe_dump(record, sort_keys=False, allow_unicode=False, width=10_000).rstrip("\n"))
