"""The services that a broker offers to its callers, in process and over HTTP."""

from __future__ import annotations

from oauthbroker.access.api_keys import ApiKeys
from oauthbroker.access.oauth_contexts import OAuthContexts
from oauthbroker.access.turns import Turns
from oauthbroker.audit.port import AuditWriter
from oauthbroker.authorization.mcp_clients import McpClients
from oauthbroker.authorization.pending_blocks import Pending
from oauthbroker.authorization.pending_codes import PendingCodes
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.lifecycle import Life
from oauthbroker.events.dead_letters import DeadLetters
from oauthbroker.events.waits import Events, Outcomes
from oauthbroker.grants.connections import Connections
from oauthbroker.grants.erasure import Erasure
from oauthbroker.grants.grants import Grants, SessionList
from oauthbroker.injection.injector import Injector
from oauthbroker.model.current_config import CurrentConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the handlers of the API use, and nothing else. A `Broker` offers the same."""

    config: CurrentConfig
    contexts: OAuthContexts
    turns: Turns
    api_keys: ApiKeys
    pending: Pending
    outcomes: Outcomes
    pending_codes: PendingCodes
    connections: Connections
    sessions: SessionList
    grants: Grants
    erasure: Erasure
    mcp_clients: McpClients
    dead_letters: DeadLetters
    events: Events
    injector: Injector
    audit: AuditWriter
    clock: Clock
    life: Life
