"""Print refusals: one sentence on stderr that says what to do, and an exit status."""

from __future__ import annotations

import sys
from typing import Any

import typer

from oauthbroker.cli.output import json_output
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.refused import CRASHED, REFUSED, Refused, described

HINTS = {
    Code.KEY_UNKNOWN: "For a new store: `oauthbroker init` makes the key.",
}

# Their own sentences speak of a call over HTTP. The note of a command names the value that is wrong.
NAMED_BY_THEIR_NOTE = frozenset({Code.REQUEST_INVALID, Code.NOT_FOUND})


def in_json(refusal: BrokerError | Refused) -> None:
    """Print a refusal as JSON on stdout: the code, the sentence, and the error's other fields."""
    if isinstance(refusal, Refused):
        json_output.refuse("refused", str(refusal), **refusal.more)
        return
    more: dict[str, Any] = {"note": refusal.note} if refusal.note else {}
    problems = getattr(refusal, "problems", ())
    if problems:
        more = {"problems": [problem.to_json() for problem in problems]}
    json_output.refuse(refusal.code.value, refusal.message(), **more)


def tell(refusal: BrokerError | Refused) -> int:
    """Print a refusal, with every problem of a configuration. Return the exit status."""
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
    told_by_note = refusal.note and refusal.code in NAMED_BY_THEIR_NOTE
    typer.echo(f"{refusal.code.value}: {refusal.note}" if told_by_note else str(refusal), err=True)
    if refusal.code in HINTS:
        typer.echo(HINTS[refusal.code], err=True)
    return REFUSED


def tell_crash(crash: BaseException) -> int:
    """Print where a command crashed, without the exception's text, which may quote a secret. Return the exit status."""
    typer.echo(f"Internal error in oauthbroker: {described(crash)}. Please report it with the command line.", err=True)
    return CRASHED


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation on a terminal; without one `--yes` is required. Raises Refused."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused("Nothing was changed: this cannot be undone, so without a terminal say --yes.")
    if not typer.confirm(question, err=True):
        raise Refused("Nothing was changed.")
