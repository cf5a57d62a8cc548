"""The API, one row a call: the router and the OpenAPI document are both made of this table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.responses import Response

from oauthbroker.core.errors import Code
from oauthbroker.web.api import answers as a
from oauthbroker.web.api import answers_operators as o
from oauthbroker.web.api import (
    handlers_apps,
    handlers_events,
    handlers_grants,
    handlers_queues,
    handlers_sessions,
    handlers_tokens,
)
from oauthbroker.web.api import handlers_turns as turns
from oauthbroker.web.api import models as m
from oauthbroker.web.api.caller import Who
from oauthbroker.web.api.doors import AnyCall
from oauthbroker.web.api.fields import Model

Handler = Callable[[AnyCall], Awaitable[Response]]
Method = Literal["GET", "POST", "DELETE"]


@dataclass(frozen=True, slots=True)
class ApiReply:
    """What a status means. `model` is None where there is no body; `stream`: or a stream of messages that hold one."""

    meaning: str
    model: Any = None
    stream: bool = False
    media: str = "application/json"


@dataclass(frozen=True, slots=True)
class Operation:
    """One call. `who` may make it, empty: anybody. `codes` are its own refusals, beside those that every call has.

    `bodies` has the form of the body by who calls; one entry where it is the same for all. `handler` is None for what
    is served beside this table, and only described by it.
    """

    id: str
    method: Method
    path: str
    summary: str
    handler: Handler | None
    who: tuple[Who, ...]
    answers: Mapping[int, ApiReply]
    bodies: Mapping[Who, type[Model]] = field(default_factory=dict)
    query: type[Model] = m.NoParameters
    parameters: type[Model] = m.NoParameters
    codes: tuple[Code, ...] = ()
    description: str = ""


_RESULT = {200: ApiReply("One of the three results.", a.TokenResultBody)}
_ANY_KEY: tuple[Who, ...] = ("runtime", "operator", "turn")
_NO_TOOL: tuple[Who, ...] = ("runtime", "operator", "wholeTurn")
_SETTLED = {204: ApiReply("Settled.")}

OPERATIONS = (
    Operation(
        "beginTurn", "POST", "/v1/turns", "Begin a turn: its token, and one for each tool", turns.begin_turn,
        ("runtime",), {201: ApiReply("The turn's tokens. They are told once.", a.TurnTokens)},
        bodies={"runtime": m.BeginTurn},
        codes=(Code.OAUTH_APP_NOT_FOUND, Code.SCOPE_NOT_ALLOWED),
        description="A tool token can ask for what both the bundle and `tools` allow. Tokens end with the turn.",
    ),
    Operation(
        "endTurn", "DELETE", "/v1/turns/{turnId}", "End a turn: its tokens are dead, in every process of the store",
        turns.end_turn, ("runtime",), {204: ApiReply("It is over, also when it was over before.")},
        parameters=m.TurnPath,
    ),
    Operation(
        "narrowTurn", "POST", "/v1/turn/narrow", "A narrower token for a sub-tool", turns.narrow_turn, ("turn",),
        {200: ApiReply("The new token.", a.Narrowed)}, bodies={"turn": m.Narrow},
        description="A token can also be narrowed without asking: each caveat is signed with the signature before it.",
    ),
    Operation(
        "getPending", "GET", "/v1/turn/pending", "What waits for a person in this turn: the auth.pending block",
        turns.pending_of_turn, ("turn",), {200: ApiReply("The block; no items when nothing waits.", a.PendingBlock)},
        query=m.PendingQuery,
    ),
    Operation(
        "getLinks", "GET", "/v1/turn/links", "The links that wait in this turn, to be delivered privately",
        turns.links_of_turn, ("wholeTurn",), {200: ApiReply("The links.", a.PrivateLinks)},
    ),
    Operation(
        "getAccessToken", "POST", "/v1/tokens", "The token call: ready, authorization_required or error",
        handlers_tokens.get_token, ("turn",), _RESULT, bodies={"turn": m.TokenRequest},
        description="What the call comes to is in the body: also `error` is a 200. Whose token it is is the turn's. "
        "With a narrowed token `switchAccount` is an `error` `notAllowed`.",
    ),
    Operation(
        "reportRejected", "POST", "/v1/tokens/rejected", "The provider's API refused this token: a newer one",
        handlers_tokens.report_rejected, ("turn",), _RESULT, bodies={"turn": m.RejectedToken},
    ),
    Operation(
        "nextEvent", "GET", "/v1/agents/{agent}/events", "The agent's next event, leased; or a stream of them",
        handlers_events.next_event, ("runtime",),
        {200: ApiReply("An event, leased.", a.LeasedEvent, stream=True), 204: ApiReply("No event by now.")},
        query=m.EventsQuery, parameters=m.AgentPath,
        description="With `Accept: text/event-stream` a stream; at most 16 of its events may be unsettled at once.",
    ),
    Operation(
        "ackEvent", "POST", "/v1/agents/{agent}/events/{eventId}/ack", "The event is done", handlers_events.ack_event,
        ("runtime",), _SETTLED, bodies={"runtime": m.Settle}, parameters=m.EventPath, codes=(Code.LEASE_LOST,),
    ),
    Operation(
        "nackEvent", "POST", "/v1/agents/{agent}/events/{eventId}/nack", "The event is not done: it comes again later",
        handlers_events.nack_event, ("runtime",), _SETTLED, bodies={"runtime": m.Settle}, parameters=m.EventPath,
        codes=(Code.LEASE_LOST,),
    ),
    Operation(
        "listQueues", "GET", "/v1/queues", "The queues of all agents: how deep, how old", handlers_queues.list_queues,
        ("operator",), {200: ApiReply("The queues that have something in them.", o.QueueList)},
    ),
    Operation(
        "listDeadLetters", "GET", "/v1/agents/{agent}/dead-letters", "An agent's events that no consumer could settle",
        handlers_queues.list_dead_letters, ("operator",), {200: ApiReply("Its dead letters.", o.DeadLetterList)},
        parameters=m.AgentPath,
    ),
    Operation(
        "retryDeadLetter", "POST", "/v1/agents/{agent}/dead-letters/{eventId}/retry",
        "Give a dead letter all its attempts anew, at the end of its queue", handlers_queues.retry_dead_letter,
        ("operator",), {204: ApiReply("It waits again.")}, parameters=m.EventPath,
    ),
    Operation(
        "dropDeadLetter", "DELETE", "/v1/agents/{agent}/dead-letters/{eventId}", "Remove a dead letter for good",
        handlers_queues.drop_dead_letter, ("operator",), {204: ApiReply("It is gone.")}, parameters=m.EventPath,
    ),
    Operation(
        "listAuthSessions", "GET", "/v1/auth-sessions", "Authorizations under way, and those that ended lately",
        handlers_sessions.list_sessions, ("operator",), {200: ApiReply("A page of records.", o.SessionPage)},
        query=m.SessionsQuery,
    ),
    Operation(
        "getAuthSessionRecord", "GET", "/v1/auth-sessions/{id}/record", "Its record, secrets masked",
        handlers_sessions.session_record, ("operator",), {200: ApiReply("The record.", o.SessionRecordBody)},
        parameters=m.SessionPath,
    ),
    Operation(
        "getAuthSession", "GET", "/v1/auth-sessions/{id}", "How an authorization stands",
        handlers_sessions.session_state, _ANY_KEY,
        {200: ApiReply("Its state. What is not known, or not the caller's, has expired.", a.SessionOutcomeBody)},
        parameters=m.SessionPath,
    ),
    Operation(
        "cancelAuthSession", "DELETE", "/v1/auth-sessions/{id}", "Take a request back: its link dies, without an event",
        handlers_sessions.cancel_session, _NO_TOOL, {200: ApiReply("Whether there was something.", a.Cancelled)},
        parameters=m.SessionPath,
        description="The person said no in the conversation. A tool cannot say it: a narrowed token is `notAllowed`.",
    ),
    Operation(
        "confirmAuthSession", "POST", "/v1/auth-sessions/confirm", "Say whose browser it was that agreed",
        handlers_sessions.confirm_session, ("runtime", "wholeTurn"),
        {200: ApiReply("How the authorization ended.", a.SessionOutcomeBody)},
        bodies={"runtime": m.ConfirmByRuntime, "wholeTurn": m.ConfirmByCode},
        codes=(Code.STATE_UNKNOWN, Code.OWNER_BINDING_FAILED, Code.BROKER_UNREACHABLE),
        description="A runtime confirms the handle that a browser brought to its page, or relays a channel code with a "
        "turn's own token. A narrowed token is `notAllowed`: no tool vouches for a browser.",
    ),
    Operation(
        "linkConnections", "POST", "/v1/connections", "A link to the page of what is connected, good for one visit",
        handlers_sessions.connections_link, ("runtime",), {201: ApiReply("The link.", a.ConnectionsLink)},
        bodies={"runtime": m.ConnectionsFor},
    ),
    Operation(
        "listGrants", "GET", "/v1/grants", "The grants there are, without their tokens", handlers_grants.list_grants,
        ("operator",), {200: ApiReply("A page of grants.", a.GrantPage)}, query=m.GrantsQuery,
    ),
    Operation(
        "getGrantRecord", "GET", "/v1/grants/{grantId}/record", "The record of a grant, its secrets masked",
        handlers_grants.grant_record, ("operator",), {200: ApiReply("The record.", o.GrantRecordBody)},
        parameters=m.GrantPath, codes=(Code.GRANT_NOT_FOUND,),
    ),
    Operation(
        "endGrant", "DELETE", "/v1/grants/{grantId}", "End a grant, here at once and at its provider",
        handlers_grants.end_grant, ("operator",), {200: ApiReply("What its provider knows by now.", a.GrantEndedBody)},
        parameters=m.GrantPath, codes=(Code.GRANT_NOT_FOUND,),
    ),
    Operation(
        "eraseSubject", "POST", "/v1/subjects/erase", "Revoke a subject's grants and remove all its records",
        handlers_grants.erase_subject, ("operator",), {200: ApiReply("What there was of it.", a.ErasedBody)},
        bodies={"operator": m.EraseSubject},
    ),
    Operation(
        "listApps", "GET", "/v1/apps", "The apps that the caller may ask for", handlers_apps.list_apps, _ANY_KEY,
        {200: ApiReply("The apps.", a.AppList)},
    ),
)  # fmt: skip

PROBES = (
    Operation(
        "getHealth", "GET", "/healthz", "Is the process alive, and is all well", None, (),
        {200: ApiReply("Always, while the process answers. `red`: an operator is needed.", a.HealthBody)},
    ),
    Operation(
        "getReadiness", "GET", "/readyz", "Can work be sent here", None, (),
        {200: ApiReply("It can.", a.ReadyBody), 503: ApiReply("It starts, stops, or has no store.", a.ReadyBody)},
    ),
    Operation(
        "getMetrics", "GET", "/metrics", "Figures in Prometheus' text format", None, ("operator",),
        {200: ApiReply("The figures.", str, media="text/plain")},
        codes=(Code.HOST_NOT_ALLOWED, Code.STORE_UNAVAILABLE),
        description="Where the configuration says so, also without a key from this machine.",
    ),
)  # fmt: skip
