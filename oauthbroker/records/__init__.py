"""The stored records: grants, authorization sessions and events, as the specification prints them.

A record's plaintext form reveals its secrets. It exists only between the record and the store's seal.
"""

from oauthbroker.model.grant_key import grant_id
from oauthbroker.records.auth_session import AuthSession, Claim, ClaimedSession, SessionStatus
from oauthbroker.records.browser_attempt import Attempt, Login
from oauthbroker.records.device_authorization import Device
from oauthbroker.records.event import AgentEvent, EventType
from oauthbroker.records.grant import Grant, RevocationState
from oauthbroker.records.pending_code import PendingCode
from oauthbroker.records.refresh_state import Intent, RefreshState
from oauthbroker.records.retired_tokens import Retired
from oauthbroker.records.token import Token

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
    "PendingCode",
    "RefreshState",
    "Retired",
    "RevocationState",
    "SessionStatus",
    "Token",
    "grant_id",
]
