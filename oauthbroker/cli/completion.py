"""`oauthbroker completion`: print the completion script of a shell. The script's requests are typer's own protocol."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # typer exports it by no list

from oauthbroker.cli import COMPLETE
from oauthbroker.cli.output.json_output import say
from oauthbroker.cli.output.options import AsJson

app = typer.Typer(add_completion=False)


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command("completion")
def completion_command(
    shell: Annotated[Shell, typer.Argument(help="For which shell.")], as_json: AsJson = False
) -> None:
    """Print the script that completes commands, options, apps and presets in a shell.

    bash: eval "$(oauthbroker completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit.
    fish: oauthbroker completion fish > ~/.config/fish/completions/oauthbroker.fish
    """
    script = get_completion_script(prog_name="oauthbroker", complete_var=COMPLETE, shell=shell.value)
    say(script, {"shell": shell.value, "script": script}, as_json=as_json)
