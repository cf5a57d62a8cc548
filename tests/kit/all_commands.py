"""Every command of the command line, of plug-ins too."""

from __future__ import annotations

import functools
from typing import Any

from oauthbroker import cli
from oauthbroker.cli.plugin_commands import plugin_commands


@functools.cache
def commands() -> dict[str, Any]:
    """Return all commands by their names, such as `grants list`."""
    found: dict[str, Any] = {}
    plugins = plugin_commands(cli.COMMANDS)
    for name in (*cli.COMMANDS, *plugins.plugins):
        is_ours = name in cli.COMMANDS
        command: Any = cli.command_of(name) if is_ours else plugins.command(name)
        parts = getattr(command, "commands", None)
        found |= {f"{name} {part}": each for part, each in parts.items()} if parts else {name: command}
    return found
