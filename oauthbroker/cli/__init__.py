"""The `oauthbroker` command. The rules of the interface:

- stdout holds the answer, stderr everything else. With `--json`, which each of our commands takes, stdout holds
  exactly one JSON document, also when the command refuses: `{"error": {"code", "message"}}`.
- Exit status: 0 done; 1 begun, but not all of it could be done; 2 refused, nothing was changed; 3 done here, but a
  provider has still to be told; 130 stopped by Ctrl-C. `token` and `run` also have 69 and 75 (`turn_call`).
- No secret is ever an argument, and none is ever printed but an API key, once, when it is made, and the token that a
  script asks for, never on a terminal.
- A command's module is imported when the command is called: `oauthbroker --help` loads no cryptography and no server.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.completion import completion_init  # type: ignore[attr-defined]  # no public name registers the shells
from typer.core import TyperGroup

from oauthbroker.cli.output import json_output
from oauthbroker.cli.output.commands_here import config_in, name_config
from oauthbroker.cli.output.error_output import in_json, start_status, tell, tell_calls, tell_unforeseen
from oauthbroker.cli.output.progress import SOMEWHERE, Stopped, unchanged
from oauthbroker.cli.plugin_commands import PluginCommands, plain_command, plugin_commands
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.refused import CRASHED, STOPPED, Refused, described
from oauthbroker.core.version import VERSION
from oauthbroker.serving.hardening import harden

DEBUG = "--debug"
COMPLETE = "_OAUTHBROKER_COMPLETE"
COMMANDS = {
    "demo": "Watch the whole story on this machine.",
    "login": "Connect your own account at a provider, without a server.",
    "status": "List your own connections.",
    "logout": "End your own connections at a provider: all accounts, or one.",
    "init": "Make the key and the keyring of a new store.",
    "config": "The configuration as a server reads it: show, schema.",
    "check": "Check a configuration and list its contents.",
    "doctor": "Check keys, store, disk, clock, providers and grants, and say what to do.",
    "health": "Check the health of a running broker.",
    "secrets": "Client secrets in the sealed store: set, list, remove.",
    "keys": "Seeds and keys of the store: status, new, rotate, reseal, retire, rewrap.",
    "store": "The store: copy, verify, export, import, accept-restore, reopen, migrate.",
    "serve": "Serve the pages and the API until told to stop.",
    "token": "Print an access token on stdout, for a script.",
    "run": "Run a command with an access token in its environment.",
    "api-keys": "Keys for the API: create, list, rotate, remove.",
    "audit": "The audit log: verify it, show its newest lines.",
    "grants": "Manage grants: list, show, revoke, erase, import.",
    "sessions": "Authorizations under way: list, show.",
    "queues": "Inspect and repair event queues: list, dead, retry, drop.",
    "completion": "Print the script that completes commands, options, apps and presets in a shell.",
    "providers": "Presets of providers: facts and their sources.",
}

# A module `cli.run` would replace the function of that name.
PLACES = {"run": "run_with_token"} | {name: f"{name}.commands" for name in ("doctor", "grants", "login")}


def command_of(name: str) -> Any:
    """Import a command when it is called. The help of a group of commands stands in the table above."""
    place = PLACES.get(name, name.replace("-", "_"))
    found: typer.Typer = import_module(f"oauthbroker.cli.{place}").app
    found.info.help = COMMANDS[name]
    return plain_command(found)


class Commands(TyperGroup):
    """The group of all commands, each with one line of help. A command's module is imported when it is called, and the
    declarations of plug-ins when the commands are listed, or another command than ours is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *self._of_plugins.plugins]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  (the name is typer's)
        """List our commands, and those of each plug-in below its name."""
        for title, lines in {"Commands": list(COMMANDS.items()), **self._of_plugins.sections()}.items():
            with formatter.section(title):
                formatter.write_dl(lines)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or self._of_plugins.line(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Raises Stopped at Ctrl-C, at which typer would end without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Stopped from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0] if args else ""
        with unchanged():
            command = command_of(name) if name in COMMANDS else self._of_plugins.command(name)
        if command is not None:
            self.commands[name] = command
            ctx.with_resource(_log_on_stderr())
        return super().resolve_command(ctx, args)

    @cached_property
    def _of_plugins(self) -> PluginCommands:
        """The commands of the installed plug-ins. Each that is left out is reported on stderr."""
        found = plugin_commands(COMMANDS)
        for problem in () if COMPLETE in os.environ else found.problems:
            typer.echo(problem, err=True)
        return found


def _log_on_stderr() -> AbstractContextManager[None]:
    from oauthbroker.observability.library_log import shown_to_people  # needed by no list of commands

    return shown_to_people(lambda line: typer.echo(line, err=True))


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # a pretty traceback quotes values
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"oauthbroker {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_tell_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Before the command: after an error, show the calls that led to it.")
    ] = False,
) -> None:
    """OAuth token broker for AI agents: ask the user once, store the grant encrypted, refresh it, resume the agent."""


