"""The operations of a runtime: one function each, which builds the request and parses the answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

from oauthbroker.client.client_call import ClientCall, Reply, done, listed, members_of, segment, understood
from oauthbroker.client.tool_requests import outcome, ref
from oauthbroker.core.clock import from_iso
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.token_request import app_name, scopes_listed
from oauthbroker.model.token_results import SessionOutcome
from oauthbroker.model.turn import Turn
from oauthbroker.model.turn_token import BegunTurn
from oauthbroker.records import AgentEvent
from oauthbroker.records.event import DeliveredEvent

LONGEST_WAIT = 60
Tools = Mapping[str, Sequence[ToolAuth] | None]


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Leased(DeliveredEvent):
    """A leased event. Settle it with `ack` or `nack`; an unsettled event is delivered again when the lease ends."""

    lease: Secret
    lease_expires_at: datetime

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.event.type}, attempt={self.attempt})"


L = TypeVar("L", bound=Leased)


def begin_turn(
    turn: Turn, tools: Tools | Collection[str], ttl_seconds: int | None, *, private_links: bool
) -> ClientCall[BegunTurn]:
    """Begin a turn. Not repeatable: each call that arrives begins a turn of its own."""
    said: dict[str, Any] = {
        "agentName": turn.agent_name,
        "instanceKey": turn.instance_key,
        "swarmRef": turn.swarm_ref,
        "origin": dict(turn.origin),
        **({"auth": turn.auth.to_json()} if turn.auth is not None else {}),
        **({"locale": turn.locale} if turn.locale is not None else {}),
    }
    named = tools if isinstance(tools, Mapping) else dict.fromkeys(tools)
    body: dict[str, Any] = {"turn": said, "tools": {tool: _auths(auths) for tool, auths in named.items()}}
    if ttl_seconds is not None:
        body["ttlSeconds"] = ttl_seconds
    if private_links:
        body["privateLinks"] = True
    return ClientCall("POST", "/v1/turns", _begun, body=body, repeatable=False)


def end_turn(turn_id: str) -> ClientCall[bool]:
    return ClientCall("DELETE", f"/v1/turns/{segment(turn_id)}", done)


def links() -> ClientCall[list[dict[str, Any]]]:
    return listed("/v1/turn/links", "links")


def lease(agent: str, wait: int, made: Callable[..., L]) -> ClientCall[L | None]:
    """Repeatable: an event whose answer was lost is delivered again when its lease ends. `made` takes the members of
    `Leased`."""
    path, query = f"/v1/agents/{segment(agent)}/events", {"wait": str(wait)} if wait else {}
    return ClientCall("GET", path, lambda reply: _leased(reply, made), query=query, patience=wait)


def settle(agent: str, event_id: str, lease: Secret, how: Literal["ack", "nack"]) -> ClientCall[bool]:
    """Repeatable: a lease settles its event once."""
    path = f"/v1/agents/{segment(agent)}/events/{segment(event_id)}/{how}"
    return ClientCall("POST", path, lambda reply: done(reply, Code.LEASE_LOST), body={"lease": lease})


def session(auth_session_id: str) -> ClientCall[SessionOutcome]:
    return ClientCall("GET", f"/v1/auth-sessions/{segment(auth_session_id)}", outcome)


def cancel(auth_session_id: str) -> ClientCall[bool]:
    return ClientCall(
        "DELETE", f"/v1/auth-sessions/{segment(auth_session_id)}", lambda reply: members_of(reply)["cancelled"] is True
    )


def confirm(handle: Secret, subject: str) -> ClientCall[SessionOutcome]:
    """Confirm a handle. Not repeatable: a handle allows one try."""
    body = {"handle": handle, "subject": subject}
    return ClientCall("POST", "/v1/auth-sessions/confirm", outcome, body=body, repeatable=False)


def connections_link(subjects: Mapping[str, str]) -> ClientCall[tuple[str, datetime]]:
    """Repeatable: a lost link is never opened."""
    return ClientCall("POST", "/v1/connections", _link, body={"subjects": dict(subjects)})


def _begun(reply: Reply) -> BegunTurn:
    members = members_of(reply, 201)

    def read() -> BegunTurn:
        tools = {tool: Secret(text) for tool, text in members["toolTokens"].items()}
        return BegunTurn(
            turn_id=members["turnId"],
            token=Secret(members["turnToken"]),
            tool_tokens=tools,
            expires_at=from_iso(members["expiresAt"]),
        )

    return understood(read)


def _leased(reply: Reply, made: Callable[..., L]) -> L | None:
    if reply.status == 204:
        return None
    said = members_of(reply)
    return understood(
        lambda: made(
            event=AgentEvent.from_json(said["event"]),
            attempt=int(said["attempt"]),
            lease=Secret(said["lease"]),
            lease_expires_at=from_iso(said["leaseExpiresAt"]),
        )
    )


def _link(reply: Reply) -> tuple[str, datetime]:
    said = members_of(reply, 201)
    return understood(lambda: (str(said["url"]), from_iso(said["expiresAt"])))


def _auths(auths: Sequence[ToolAuth] | None) -> list[dict[str, Any]] | None:
    if auths is None:
        return None
    return [
        {
            "oauthAppRef": ref(app_name(auth.app)),
            **({"scopes": scopes_listed(auth.scopes)} if auth.scopes is not None else {}),
            **({"delivery": "injected"} if auth.injected else {}),
        }
        for auth in auths
    ]
