"""Print refusals: one sentence on stderr that says what to do, and an exit status."""

from __future__ import annotations

import errno
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from oauthbroker.cli.output import json_output
from oauthbroker.cli.output.commands_here import runnable
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.extras import missing_extra
from oauthbroker.core.foreign_code import why_of
from oauthbroker.core.refused import CRASHED, REFUSED, TEMPORARY, Refused, RefusedForNow, described
from oauthbroker.core.version import VERSION

_PACKAGE = Path(__file__).parents[2]
_INSTALLED, _IN_REPOSITORY = _PACKAGE / "docs" / "errors.md", _PACKAGE.parent / "docs" / "errors.md"
PAGE = _INSTALLED if _INSTALLED.exists() else _IN_REPOSITORY

_DISKS = {
    errno.ENOSPC: "the disk is full. Free space",
    errno.EDQUOT: "the quota of this user is used up. Free space",
    errno.EROFS: "the disk is read-only. Mount it for writing, or set XDG_DATA_HOME to another folder",
}

# Their own sentences speak of a call over HTTP. The note of a command names the value that is wrong.
NAMED_BY_THEIR_NOTE = frozenset({Code.REQUEST_INVALID, Code.NOT_FOUND})


def in_json(refusal: BrokerError | Refused) -> None:
    """Print a refusal as JSON on stdout: the code, the sentence, and the error's other fields."""
    if isinstance(refusal, Refused):
        json_output.refuse("refused", runnable(str(refusal)), **refusal.more)
        return
    more: dict[str, Any] = {"note": runnable(refusal.note)} if refusal.note else {}
    problems = getattr(refusal, "problems", ())
    if problems:
        more = {"problems": [problem.to_json() for problem in problems]}
    json_output.refuse(refusal.code.value, runnable(refusal.message()), **more)


def tell(refusal: BrokerError | Refused) -> int:
    """Print a refusal, with every problem of a configuration. Return the exit status."""
    if isinstance(refusal, Refused):
        typer.echo(runnable(str(refusal)), err=True)
        return REFUSED
    problems = getattr(refusal, "problems", ())
    if problems:
        tell_problems(problems)
        return REFUSED
    if refusal.code is Code.CONFIG_INVALID and refusal.sentence:
        typer.echo(runnable(str(refusal)), err=True)
        return REFUSED
    if refusal.note and refusal.code in NAMED_BY_THEIR_NOTE:
        typer.echo(runnable(f"{refusal.code.value}: {refusal.note}"), err=True)
        return REFUSED
    typer.echo(runnable(f"{refusal}\n  {see(refusal.code)}"), err=True)
    return REFUSED


def tell_problems(problems: Sequence[object]) -> None:
    """Print every problem of a configuration, and that it was not used."""
    for problem in problems:
        typer.echo(str(problem), err=True)
    count = len(problems)
    typer.echo(f"{count} problem{'s' if count != 1 else ''}; nothing of this configuration was used.", err=True)


def start_status(refusal: BrokerError | Refused) -> int:
    """Return the exit status of a server that cannot start: whether a later start may go well."""
    is_temporary = refusal.is_temporary if isinstance(refusal, BrokerError) else isinstance(refusal, RefusedForNow)
    return TEMPORARY if is_temporary else REFUSED


def see(code: Code) -> str:
    """Return where the page of errors explains a code: a file of the installed package, which needs no network."""
    return f"See {PAGE}#{anchor_of(code)}"


def anchor_of(code: Code) -> str:
    """Return `store-unavailable` for `storeUnavailable`."""
    return re.sub("([A-Z])", r"-\1", code.value).lower()


def tell_unforeseen(crash: BaseException, plugin: str = "") -> int:
    """Print which extra is missing, what this machine lacks, or where a command crashed, of `plugin` or of ours,
    without the exception's text, which may quote a secret. Return the exit status."""
    if needs := missing_extra(crash):
        typer.echo(f"This command cannot run here: {needs}.", err=True)
        return REFUSED
    if lacks := _lack_of(crash):
        typer.echo(lacks, err=True)
        return REFUSED
    if plugin:
        typer.echo(f"The plug-in {plugin} failed: {why_of(crash)}. Update its package, or report this line.", err=True)
        return CRASHED
    typer.echo(
        f"Internal error in oauthbroker {VERSION}: {described(crash)}.\n"
        "  Please report this line with the command line. `oauthbroker --debug ...` shows the calls that led here.",
        err=True,
    )
    return CRASHED


def _lack_of(crash: BaseException) -> str:
    """Return what this machine lacks, and what to do; empty for a fault of ours."""
    if isinstance(crash, OSError) and crash.errno in _DISKS:
        return f"A file could not be written: {_DISKS[crash.errno]}, and type this again."
    if isinstance(crash, RuntimeError) and "home directory" in str(crash):
        return "This user has no home folder. Set HOME or XDG_DATA_HOME to a folder of your own."
    return ""


def tell_calls(error: BaseException) -> None:
    """Print the calls that led to an error, without the texts of foreign exceptions, which may quote a secret."""
    for each in _causes(error):
        said = f"{each}" if isinstance(each, (BrokerError, Refused)) else "its text is left out, it may quote a secret"
        typer.echo("".join(traceback.format_tb(each.__traceback__)).rstrip("\n"), err=True)
        typer.echo(f"{type(each).__module__}.{type(each).__qualname__}: {said}", err=True)


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error after those that it follows from."""
    found: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in found:
        found.insert(0, at)
        at = at.__cause__ or at.__context__
    return found


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation on a terminal; without one `--yes` is required. Raises Refused."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused("Nothing was changed: this cannot be undone, so without a terminal say --yes.")
    if not typer.confirm(question, err=True):
        raise Refused("Nothing was changed.")


def ask(question: str, default: str = "", *, hidden: bool = False) -> str:
    """Return what a person types at a terminal, without white space around it; `default` for nothing."""
    said: str = typer.prompt(question, default=default, hide_input=hidden, show_default=bool(default), err=True)
    return said.strip()
