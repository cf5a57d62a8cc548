"""oauthbroker: OAuth tokens for tool-calling agents. The public names, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oauthbroker.core.lazy import lazily
from oauthbroker.core.version import VERSION

if TYPE_CHECKING:
    from oauthbroker.audit.room_entry import RoomEntry
    from oauthbroker.broker import Broker
    from oauthbroker.config.client_spec import SecretSource
    from oauthbroker.config.fields import Ref, Strict, Tolerant
    from oauthbroker.core.errors import BrokerError, Code
    from oauthbroker.core.secret import Secret
    from oauthbroker.injection.errors import AuthorizationNeeded, InjectionError, RequestRefused, told_to_model
    from oauthbroker.model.results import AuthorizationRequired, Failed, Ready, TokenResult
    from oauthbroker.model.room_resources import RoomResource, RoomResources
    from oauthbroker.model.turn import Turn, TurnAuth
    from oauthbroker.operations.room_state import RoomState
    from oauthbroker.rooms.declaration import ResourceKind, Room, RoomCommand, WrittenResource, WrittenResources
    from oauthbroker.rooms.open_room import Background, OpenRoom, RoomCall, RoomFinding, RoomRoute
    from oauthbroker.web.api.fields import RequestModel
    from oauthbroker.wiring import open_broker

__all__ = [
    "AuthorizationNeeded",
    "AuthorizationRequired",
    "Background",
    "Broker",
    "BrokerError",
    "Code",
    "Failed",
    "InjectionError",
    "OpenRoom",
    "Ready",
    "Ref",
    "RequestModel",
    "RequestRefused",
    "ResourceKind",
    "Room",
    "RoomCall",
    "RoomCommand",
    "RoomEntry",
    "RoomFinding",
    "RoomResource",
    "RoomResources",
    "RoomRoute",
    "RoomState",
    "Secret",
    "SecretSource",
    "Strict",
    "TokenResult",
    "Tolerant",
    "Turn",
    "TurnAuth",
    "WrittenResource",
    "WrittenResources",
    "__version__",
    "open_broker",
    "told_to_model",
]

__version__ = VERSION
__getattr__ = lazily(
    __name__,
    {
        "AuthorizationNeeded": "oauthbroker.injection.errors",
        "AuthorizationRequired": "oauthbroker.model.results",
        "Background": "oauthbroker.rooms.open_room",
        "Broker": "oauthbroker.broker",
        "BrokerError": "oauthbroker.core.errors",
        "Code": "oauthbroker.core.errors",
        "Failed": "oauthbroker.model.results",
        "InjectionError": "oauthbroker.injection.errors",
        "OpenRoom": "oauthbroker.rooms.open_room",
        "Ready": "oauthbroker.model.results",
        "Ref": "oauthbroker.config.fields",
        "RequestModel": "oauthbroker.web.api.fields",
        "RequestRefused": "oauthbroker.injection.errors",
        "ResourceKind": "oauthbroker.rooms.declaration",
        "Room": "oauthbroker.rooms.declaration",
        "RoomCall": "oauthbroker.rooms.open_room",
        "RoomCommand": "oauthbroker.rooms.declaration",
        "RoomEntry": "oauthbroker.audit.room_entry",
        "RoomFinding": "oauthbroker.rooms.open_room",
        "RoomResource": "oauthbroker.model.room_resources",
        "RoomResources": "oauthbroker.model.room_resources",
        "RoomRoute": "oauthbroker.rooms.open_room",
        "RoomState": "oauthbroker.operations.room_state",
        "Secret": "oauthbroker.core.secret",
        "SecretSource": "oauthbroker.config.client_spec",
        "Strict": "oauthbroker.config.fields",
        "TokenResult": "oauthbroker.model.results",
        "Tolerant": "oauthbroker.config.fields",
        "Turn": "oauthbroker.model.turn",
        "TurnAuth": "oauthbroker.model.turn",
        "WrittenResource": "oauthbroker.rooms.declaration",
        "WrittenResources": "oauthbroker.rooms.declaration",
        "open_broker": "oauthbroker.wiring",
        "told_to_model": "oauthbroker.injection.errors",
    },
)
