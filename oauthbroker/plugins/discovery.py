"""Find the installed add-on rooms by their entry points. Nothing of a room is imported but its declaration."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any, Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.plugins.declaration import ResourceKind, Room

if TYPE_CHECKING:
    from pathlib import Path

    from oauthbroker.model.plugin_resources import RoomResources

GROUP: Final = "oauthbroker.plugins"


def installed() -> tuple[metadata.EntryPoint, ...]:
    """Return the entry points of the installed rooms, by name. The environment is searched once a process."""
    return _installed(tuple(sys.path))


@lru_cache(maxsize=4)
def _installed(_path: tuple[str, ...]) -> tuple[metadata.EntryPoint, ...]:
    return tuple(sorted(metadata.entry_points(group=GROUP), key=lambda it: it.name))


def declared(name: str) -> Room:
    """Return the declaration of an installed room. Raises `configInvalid` with a note that names the room."""
    found = [each for each in installed() if each.name == name]
    if not found:
        raise _refused(f"no room {name} is installed")
    if len(found) > 1:
        raise _refused(f"{' and '.join(sorted(map(package_of, found)))} both have a room {name}")
    try:
        room = found[0].load()
    except (Exception, SystemExit) as error:  # noqa: BLE001  (code of another package: anything may happen)
        broken = _refused(f"the room {name} of {package_of(found[0])} cannot be imported: {type(error).__name__}")
    else:
        if isinstance(room, Room) and room.name == name:
            return room
        broken = _refused(f"the entry point {name} of {package_of(found[0])} is not a Room of this name")
    raise broken


def package_of(point: metadata.EntryPoint) -> str:
    """Return the name of the package that an entry point belongs to."""
    return point.dist.name if point.dist is not None else "a package"


def named(room: Room, target: str) -> Any:
    """Import what a declaration names as `module:object`. Raises `configInvalid` with a note that names the room."""
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (code of another package: anything may happen)
        broken = _refused(f"the room {room.name} cannot import {target}: {type(error).__name__}")
    raise broken


def kinds_of(room: Room) -> tuple[ResourceKind, ...]:
    """Return the kinds of resources that a room declares. Raises `configInvalid` with a note that names the room."""
    kinds = named(room, room.kinds) if room.kinds else ()
    if isinstance(kinds, tuple) and all(isinstance(each, ResourceKind) for each in kinds):
        return kinds
    raise _refused(f"{room.kinds} of the room {room.name} is not a tuple of ResourceKind")


def secret_places_of(room: Room, store: Path, resources: RoomResources) -> tuple[str, ...]:
    """Return the files and folders of a room that no tool is to read. Raises `configInvalid` with a note that names the
    room."""
    if not room.secret_places:
        return ()
    try:
        return tuple(str(each) for each in named(room, room.secret_places)(store, resources))
    except BrokerError:
        raise
    except Exception as error:  # noqa: BLE001  (code of another package: anything may happen)
        broken = _refused(f"{room.secret_places} of the room {room.name} raised {type(error).__name__}")
    raise broken


def _refused(note: str) -> BrokerError:
    return BrokerError(Code.CONFIG_INVALID, note=note)
