"""How a command says no: one sentence on stderr that says what to do, and an exit status."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import typer

from oauthbroker.cli import answers
from oauthbroker.errors import BrokerError, Code

CRASHED, REFUSED, STOPPED = 1, 2, 130

HINTS = {
    Code.KEY_UNKNOWN: "For a new store: `oauthbroker init` makes the key.",
}


class Refused(Exception):
    """A command refuses for a reason of its own. The text is ours, says what to do, and holds nothing secret; `more`
    is what a program gets beside it."""

    def __init__(self, text: str, **more: Any) -> None:
        super().__init__(text)
        self.more = more


def in_json(refusal: BrokerError | Refused) -> None:
    """The same for a program, on stdout: the code, the sentence, and what else the error knows."""
    if isinstance(refusal, Refused):
        answers.refuse("refused", str(refusal), **refusal.more)
        return
    more: dict[str, Any] = {"note": refusal.note} if refusal.note else {}
    problems = getattr(refusal, "problems", ())
    if problems:
        more = {"problems": [problem.to_json() for problem in problems]}
    answers.refuse(refusal.code.value, refusal.message(), **more)


def tell(refusal: BrokerError | Refused) -> int:
    """Prints a refusal, every problem of a configuration included."""
    if isinstance(refusal, Refused):
        typer.echo(str(refusal), err=True)
        return REFUSED
    problems = getattr(refusal, "problems", ())
    for problem in problems:
        typer.echo(str(problem), err=True)
    if problems:
        count = len(problems)
        typer.echo(f"{count} problem{'s' if count != 1 else ''}; nothing of this configuration was used.", err=True)
        return REFUSED
    typer.echo(str(refusal), err=True)
    if refusal.code in HINTS:
        typer.echo(HINTS[refusal.code], err=True)
    return REFUSED


def tell_crash(crash: BaseException) -> int:
    """What broke and where, without the exception's own words: those may quote what was being worked on."""
    typer.echo(f"oauthbroker broke: {described(crash)}. Please report this with the command that you typed.", err=True)
    return CRASHED


def described(crash: BaseException) -> str:
    """`KeyError at wiring.py:120, grants.py:31`: the type and the innermost lines."""
    while isinstance(crash, BaseExceptionGroup):
        crash = crash.exceptions[0]
    frames = traceback.extract_tb(crash.__traceback__)[-3:]
    places = ", ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(crash).__name__} at {places or 'an unknown place'}"


def confirm(question: str, *, yes: bool) -> None:
    """Asks on a terminal; elsewhere somebody must have said `--yes`. Raises Refused."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused("Nothing was changed: this cannot be undone, so say --yes where nobody can be asked.")
    if not typer.confirm(question, err=True):
        raise Refused("Nothing was changed.")
