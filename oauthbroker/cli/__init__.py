"""The `oauthbroker` command. The rules of the interface:

- stdout holds the answer, stderr everything else; `--json` answers in JSON.
- Exit status: 0 done; 1 begun, but not all of it could be done; 2 refused, nothing was changed; 3 done here, but a
  provider has still to be told; 130 stopped by Ctrl-C.
- No secret is ever an argument, and none is ever printed.
- A command's module is imported when the command is called: `oauthbroker --help` loads no cryptography and no server.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from oauthbroker.cli.process import harden
from oauthbroker.cli.refusals import CRASHED, Refused, tell, tell_crash
from oauthbroker.errors import BrokerError

COMMANDS = {
    "demo": "Watch the whole story on this machine.",
    "init": "Make the key and the keyring of a new store.",
    "check": "Check a configuration and list what it configures.",
    "secrets": "Client secrets in the sealed store: set, list, remove.",
    "serve": "Serve the connect pages and callbacks until told to stop.",
    "grants": "Grants people gave: list, show, revoke.",
    "providers": "Presets of providers: what is known, and how surely.",
}


class Commands(TyperGroup):
    """Knows every command by name and one line; the rest of a command comes when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            module = import_module(f"oauthbroker.cli.{args[0]}")
            self.commands[args[0]] = typer.main.get_command(module.app)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    help="OAuth tokens for the tools of agents: asks a person once, keeps the grant sealed, resumes the agent.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a pretty traceback quotes values
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, text in COMMANDS.items():
    app.command(name, help=text)(lambda: None)


def main() -> None:
    """The console script. Every refusal is a sentence on stderr."""
    harden()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """One command line -> its exit status."""
    try:
        app(arguments, prog_name="oauthbroker")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else CRASHED
    except (BrokerError, Refused) as refusal:
        return tell(refusal)
    except Exception as crash:  # noqa: BLE001  (a traceback's last line may quote what was being worked on)
        return tell_crash(crash)
    return 0
