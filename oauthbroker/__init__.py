"""oauthbroker: OAuth tokens for tool-calling agents. The public names, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oauthbroker.core.lazy import lazily
from oauthbroker.core.version import VERSION

if TYPE_CHECKING:
    from oauthbroker.audit.room_entry import RoomEntry
    from oauthbroker.broker import Broker
    from oauthbroker.config.check import check_config
    from oauthbroker.config.client_spec import SecretSource
    from oauthbroker.config.fields import Ref, Strict, Tolerant
    from oauthbroker.config.room_files import read_resources
    from oauthbroker.core.bearer_challenge import demanded_scopes
    from oauthbroker.core.clock import Clock, SystemClock
    from oauthbroker.core.errors import BrokerError, Code
    from oauthbroker.core.secret import Secret
    from oauthbroker.core.strict_json import decode_json
    from oauthbroker.injection.errors import AuthorizationNeeded, InjectionError, RequestRefused, told_to_model
    from oauthbroker.model.room_resources import RoomResource, RoomResources
    from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
    from oauthbroker.model.turn import Turn, TurnAuth
    from oauthbroker.operations.public_web import PublicWeb, WebAnswer
    from oauthbroker.operations.room_state import RoomState
    from oauthbroker.rooms.declaration import ResourceKind, Room, RoomCommand, WrittenResource, WrittenResources
    from oauthbroker.rooms.open_room import Background, OpenRoom, RoomCall, RoomFinding, RoomRoute
    from oauthbroker.rooms.room_pages import RoomPage, RoomPages, RoomView, RoomVisit
    from oauthbroker.web.api.fields import RequestModel
    from oauthbroker.wiring import open_broker
    from oauthbroker.wiring.mcp_server_facts import McpServerFacts, look_at_mcp_server

__all__ = [
    "AuthorizationNeeded",
    "AuthorizationRequired",
    "Background",
    "Broker",
    "BrokerError",
    "Clock",
    "Code",
    "Failed",
    "InjectionError",
    "McpServerFacts",
    "OpenRoom",
    "PublicWeb",
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
    "RoomPage",
    "RoomPages",
    "RoomResource",
    "RoomResources",
    "RoomRoute",
    "RoomState",
    "RoomView",
    "RoomVisit",
    "Secret",
    "SecretSource",
    "Strict",
    "SystemClock",
    "TokenResult",
    "Tolerant",
    "Turn",
    "TurnAuth",
    "WebAnswer",
    "WrittenResource",
    "WrittenResources",
    "__version__",
    "check_config",
    "decode_json",
    "demanded_scopes",
    "look_at_mcp_server",
    "open_broker",
    "read_resources",
    "told_to_model",
]

__version__ = VERSION
__getattr__ = lazily(
    __name__,
    {
        "AuthorizationNeeded": "oauthbroker.injection.errors",
        "AuthorizationRequired": "oauthbroker.model.token_results",
        "Background": "oauthbroker.rooms.open_room",
        "Broker": "oauthbroker.broker",
        "BrokerError": "oauthbroker.core.errors",
        "Clock": "oauthbroker.core.clock",
        "Code": "oauthbroker.core.errors",
        "Failed": "oauthbroker.model.token_results",
        "InjectionError": "oauthbroker.injection.errors",
        "McpServerFacts": "oauthbroker.wiring.mcp_server_facts",
        "OpenRoom": "oauthbroker.rooms.open_room",
        "PublicWeb": "oauthbroker.operations.public_web",
        "Ready": "oauthbroker.model.token_results",
        "Ref": "oauthbroker.config.fields",
        "RequestModel": "oauthbroker.web.api.fields",
        "RequestRefused": "oauthbroker.injection.errors",
        "ResourceKind": "oauthbroker.rooms.declaration",
        "Room": "oauthbroker.rooms.declaration",
        "RoomCall": "oauthbroker.rooms.open_room",
        "RoomCommand": "oauthbroker.rooms.declaration",
        "RoomEntry": "oauthbroker.audit.room_entry",
        "RoomFinding": "oauthbroker.rooms.open_room",
        "RoomPage": "oauthbroker.rooms.room_pages",
        "RoomPages": "oauthbroker.rooms.room_pages",
        "RoomResource": "oauthbroker.model.room_resources",
        "RoomResources": "oauthbroker.model.room_resources",
        "RoomRoute": "oauthbroker.rooms.open_room",
        "RoomState": "oauthbroker.operations.room_state",
        "RoomView": "oauthbroker.rooms.room_pages",
        "RoomVisit": "oauthbroker.rooms.room_pages",
        "Secret": "oauthbroker.core.secret",
        "SecretSource": "oauthbroker.config.client_spec",
        "Strict": "oauthbroker.config.fields",
        "SystemClock": "oauthbroker.core.clock",
        "TokenResult": "oauthbroker.model.token_results",
        "Tolerant": "oauthbroker.config.fields",
        "Turn": "oauthbroker.model.turn",
        "TurnAuth": "oauthbroker.model.turn",
        "WebAnswer": "oauthbroker.operations.public_web",
        "WrittenResource": "oauthbroker.rooms.declaration",
        "WrittenResources": "oauthbroker.rooms.declaration",
        "check_config": "oauthbroker.config.check",
        "decode_json": "oauthbroker.core.strict_json",
        "demanded_scopes": "oauthbroker.core.bearer_challenge",
        "look_at_mcp_server": "oauthbroker.wiring.mcp_server_facts",
        "open_broker": "oauthbroker.wiring",
        "read_resources": "oauthbroker.config.room_files",
        "told_to_model": "oauthbroker.injection.errors",
    },
)
