"""oauthbroker: OAuth tokens for tool-calling agents. The public names, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.turn import Turn, TurnAuth

if TYPE_CHECKING:
    from oauthbroker.broker import Broker
    from oauthbroker.model.results import AuthorizationRequired, Failed, Ready, TokenResult
    from oauthbroker.wiring import open_broker

__all__ = [
    "AuthorizationRequired",
    "Broker",
    "BrokerError",
    "Code",
    "Failed",
    "Ready",
    "Secret",
    "TokenResult",
    "Turn",
    "TurnAuth",
    "open_broker",
]

_LAZY = {
    "AuthorizationRequired": "oauthbroker.model.results",
    "Broker": "oauthbroker.broker",
    "Failed": "oauthbroker.model.results",
    "Ready": "oauthbroker.model.results",
    "TokenResult": "oauthbroker.model.results",
    "open_broker": "oauthbroker.wiring",
}


def __getattr__(name: str) -> Any:
    """The heavy half is imported when it is first used: a command that only checks a file stays fast."""
    if name not in _LAZY:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
