"""oauthbroker: OAuth tokens for tool-calling agents. The public names, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.turn import Turn, TurnAuth

if TYPE_CHECKING:
    from oauthbroker.broker import Broker
    from oauthbroker.config.fields import Strict, Tolerant
    from oauthbroker.model.results import AuthorizationRequired, Failed, Ready, TokenResult
    from oauthbroker.model.room_resources import RoomResource, RoomResources
    from oauthbroker.rooms.declaration import (
        Background,
        OpenRoom,
        ResourceKind,
        Room,
        RoomCommand,
        RoomFinding,
        WrittenResource,
        WrittenResources,
    )
    from oauthbroker.wiring import open_broker

__all__ = [
    "AuthorizationRequired",
    "Background",
    "Broker",
    "BrokerError",
    "Code",
    "Failed",
    "OpenRoom",
    "Ready",
    "ResourceKind",
    "Room",
    "RoomCommand",
    "RoomFinding",
    "RoomResource",
    "RoomResources",
    "Secret",
    "Strict",
    "TokenResult",
    "Tolerant",
    "Turn",
    "TurnAuth",
    "WrittenResource",
    "WrittenResources",
    "open_broker",
]

_LAZY = {
    "AuthorizationRequired": "oauthbroker.model.results",
    "Background": "oauthbroker.rooms.declaration",
    "Broker": "oauthbroker.broker",
    "Failed": "oauthbroker.model.results",
    "OpenRoom": "oauthbroker.rooms.declaration",
    "Ready": "oauthbroker.model.results",
    "ResourceKind": "oauthbroker.rooms.declaration",
    "Room": "oauthbroker.rooms.declaration",
    "RoomCommand": "oauthbroker.rooms.declaration",
    "RoomFinding": "oauthbroker.rooms.declaration",
    "RoomResource": "oauthbroker.model.room_resources",
    "RoomResources": "oauthbroker.model.room_resources",
    "Strict": "oauthbroker.config.fields",
    "TokenResult": "oauthbroker.model.results",
    "Tolerant": "oauthbroker.config.fields",
    "WrittenResource": "oauthbroker.rooms.declaration",
    "WrittenResources": "oauthbroker.rooms.declaration",
    "open_broker": "oauthbroker.wiring",
}


def __getattr__(name: str) -> Any:
    """The heavy half is imported when it is first used: a command that only checks a file stays fast."""
    if name not in _LAZY:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
