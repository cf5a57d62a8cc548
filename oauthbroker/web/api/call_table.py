"""The API, one row a call: the router and the OpenAPI document are both made of this table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from starlette.responses import Response

from oauthbroker.core.dataclasses import KW_ONLY, dataclass
from oauthbroker.core.errors import Code
from oauthbroker.model.settings import Who
from oauthbroker.plugins.running_plugin import Authenticates
from oauthbroker.web.api import handlers_events as events
from oauthbroker.web.api import handlers_grants as grants
from oauthbroker.web.api import handlers_sessions as sessions
from oauthbroker.web.api import handlers_tokens as tokens
from oauthbroker.web.api import handlers_turns as turns
from oauthbroker.web.api import request_models as m
from oauthbroker.web.api.fields import RequestModel
from oauthbroker.web.api.handler_call import AnyCall

Handler = Callable[[AnyCall], Awaitable[Response]]
Method = Literal["GET", "POST", "PUT", "DELETE"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call. `who` may make it; empty means every caller. `codes` are its own refusals, beside the common ones.
    Its words and answers are in openapi.yaml.

    `bodies` has the form of the body; where holders of turn tokens send another one, theirs is the second. `handler` is
    None for a path that is served beside this table, and only described by it. `authenticate` is that of a plug-in's
    route.
    """

    id: str
    method: Method
    path: str
    _: KW_ONLY
    handler: Handler | None
    who: tuple[Who, ...]
    bodies: tuple[type[RequestModel], ...] = ()
    query: type[RequestModel] = m.NoParameters
    parameters: type[RequestModel] = m.NoParameters
    codes: tuple[Code, ...] = ()
    authenticate: Authenticates | None = None
    is_token_call: bool = False


_ANY_KEY: tuple[Who, ...] = ("runtime", "operator", "turn")
_NO_TOOL: tuple[Who, ...] = ("runtime", "operator", "wholeTurn")

