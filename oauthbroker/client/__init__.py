"""The client for tools and runtimes in other processes, over HTTP: docs/clients.md.

`OAuth` and `SyncOAuth` are a tool's `ctx.oauth`; `Runtime` and `SyncRuntime` begin turns and receive events. A name
is imported when it is first used, so that a tool with `SyncOAuth` loads no event loop, no models and no server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oauthbroker.core.lazy import lazily

if TYPE_CHECKING:
    from oauthbroker.client.forwarding import ApiAnswer
    from oauthbroker.client.runtime import Delivery, RunningTurn, Runtime
    from oauthbroker.client.sync import SyncOAuth
    from oauthbroker.client.sync_runtime import SyncDelivery, SyncRunningTurn, SyncRuntime
    from oauthbroker.client.tool import OAuth, Options
    from oauthbroker.client.tool_requests import AppInfo
    from oauthbroker.core.errors import BrokerError, Code
    from oauthbroker.core.secret import Secret
    from oauthbroker.model.bundle import ToolAuth
    from oauthbroker.model.token_results import (
        AuthorizationRequired,
        DevicePrompt,
        Failed,
        Ready,
        SessionOutcome,
        TokenResult,
    )
    from oauthbroker.model.turn import Turn, TurnAuth
    from oauthbroker.records.event import AgentEvent
    from oauthbroker.records.grant_summary import GrantSummary

__all__ = [
    "AgentEvent",
    "ApiAnswer",
    "AppInfo",
    "AuthorizationRequired",
    "BrokerError",
    "Code",
    "Delivery",
    "DevicePrompt",
    "Failed",
    "GrantSummary",
    "OAuth",
    "Options",
    "Ready",
    "RunningTurn",
    "Runtime",
    "Secret",
    "SessionOutcome",
    "SyncDelivery",
    "SyncOAuth",
    "SyncRunningTurn",
    "SyncRuntime",
    "TokenResult",
    "ToolAuth",
    "Turn",
    "TurnAuth",
]

if not TYPE_CHECKING:  # with it, a type checker would accept every name
    __getattr__ = lazily(
        __name__,
        {
            "client.forwarding": {"ApiAnswer"},
            "client.runtime": {"Delivery", "RunningTurn", "Runtime"},
            "client.sync": {"SyncOAuth"},
            "client.sync_runtime": {"SyncDelivery", "SyncRunningTurn", "SyncRuntime"},
            "client.tool": {"OAuth", "Options"},
            "client.tool_requests": {"AppInfo"},
            "core.errors": {"BrokerError", "Code"},
            "core.secret": {"Secret"},
            "model.bundle": {"ToolAuth"},
            "model.token_results": {
                "AuthorizationRequired",
                "DevicePrompt",
                "Failed",
                "Ready",
                "SessionOutcome",
                "TokenResult",
            },
            "model.turn": {"Turn", "TurnAuth"},
            "records.event": {"AgentEvent"},
            "records.grant_summary": {"GrantSummary"},
        },
    )
