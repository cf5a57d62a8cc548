"""Commands of the installed add-on rooms. A room's declaration says which there are; `app` is imported when called."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import typer
from typer.core import TyperCommand

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.refused import Refused
from oauthbroker.plugins.declaration import Room
from oauthbroker.plugins.discovery import declared, installed, named


@dataclass(slots=True)
class RoomCommands:
    """The rooms by their commands. `flaws` are sentences about rooms and commands that are left out."""

    rooms: dict[str, Room] = field(default_factory=dict)
    flaws: list[str] = field(default_factory=list)

    def line(self, name: str) -> TyperCommand | None:
        """Return the command as a completion lists it."""
        room = self.rooms.get(name)
        return None if room is None else TyperCommand(name, help=room.commands[name].help)

    def sections(self) -> dict[str, list[tuple[str, str]]]:
        """Return what `--help` lists below each room's name: commands with their help."""
        found: dict[str, list[tuple[str, str]]] = {}
        for name, room in self.rooms.items():
            found.setdefault(f"Room {room.name}", []).append((name, room.commands[name].help))
        return found

    def command(self, name: str) -> Any:
        """Import a command that is called. Raises Refused with a sentence that names the room."""
        room = self.rooms.get(name)
        if room is None:
            return None
        try:
            app = named(room, room.commands[name].app)
        except BrokerError as error:
            raise Refused(f"{error.note}. Update its package.") from None
        if not isinstance(app, typer.Typer):
            raise Refused(f"The command {name} of the room {room.name} is not a typer.Typer. Update its package.")
        return plain_command(app)


def plain_command(app: typer.Typer) -> Any:
    """Return the command of an app. Its help is plain text: the boxes of rich take as long as the rest of the start."""
    app.rich_markup_mode = None
    return typer.main.get_command(app)


def room_commands(ours: Collection[str]) -> RoomCommands:
    """Find the commands beside `ours`. A name that is ours, or of two rooms, is left out."""
    found, owners = RoomCommands(), dict[str, list[Room]]()
    for name in dict.fromkeys(each.name for each in installed()):
        try:
            room = declared(name)
        except BrokerError as error:
            found.flaws.append(f"{error.note}. Its commands are left out.")
            continue
        for command in room.commands:
            owners.setdefault(command, []).append(room)
    for command, rooms in owners.items():
        names = " and ".join(each.name for each in rooms)
        if command in ours:
            found.flaws.append(f"The command {command} of the room {names} is left out: oauthbroker has one itself.")
        elif len(rooms) > 1:
            found.flaws.append(f"The command {command} is left out: the rooms {names} both have it.")
        else:
            found.rooms[command] = rooms[0]
    return found
