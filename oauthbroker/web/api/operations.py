"""The API, one row a call: the router and the OpenAPI document are both made of this table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from starlette.responses import Response

from oauthbroker.core.errors import Code
from oauthbroker.model.settings import Who
from oauthbroker.web.api import handlers_events as events
from oauthbroker.web.api import handlers_grants as grants
from oauthbroker.web.api import handlers_queues as queues
from oauthbroker.web.api import handlers_sessions as sessions
from oauthbroker.web.api import handlers_tokens as tokens
from oauthbroker.web.api import handlers_turns as turns
from oauthbroker.web.api import models as m
from oauthbroker.web.api.call import AnyCall
from oauthbroker.web.api.fields import RequestModel

Handler = Callable[[AnyCall], Awaitable[Response]]
Method = Literal["GET", "POST", "DELETE"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call. `who` may make it; empty means every caller. `codes` are its own refusals, beside the common ones.
    Its words and answers are in openapi.yaml.

    `bodies` has the form of the body by caller; one entry where it is the same for all. `handler` is None for a path
    that is served beside this table, and only described by it.
    """

    id: str
    method: Method
    path: str
    handler: Handler | None
    who: tuple[Who, ...]
    bodies: Mapping[Who, type[RequestModel]] = field(default_factory=dict)
    query: type[RequestModel] = m.NoParameters
    parameters: type[RequestModel] = m.NoParameters
    codes: tuple[Code, ...] = ()


_ANY_KEY: tuple[Who, ...] = ("runtime", "operator", "turn")
_NO_TOOL: tuple[Who, ...] = ("runtime", "operator", "wholeTurn")

OPERATIONS = (
    Operation(
        "beginTurn", "POST", "/v1/turns", turns.begin_turn, ("runtime",), bodies={"runtime": m.BeginTurn},
        codes=(Code.OAUTH_APP_NOT_FOUND, Code.SCOPE_NOT_ALLOWED),
    ),
    Operation("endTurn", "DELETE", "/v1/turns/{turnId}", turns.end_turn, ("runtime",), parameters=m.TurnPath),
    Operation("narrowTurn", "POST", "/v1/turn/narrow", turns.narrow_turn, ("turn",), bodies={"turn": m.Narrow}),
    Operation("getPending", "GET", "/v1/turn/pending", turns.pending_of_turn, ("turn",), query=m.PendingQuery),
    Operation("getLinks", "GET", "/v1/turn/links", turns.links_of_turn, ("wholeTurn",)),
    Operation("getAccessToken", "POST", "/v1/tokens", tokens.get_token, ("turn",), bodies={"turn": m.TokenRequest}),
    Operation(
        "reportRejected", "POST", "/v1/tokens/rejected", tokens.report_rejected, ("turn",),
        bodies={"turn": m.RejectedToken},
    ),
    Operation(
        "nextEvent", "GET", "/v1/agents/{agent}/events", events.next_event, ("runtime",), query=m.EventsQuery,
        parameters=m.AgentPath,
    ),
    Operation(
        "ackEvent", "POST", "/v1/agents/{agent}/events/{eventId}/ack", events.ack_event, ("runtime",),
        bodies={"runtime": m.Settle}, parameters=m.EventPath, codes=(Code.LEASE_LOST,),
    ),
    Operation(
        "nackEvent", "POST", "/v1/agents/{agent}/events/{eventId}/nack", events.nack_event, ("runtime",),
        bodies={"runtime": m.Settle}, parameters=m.EventPath, codes=(Code.LEASE_LOST,),
    ),
    Operation("listQueues", "GET", "/v1/queues", queues.list_queues, ("operator",)),
    Operation(
        "listDeadLetters", "GET", "/v1/agents/{agent}/dead-letters", queues.list_dead_letters, ("operator",),
        parameters=m.AgentPath,
    ),
    Operation(
        "retryDeadLetter", "POST", "/v1/agents/{agent}/dead-letters/{eventId}/retry", queues.retry_dead_letter,
        ("operator",), parameters=m.EventPath,
    ),
    Operation(
        "dropDeadLetter", "DELETE", "/v1/agents/{agent}/dead-letters/{eventId}", queues.drop_dead_letter, ("operator",),
        parameters=m.EventPath,
    ),
    Operation(
        "listAuthSessions", "GET", "/v1/auth-sessions", sessions.list_sessions, ("operator",), query=m.SessionsQuery,
    ),
    Operation(
        "getAuthSessionRecord", "GET", "/v1/auth-sessions/{id}/record", sessions.session_record, ("operator",),
        parameters=m.SessionPath,
    ),
    Operation(
        "getAuthSession", "GET", "/v1/auth-sessions/{id}", sessions.session_state, _ANY_KEY, parameters=m.SessionPath,
    ),
    Operation(
        "cancelAuthSession", "DELETE", "/v1/auth-sessions/{id}", sessions.cancel_session, _NO_TOOL,
        parameters=m.SessionPath,
    ),
    Operation(
        "confirmAuthSession", "POST", "/v1/auth-sessions/confirm", sessions.confirm_session, ("runtime", "wholeTurn"),
        bodies={"runtime": m.ConfirmByRuntime, "wholeTurn": m.ConfirmByCode},
        codes=(Code.STATE_UNKNOWN, Code.OWNER_BINDING_FAILED, Code.BROKER_UNREACHABLE),
    ),
    Operation(
        "linkConnections", "POST", "/v1/connections", sessions.connections_link, ("runtime",),
        bodies={"runtime": m.ConnectionsFor},
    ),
    Operation("listGrants", "GET", "/v1/grants", grants.list_grants, ("operator",), query=m.GrantsQuery),
    Operation(
        "getGrantRecord", "GET", "/v1/grants/{grantId}/record", grants.grant_record, ("operator",),
        parameters=m.GrantPath, codes=(Code.GRANT_NOT_FOUND,),
    ),
    Operation(
        "endGrant", "DELETE", "/v1/grants/{grantId}", grants.end_grant, ("operator",), parameters=m.GrantPath,
        codes=(Code.GRANT_NOT_FOUND,),
    ),
    Operation(
        "eraseSubject", "POST", "/v1/subjects/erase", grants.erase_subject, ("operator",),
        bodies={"operator": m.EraseSubject},
    ),
    Operation("listApps", "GET", "/v1/apps", tokens.list_apps, _ANY_KEY),
)  # fmt: skip

PROBES = (
    Operation("getHealth", "GET", "/healthz", None, ()),
    Operation("getReadiness", "GET", "/readyz", None, ()),
    Operation(
        "getMetrics", "GET", "/metrics", None, ("operator",), codes=(Code.HOST_NOT_ALLOWED, Code.STORE_UNAVAILABLE),
    ),
)  # fmt: skip
