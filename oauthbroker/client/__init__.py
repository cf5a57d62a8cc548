"""The broker for tools and runtimes in other processes, over HTTP: docs/clients.md.

`OAuth` and `SyncOAuth` are a tool's `ctx.oauth`; `Runtime` and `SyncRuntime` begin turns and take events. Importing
this brings neither the server nor its cryptography.
"""

from oauthbroker.apps import ToolAuth
from oauthbroker.client.calls import AppInfo
from oauthbroker.client.oauth import OAuth, Options
from oauthbroker.client.runtime import Delivery, RunningTurn, Runtime
from oauthbroker.client.sync import SyncDelivery, SyncOAuth, SyncRunningTurn, SyncRuntime
from oauthbroker.errors import BrokerError, Code
from oauthbroker.grant_summary import GrantSummary
from oauthbroker.records.event import AgentEvent
from oauthbroker.results import AuthorizationRequired, DevicePrompt, Failed, Ready, SessionOutcome, TokenResult
from oauthbroker.secret import Secret
from oauthbroker.turn import Turn, TurnAuth

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