OPERATIONS = (
    Operation(
        "beginTurn", "POST", "/v1/turns", handler=turns.begin_turn, who=("runtime",), bodies=(m.BeginTurn,),
        codes=(Code.OAUTH_APP_NOT_FOUND, Code.SCOPE_NOT_ALLOWED, Code.ACCOUNTS_INVALID),
    ),
    Operation(
        "endTurn", "DELETE", "/v1/turns/{turnId}", handler=turns.end_turn, who=("runtime",), parameters=m.TurnPath,
    ),
    Operation(
        "narrowTurn", "POST", "/v1/turn/narrow", handler=turns.narrow_turn, who=("turn",), bodies=(m.Narrow,),
    ),
    Operation(
        "getPending", "GET", "/v1/turn/pending", handler=turns.pending_of_turn, who=("turn",), query=m.PendingQuery,
    ),
    Operation("getLinks", "GET", "/v1/turn/links", handler=turns.links_of_turn, who=("wholeTurn",)),
    Operation(
        "getAccessToken", "POST", "/v1/tokens", handler=tokens.get_token, who=("turn", "local"),
        bodies=(m.TokenRequest,), is_token_call=True,
    ),
    Operation(
        "reportRejected", "POST", "/v1/tokens/rejected", handler=tokens.report_rejected, who=("turn",),
        bodies=(m.RejectedToken,), is_token_call=True,
    ),
    Operation(
        "nextEvent", "GET", "/v1/agents/{agent}/events", handler=events.next_event, who=("runtime",),
        query=m.EventsQuery, parameters=m.AgentPath, codes=(Code.AGENT_FORWARDED,),
    ),
    Operation(
        "ackEvent", "POST", "/v1/agents/{agent}/events/{eventId}/ack", handler=events.ack_event, who=("runtime",),
        bodies=(m.Settle,), parameters=m.EventPath, codes=(Code.LEASE_LOST,),
    ),
    Operation(
        "nackEvent", "POST", "/v1/agents/{agent}/events/{eventId}/nack", handler=events.nack_event, who=("runtime",),
        bodies=(m.Settle,), parameters=m.EventPath, codes=(Code.LEASE_LOST,),
    ),
    Operation("listQueues", "GET", "/v1/queues", handler=events.list_queues, who=("operator",)),
    Operation(
        "listDeadLetters", "GET", "/v1/agents/{agent}/dead-letters", handler=events.list_dead_letters,
        who=("operator",), parameters=m.AgentPath,
    ),
    Operation(
        "retryDeadLetter", "POST", "/v1/agents/{agent}/dead-letters/{eventId}/retry", handler=events.retry_dead_letter,
        who=("operator",), parameters=m.EventPath,
    ),
    Operation(
        "dropDeadLetter", "DELETE", "/v1/agents/{agent}/dead-letters/{eventId}", handler=events.drop_dead_letter,
        who=("operator",), parameters=m.EventPath,
    ),
    Operation(
        "listAuthSessions", "GET", "/v1/auth-sessions", handler=sessions.list_sessions, who=("operator",),
        query=m.SessionsQuery, codes=(Code.OAUTH_APP_NOT_FOUND,),
    ),
    Operation(
        "getAuthSessionRecord", "GET", "/v1/auth-sessions/{id}/record", handler=sessions.session_record,
        who=("operator",), parameters=m.SessionPath,
    ),
    Operation(
        "getAuthSession", "GET", "/v1/auth-sessions/{id}", handler=sessions.session_state, who=_ANY_KEY,
        parameters=m.SessionPath,
    ),
    Operation(
        "cancelAuthSession", "DELETE", "/v1/auth-sessions/{id}", handler=sessions.cancel_session, who=_NO_TOOL,
        parameters=m.SessionPath,
    ),
    Operation(
        "confirmAuthSession", "POST", "/v1/auth-sessions/confirm", handler=sessions.confirm_session,
        who=("runtime", "wholeTurn"), bodies=(m.ConfirmByRuntime, m.ConfirmByCode),
        codes=(Code.STATE_UNKNOWN, Code.OWNER_BINDING_FAILED, Code.BROKER_UNREACHABLE),
    ),
    Operation(
        "linkConnections", "POST", "/v1/connections", handler=sessions.connections_link, who=("runtime",),
        bodies=(m.ConnectionsFor,),
    ),
    Operation(
        "listGrants", "GET", "/v1/grants", handler=grants.list_grants, who=("operator",),
        query=m.GrantsQuery, codes=(Code.OAUTH_APP_NOT_FOUND,),
    ),
    Operation(
        "importGrants", "POST", "/v1/grants", handler=grants.import_grants, who=("operator",),
        codes=(Code.IDEMPOTENCY_CONFLICT, Code.REQUEST_TOO_LARGE, Code.UNSUPPORTED_MEDIA_TYPE),
    ),
    Operation(
        "getGrantRecord", "GET", "/v1/grants/{grantId}/record", handler=grants.grant_record, who=("operator",),
        parameters=m.GrantPath, codes=(Code.GRANT_NOT_FOUND,),
    ),
    Operation(
        "endGrant", "DELETE", "/v1/grants/{grantId}", handler=grants.end_grant, who=("operator",),
        parameters=m.GrantPath, codes=(Code.GRANT_NOT_FOUND,),
    ),
    Operation(
        "eraseSubject", "POST", "/v1/subjects/erase", handler=grants.erase_subject, who=("operator",),
        bodies=(m.EraseSubject,),
    ),
    Operation("listApps", "GET", "/v1/apps", handler=tokens.list_apps, who=(*_ANY_KEY, "local")),
)  # fmt: skip

PROBES = (
    Operation("getHealth", "GET", "/healthz", handler=None, who=()),
    Operation("getReadiness", "GET", "/readyz", handler=None, who=()),
    Operation(
        "getMetrics", "GET", "/metrics", handler=None, who=("operator",),
        codes=(Code.HOST_NOT_ALLOWED, Code.STORE_UNAVAILABLE),
    ),
)  # fmt: skip
