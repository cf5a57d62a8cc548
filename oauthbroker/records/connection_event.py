"""The broker's own events: what all of them say about a connection, and the facts of each kind. Never a secret."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from oauthbroker.records.auth_session import AuthSession
from oauthbroker.records.event import AgentEvent, EventType
from oauthbroker.records.grant import Grant


def session_event(session: AuthSession, kind: EventType, at: datetime, **facts: Any) -> AgentEvent:
    """Make an event for the conversation of a session."""
    return AgentEvent.about(session.id, kind, session.resume, _payload(session, session.id, facts), at)


def grant_event(grant: Grant, kind: EventType, at: datetime, **facts: Any) -> AgentEvent | None:
    """Make an event for the conversation that last waited for this grant. None if there was none."""
    if grant.resume is None or grant.auth_session_id is None:
        return None
    payload = _payload(grant, grant.auth_session_id, {"grantId": grant.id, **facts})
    return AgentEvent.about(grant.auth_session_id, kind, grant.resume, payload, at)


def _payload(of: AuthSession | Grant, session_id: str, facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "oauthAppRef": {"kind": of.kind, "name": of.app},
        "provider": of.provider,
        "subject": of.subject,
        **({"account": of.account} if of.account else {}),
        "authSessionId": session_id,
        **facts,
    }
