"""The names for programs that run agents, whose tools need OAuth tokens. docs/embedding.md explains them.
`oauthbroker.plugins` has those for plug-ins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oauthbroker.core.lazy import lazily
from oauthbroker.core.version import VERSION

if TYPE_CHECKING:
    from oauthbroker.broker import Broker
    from oauthbroker.capability import OAuthCapability, SyncOAuthCapability
    from oauthbroker.config.check import check_config
    from oauthbroker.config.problems.problems import ConfigInvalidError
    from oauthbroker.config.written.app_resources import AppResource, credential_app, oauth_app
    from oauthbroker.core.errors import BrokerError, Code
    from oauthbroker.core.secret import Secret
    from oauthbroker.injection.errors import (
        AuthorizationRequiredError,
        InjectionError,
        RequestRefusedError,
        errors_for_model,
    )
    from oauthbroker.model.bundle import Bundle
    from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
    from oauthbroker.model.turn import Turn, TurnAuth
    from oauthbroker.model.turn_token import narrow
    from oauthbroker.observability.metrics import Metric
    from oauthbroker.personal.connection import LocalConnection, local
    from oauthbroker.wiring import open_broker

__all__ = [
    "AppResource",
    "AuthorizationRequired",
    "AuthorizationRequiredError",
    "Broker",
    "BrokerError",
    "Bundle",
    "Code",
    "ConfigInvalidError",
    "Failed",
    "InjectionError",
    "LocalConnection",
    "Metric",
    "OAuthCapability",
    "Ready",
    "RequestRefusedError",
    "Secret",
    "SyncOAuthCapability",
    "TokenResult",
    "Turn",
    "TurnAuth",
    "__version__",
    "check_config",
    "credential_app",
    "errors_for_model",
    "local",
    "narrow",
    "oauth_app",
    "open_broker",
]

__version__ = VERSION

if not TYPE_CHECKING:  # with it, a type checker would accept every name
    __getattr__ = lazily(
        __name__,
        {
            "broker": {"Broker"},
            "capability": {"OAuthCapability", "SyncOAuthCapability"},
            "config.check": {"check_config"},
            "config.problems.problems": {"ConfigInvalidError"},
            "config.written.app_resources": {"AppResource", "credential_app", "oauth_app"},
            "core.errors": {"BrokerError", "Code"},
            "core.secret": {"Secret"},
            "injection.errors": {
                "AuthorizationRequiredError",
                "InjectionError",
                "RequestRefusedError",
                "errors_for_model",
            },
            "model.bundle": {"Bundle"},
            "model.token_results": {"AuthorizationRequired", "Failed", "Ready", "TokenResult"},
            "model.turn": {"Turn", "TurnAuth"},
            "model.turn_token": {"narrow"},
            "observability.metrics": {"Metric"},
            "personal.connection": {"LocalConnection", "local"},
            "wiring": {"open_broker"},
        },
    )
