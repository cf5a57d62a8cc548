"""`oauthbroker run`: become a command that finds a token in its environment, or at a file descriptor."""

from __future__ import annotations

import os
import re
import signal
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from oauthbroker.cli.output.options import AsJson
from oauthbroker.cli.output.tables import shown
from oauthbroker.cli.turn_call import (
    Account,
    AppArgument,
    Lifetime,
    Scopes,
    call_of,
    is_of_turn,
    own_connection,
    own_refusals,
    token_for,
)
from oauthbroker.client.address import LOCALE, URL
from oauthbroker.core.program_variables import is_of_system
from oauthbroker.core.refused import Refused
from oauthbroker.core.secret import Secret

NAME, DEFAULT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*"), "OAUTHBROKER_ACCESS_TOKEN"
USUAL = re.compile(r"[A-Z][A-Z0-9_]*_(TOKEN|KEY)")
OF_A_COMMAND = frozenset({URL, LOCALE, DEFAULT_NAME})  # each other one of ours is a key, or a setting that may hold one
NOT_RUN, NOT_FOUND = 126, 127  # as a shell, env and nohup have it (POSIX, 2.8.2)
CHANGED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)  # ignored in this process, and so after exec

app = typer.Typer(add_completion=False)


class AppBeforeDashes(TyperCommand):
    """The command line `APP -- COMMAND...`, where a word after `--` is never the app."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002  (the name is typer's)
        return ["[OPTIONS]", "APP", "-- COMMAND..."]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse without the command if no app stands before `--`, so that the app is reported as missing."""
        end = args.index("--") if "--" in args else len(args)
        values, _, _ = self.make_parser(ctx).parse_args(args[:end])
        return super().parse_args(ctx, args if isinstance(values.get("app_name"), str) else args[:end])


@app.command("run", cls=AppBeforeDashes)
def run_command(
    app_name: AppArgument,
    words: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The command, after `--`.")],
    env: Annotated[
        str | None,
        typer.Option("--env", help=f"The variable with the token, in place of the usual ones; else {DEFAULT_NAME}."),
    ] = None,
    descriptor: Annotated[
        int | None, typer.Option("--fd", help="Give the token by this file descriptor instead.")
    ] = None,
    account: Account = None,
    scopes: Scopes = None,
    min_ttl: Lifetime = None,
    as_json: AsJson = False,
) -> None:
    """Run a command with an access token in its environment.

    It is that of your own connection, which `oauthbroker login APP` makes. With OAUTHBROKER_URL and
    OAUTHBROKER_TURN_TOKEN, which a runtime sets for a tool, it is that of the turn, and only that.
    The token is never in arguments. The command replaces this process: its exit status and its signals are its own. It
    gets no turn token, and no key or setting of ours.
    Exit status 75: the user must agree first, and stderr says how. 69: try again later. 2: refused. 126: the command
    cannot be run. 127: there is no such command.
    """
    if env is not None and descriptor is not None:
        raise Refused("Say --env or --fd, not both: the command gets the token once.")
    if env is not None and not NAME.fullmatch(env):
        raise Refused("--env takes the name of a variable: letters, digits and underscores.")
    if env is not None and is_of_system(env):
        raise Refused(f"{env} is read by the system or the shell itself, and would show the token. Use another name.")
    if descriptor is not None and descriptor < 3:
        raise Refused("--fd takes a number above 2: 0 to 2 are the command's own input and output.")
    variables = {name: value for name, value in os.environ.items() if not is_ours(name)}
    ref = call_of("run", app_name, account)
    values = _key_values(ref, as_json=as_json)
    if values and (env is not None or descriptor is not None):
        raise Refused("A key goes into the variables that its app names, and not by --env or --fd.")
    if not values:
        wanted = env is None and descriptor is None
        ready, names = token_for(ref, scopes, min_ttl, as_json=as_json, named=wanted)
        if descriptor is not None:
            _put(ready.access_token, descriptor)
        else:
            values = dict.fromkeys(_variables(env, names), ready.access_token)
    _become(words, variables | {name: value.reveal() for name, value in values.items()})


def is_ours(name: str) -> bool:
    """Return whether a variable is the broker's own, and not a command's: it may open more than the one token."""
    return name.startswith("OAUTHBROKER_") and name not in OF_A_COMMAND


def _key_values(ref: str, *, as_json: bool) -> dict[str, Secret]:
    """Return the values of the person's own key by their variables. Empty for an app with tokens."""
    if is_of_turn():  # a turn is never handed a key
        return {}
    from oauthbroker.personal.handed_out import key_values

    with own_refusals(as_json=as_json):
        return key_values(own_connection(ref))


def _variables(env: str | None, names: tuple[str, ...]) -> list[str]:
    """Return the variables for a token. A broker elsewhere names only those that look like one."""
    if env is not None:
        return [env]
    return [name for name in names if USUAL.fullmatch(name) and not is_ours(name)] or [DEFAULT_NAME]


def _put(token: Secret, descriptor: int) -> None:
    """Make the token readable once at this descriptor, which the command inherits. Raises Refused.

    A pipe holds it, so no file has it, and the end of the token is the end of the file.
    """
    reads, writes = os.pipe()
    try:
        os.set_blocking(writes, False)
        text = token.reveal().encode()
        fits = os.write(writes, text) == len(text)
        os.close(writes)  # first: it may have the number that the command wants
        os.dup2(reads, descriptor)  # inheritable, also where it has this number already
        os.set_inheritable(descriptor, True)
    except (OSError, OverflowError):
        fits = False
    if not fits:
        raise Refused("The token cannot be given by this file descriptor: use a lower number, or --env.")


def _become(words: list[str], env: dict[str, str]) -> NoReturn:
    """Replace this process by the command. Ends with 126 or 127 if that fails."""
    sys.stdout.flush()
    sys.stderr.flush()
    for number in CHANGED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(words[0], words, env)  # noqa: S606  (no shell on purpose)
    except (FileNotFoundError, NotADirectoryError):
        status, problem = NOT_FOUND, f"there is no such command: {shown(words[0])}"
    except (OSError, ValueError):
        status, problem = NOT_RUN, f"the command cannot be run: {shown(words[0])}"
    typer.echo(f"oauthbroker run: {problem}.", err=True)
    raise typer.Exit(status)