for name, text in COMMANDS.items():
    app.command(name, help=text)(lambda: None)


def main() -> None:
    """Run the console script. Every refusal is a sentence on stderr. A reader that closed stdout, such as `head`, ends
    the command without one."""
    try:
        harden()
        status = run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:  # before or after the command
        typer.echo(SOMEWHERE, err=True)
        status = STOPPED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes at its end
        status = CRASHED
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit status. With `--json` stdout then holds the one document, also after a
    failure. A plug-in's command that chose its status has printed the document itself."""
    json_output.begin()
    name_config(config_in(arguments))
    status, refusal = _run(arguments)
    ours, command = _split(arguments)
    if refusal is not None and DEBUG in ours:
        tell_calls(refusal)
    chosen = refusal is None and status != STOPPED and command not in COMMANDS
    if json_output.wanted(arguments) and status != 0 and not chosen:
        _refuse_in_json(status, refusal)
    return status


def _split(arguments: list[str]) -> tuple[list[str], str]:
    """Return the options before the command, and the command."""
    at = next((at for at, word in enumerate(arguments) if not word.startswith("-")), len(arguments))
    return arguments[:at], next(iter(arguments[at:]), "")


def _run(arguments: list[str]) -> tuple[int, BaseException | None]:
    if COMPLETE in os.environ:  # a shell requests completions
        completion_init()
    try:
        status = app(arguments, prog_name="oauthbroker", standalone_mode=False)
    except SystemExit as end:
        return (end.code if isinstance(end.code, int) else CRASHED), None
    except (BrokerError, Refused) as error:
        return _refuse(error, arguments)
    except Stopped as stopped:
        typer.echo(str(stopped), err=True)
        return STOPPED, stopped
    except typer.Abort as stopped:
        typer.echo("Stopped.", err=True)
        return STOPPED, stopped
    except typer.TyperException as wrong:
        _tell_usage(wrong)
        return wrong.exit_code, wrong
    except Exception as crash:  # noqa: BLE001  (a traceback's last line may quote a secret)
        alone = crash
        while isinstance(alone, ExceptionGroup) and len(alone.exceptions) == 1:
            alone = alone.exceptions[0]
        if isinstance(alone, BrokerError | Refused):  # of one task among several
            return _refuse(alone, arguments)
        return tell_unforeseen(crash, plugin_commands(COMMANDS).foreign(_split(arguments)[1])), crash
    return (status if isinstance(status, int) else 0), None


def _refuse(error: BrokerError | Refused, arguments: list[str]) -> tuple[int, BaseException]:
    refusal = _naming_config(error, arguments)
    status = tell(refusal)
    return (start_status(refusal) if _split(arguments)[1] == "serve" else status), refusal


def _naming_config(error: BrokerError | Refused, arguments: list[str]) -> BrokerError | Refused:
    if not getattr(error, "problems", ()):
        return error
    from oauthbroker.cli.named_config import naming_config  # needed by a refused configuration alone
    from oauthbroker.config import ConfigInvalidError

    if not isinstance(error, ConfigInvalidError):
        return error
    return naming_config(error, arguments).with_traceback(error.__traceback__)  # `--debug` shows it


def _tell_usage(wrong: typer.TyperException) -> None:
    show = getattr(wrong, "show", None)  # of a usage error
    if show is not None:
        show()
    else:
        typer.echo(f"Error: {wrong.format_message()}", err=True)
    if getattr(wrong, "option_name", "") == "--client-secret":
        typer.echo("The secret is typed when asked for, or sent on stdin: --stdin.", err=True)


def _refuse_in_json(status: int, why: BaseException | None) -> None:
    """Print the JSON error of a command that printed no answer."""
    if isinstance(why, (BrokerError, Refused)):
        in_json(why)
    elif isinstance(why, typer.TyperException):
        json_output.refuse("usage", why.format_message())
    elif status == STOPPED:
        json_output.refuse("stopped", str(why) if isinstance(why, Stopped) else "Stopped before it was done.")
    else:
        json_output.refuse("crash", described(why) if why is not None else "The command ended without an answer.")
