"""The stored records: grants, authorization sessions and events, as the specification prints them.

A record's plaintext form reveals its secrets. It exists only between the record and the store's seal.
"""

from oauthbroker.records.attempt import Attempt, Login
from oauthbroker.records.device import Device
from oauthbroker.records.event import AgentEvent, EventType
from oauthbroker.records.grant import Grant, RevocationState, Token, grant_id
from oauthbroker.records.parked import Parked
from oauthbroker.records.refresh_state import Intent, RefreshState
from oauthbroker.records.retired import Retired
from oauthbroker.records.session import AuthSession, Claim, ClaimedSession, SessionStatus

__all__ = [
    "AgentEvent",
    "Attempt",
    "AuthSession",
    "Claim",
    "ClaimedSession",
    "Device",
    "EventType",
    "Grant",
    "Intent",
    "Login",
    "Parked",
    "RefreshState",
    "Retired",
    "RevocationState",
    "SessionStatus",
    "Token",
    "grant_id",
]
