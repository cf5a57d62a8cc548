"""The client for tools and runtimes in other processes, over HTTP: docs/clients.md.

`OAuth` and `SyncOAuth` are a tool's `ctx.oauth`; `Runtime` and `SyncRuntime` begin turns and receive events. Importing
this loads neither the server nor its cryptography.
"""

from oauthbroker.client.operators import AppInfo
from oauthbroker.client.runtime import Delivery, RunningTurn, Runtime
from oauthbroker.client.sync import SyncDelivery, SyncOAuth, SyncRunningTurn, SyncRuntime
from oauthbroker.client.tool import OAuth, Options
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import ToolAuth
from oauthbroker.model.results import AuthorizationRequired, DevicePrompt, Failed, Ready, SessionOutcome, TokenResult
from oauthbroker.model.turn import Turn, TurnAuth
from oauthbroker.records.event import AgentEvent
from oauthbroker.records.grant_summary import GrantSummary

__all__ = [
    "AgentEvent",
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
