"""Commands of the installed plug-ins. A plug-in's declaration says which there are; `app` is imported when called."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import typer
from typer.core import TyperCommand

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.refused import Refused
from oauthbroker.plugins.declaration import Plugin
from oauthbroker.plugins.discovery import declared, installed, named


@dataclass(slots=True)
class PluginCommands:
    """The plug-ins by their commands. `problems` are sentences about plug-ins and commands that are left out."""

    plugins: dict[str, Plugin] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def line(self, name: str) -> TyperCommand | None:
        """Return the command as a completion lists it."""
        plugin = self.plugins.get(name)
        return None if plugin is None else TyperCommand(name, help=plugin.commands[name].help)

    def foreign(self, name: str) -> str:
        """Return the plug-in of another package that has the command; empty for another one."""
        plugin = self.plugins.get(name)
        return "" if plugin is None or plugin.commands[name].app.startswith("oauthbroker.") else plugin.name

    def sections(self) -> dict[str, list[tuple[str, str]]]:
        """Return what `--help` lists below each plug-in's name: commands with their help."""
        found: dict[str, list[tuple[str, str]]] = {}
        for name, plugin in self.plugins.items():
            found.setdefault(f"Plug-in {plugin.name}", []).append((name, plugin.commands[name].help))
        return found

    def command(self, name: str) -> Any:
        """Import a command that is called. Raises Refused with a sentence that names the plug-in."""
        plugin = self.plugins.get(name)
        if plugin is None:
            return None
        try:
            app = named(plugin, plugin.commands[name].app)
        except BrokerError as error:
            raise Refused(
                f"{error.note}." if "pip install" in error.note else f"{error.note}. Update its package."
            ) from None
        if not isinstance(app, typer.Typer):
            raise Refused(f"The command {name} of the plug-in {plugin.name} is not a typer.Typer. Update its package.")
        return plain_command(app)


def plain_command(app: typer.Typer) -> Any:
    """Return the command of an app. Its help is plain text: the boxes of rich take as long as the rest of the start."""
    app.rich_markup_mode = None
    return typer.main.get_command(app)


def plugin_commands(ours: Collection[str]) -> PluginCommands:
    """Find the commands beside `ours`. A name that is ours, or of two plug-ins, is left out."""
    found, owners = PluginCommands(), dict[str, list[Plugin]]()
    for name in dict.fromkeys(each.name for each in installed()):
        try:
            plugin = declared(name)
        except BrokerError as error:
            found.problems.append(f"{error.note}. Its commands are left out.")
            continue
        for command in plugin.commands:
            owners.setdefault(command, []).append(plugin)
    for command, plugins in owners.items():
        names = " and ".join(each.name for each in plugins)
        if command in ours:
            found.problems.append(
                f"The command {command} of the plug-in {names} is left out: oauthbroker has one itself."
            )
        elif len(plugins) > 1:
            found.problems.append(f"The command {command} is left out: the plug-ins {names} both have it.")
        else:
            found.plugins[command] = plugins[0]
    return found
