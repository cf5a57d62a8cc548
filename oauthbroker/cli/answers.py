"""The one JSON document that `--json` puts on stdout: the answer or, where there is none, why not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import typer

FLAG = "--json"
_answered: ContextVar[bool] = ContextVar("oauthbroker_answered", default=False)


def wanted(arguments: Sequence[str]) -> bool:
    """Whether this command line asks for JSON; said before it is understood, because it may not be."""
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return FLAG in words


def begin() -> None:
    """A new command line: nothing is answered yet."""
    _answered.set(False)


def answer(document: Any) -> None:
    """Prints the document. No stored text in it can speak to a terminal."""
    _answered.set(True)
    typer.echo(dumped(document))


def begin_stream() -> None:
    """The answer will be lines, each a document of its own, until somebody stops it: that is no refusal."""
    _answered.set(True)


def one_of_many(document: Any) -> None:
    """One line of a stream."""
    typer.echo(dumped(document, indent=None))


def refuse(code: str, message: str, **more: Any) -> None:
    """The same for a command that does not do what it was asked; nothing after an answer."""
    if not _answered.get():
        answer({"error": {"code": code, "message": message, **more}})


def dumped(document: Any, *, indent: int | None = 2) -> str:
    """JSON for people and programs: what a terminal could obey is escaped, every other text is as it is."""
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)
