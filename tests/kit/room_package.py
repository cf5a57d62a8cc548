"""Packages with an add-on room, made for one test: a module and the metadata that names its entry point."""

from __future__ import annotations

import re
from pathlib import Path

from tests.kit.rooms_installed import distribution

HEAD = """
from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from oauthbroker import (
    Background, BrokerError, Code, OpenRoom, RequestModel, Room, RoomEntry, RoomFinding, RoomRoute, Secret,
)

heard = []
"""


def install(folder: Path, name: str, code: str, declared: str = "open=here('open_room')") -> str:
    """Write the package of a room below a folder that the caller puts on `sys.path`. Return the name of its module,
    which is not used by another test: `here('x')` in `declared` is `module:x`."""
    module = "room_" + re.sub(r"\W", "_", f"{name}_{folder.parent.name}_{folder.name}")
    end = f"\n\ndef here(name):\n    return {module!r} + ':' + name\n\n\nROOM = Room(name={name!r}, {declared})\n"
    distribution(folder, module, {name: f"{module}:ROOM"}, **{module: HEAD + code + end})
    return module
