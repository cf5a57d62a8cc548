"""Records as hypothesis makes them, and the ones that the specification prints (12.5.4, 12.5.5)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, get_args

from hypothesis import strategies as st

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.token_results import Reason
from oauthbroker.model.turn import ResumeTarget, TurnAuth
from oauthbroker.records import (
    AgentEvent,
    Attempt,
    AuthSession,
    Claim,
    Device,
    EventType,
    Grant,
    Login,
    PendingCode,
    Retired,
    Token,
)

CREATED, UPDATED = datetime(2026, 1, 31, 9, 10, 1, tzinfo=UTC), datetime(2026, 1, 31, 9, 10, 1, tzinfo=UTC)
SESSION_ENDS, TOKEN_ENDS = datetime(2026, 1, 31, 9, 20, 1, tzinfo=UTC), datetime(2026, 2, 1, 10, tzinfo=UTC)

PRINTED_RESUME: dict[str, Any] = {
    "swarmRef": {"kind": "Swarm", "name": "default"},
    "instanceKey": "1700000000.000100",
    "agentName": "planner",
    "origin": {"connector": "slack-main", "channel": "C123", "threadTs": "1700000000.000100"},
    "auth": {
        "actor": {"type": "user", "id": "slack:U234567"},
        "subjects": {"global": "slack:team:T111", "user": "slack:user:T111:U234567"},
    },
}
RESUME = ResumeTarget(
    "planner",
    "1700000000.000100",
    "Swarm/default",
    origin={"connector": "slack-main", "channel": "C123", "threadTs": "1700000000.000100"},
    auth=TurnAuth(
        {"type": "user", "id": "slack:U234567"}, {"global": "slack:team:T111", "user": "slack:user:T111:U234567"}
    ),
)

texts = st.text(st.characters(codec="utf-8"), max_size=20)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
secrets = texts.map(Secret)
moments = st.datetimes(timezones=st.just(UTC))
scopes = st.lists(names, max_size=4, unique=True).map(tuple)
facts = st.dictionaries(texts, st.one_of(texts, st.integers(-(2**53), 2**53), st.booleans(), st.none()), max_size=3)
kinds = st.sampled_from(["Swarm", "Team"])
targets = st.builds(
    ResumeTarget,
    agent_name=names,
    instance_key=names,
    swarm_ref=st.builds("{}/{}".format, kinds, names.filter(lambda name: "/" not in name)),
    origin=facts,
    auth=st.builds(TurnAuth, st.dictionaries(texts, texts, max_size=3), st.dictionaries(texts, texts, max_size=2)),
)
events = st.builds(
    AgentEvent, id=names, type=st.sampled_from(get_args(EventType)), target=targets, payload=facts, created_at=moments
)
tokens = st.builds(
    Token,
    access_token=secrets,
    token_type=names,
    refresh_token=st.none() | secrets,
    expires_at=st.none() | moments,
    lifetime_seconds=st.none() | st.integers(0, 10**9),
)
retired = st.builds(
    Retired,
    moments,
    st.lists(secrets, min_size=1, max_size=2).map(tuple),
    st.lists(secrets, max_size=2).map(tuple),
)
elsewhere = st.builds(
    replace, retired, registration=names, authorized_by=st.none() | texts, tell_after=st.none() | moments
)
grants = st.builds(
    Grant,
    app=names,
    provider=names,
    subject=names,
    flow=st.just("authorization_code"),
    scopes=scopes,
    token=st.none() | tokens,
    created_at=moments,
    updated_at=moments,
    revoked=st.booleans(),
    revocation=st.sampled_from(["none", "pending", "done", "refused", "shared", "untold"]),
    pinned=st.none() | st.tuples(names, names),
    account=names | st.just(""),
    label=names | st.just(""),
    authorized_by=st.none() | texts,
    auth_session_id=st.none() | texts,
    resume=st.none() | targets,
    outbox=st.lists(events, max_size=2).map(tuple),
    retired=st.none() | retired,
    elsewhere=st.lists(elsewhere, max_size=2, unique_by=lambda each: each.registration).map(tuple),
    replaced=st.lists(elsewhere, max_size=2, unique_by=lambda each: each.registration).map(tuple),
    tell_after=st.none() | moments,
    provider_data=facts,
)
devices = st.builds(
    Device,
    code=st.none() | secrets,
    user_code=texts,
    verification_uri=texts,
    verification_uri_complete=st.none() | texts,
    interval=st.integers(1, 10**6),
    next_poll_at=moments,
    unsure=st.booleans(),
    ticket_hash=texts,
)
pending_codes = st.builds(
    PendingCode,
    kind=st.sampled_from(["runtimeConfirm", "channelCode", "brokerLogin"]),
    code=secrets,
    proof=secrets,
    until=moments,
    tries=st.integers(0, 5),
)
attempts = st.builds(
    Attempt,
    state=secrets,
    challenge=texts,
    verifier=st.none() | secrets,
    nonce=st.none() | secrets,
    cookie=st.none() | texts,
)
logins = st.builds(
    Login,
    attempt=attempts,
    digest=texts,
    used=st.booleans(),
    wrong=st.booleans(),
    until=st.none() | moments,
    way_on=st.none() | secrets,
)
browser_sessions = st.builds(
    AuthSession,
    locator=st.from_regex(r"\A[A-Za-z0-9_-]{22}\Z"),
    app=names,
    provider=names,
    subject_mode=st.sampled_from(["global", "user"]),
    subject=names,
    scopes=scopes,
    resume=targets,
    ticket=st.none() | secrets,
    attempt=attempts,
    created_at=moments,
    expires_at=moments,
    config_digest=texts,
    link=st.sampled_from(["connect", "direct"]),
    switch_account=st.booleans(),
    reason=st.sampled_from(get_args(Reason)),
    status=st.sampled_from(["pending", "completed", "failed", "expired"]),
    claim=st.none() | st.builds(Claim, texts, moments, st.booleans()),
    failure=st.none() | st.sampled_from(list(Code)),
    finished_at=st.none() | moments,
    outbox=st.none() | events,
    presses=st.integers(0, 20),
    pending_code=st.none() | pending_codes,
    login=st.none() | logins,
)
device_sessions = st.builds(replace, browser_sessions, attempt=st.just(Attempt.none()), device=devices)
sessions = browser_sessions | device_sessions


def device(**changes: Any) -> Device:
    """What the session of a device code keeps."""
    fields: dict[str, Any] = {
        "code": Secret("printed-device-code"),
        "user_code": "WDJB-MJHT",
        "verification_uri": "https://slack.example/device",
        "verification_uri_complete": "https://slack.example/device?user_code=WDJB-MJHT",
        "interval": 5,
        "next_poll_at": CREATED,
    }
    return Device(**(fields | changes))


def pending_code(**changes: Any) -> PendingCode:
    """A code that came back to the printed session and waits."""
    fields: dict[str, Any] = {
        "kind": "runtimeConfirm",
        "code": Secret("printed-code"),
        "proof": Secret("printed-proof"),
        "until": datetime(2026, 1, 31, 9, 11, 1, tzinfo=UTC),
    }
    return PendingCode(**(fields | changes))


def login(**changes: Any) -> Login:
    """What a browser took to the broker's own login."""
    verifier, nonce = Secret("printed-login-verifier"), Secret("printed-login-nonce")
    fields: dict[str, Any] = {
        "attempt": Attempt(
            state=Secret("printed-login-state"), challenge="c", verifier=verifier, nonce=nonce, cookie="hash"
        ),
        "digest": "d",
    }
    return Login(**(fields | changes))


def grant(**changes: Any) -> Grant:
    """The one that 12.5.4 prints."""
    fields: dict[str, Any] = {
        "app": "slack-bot",
        "provider": "slack",
        "subject": "slack:team:T111",
        "flow": "authorization_code",
        "scopes": ("chat:write", "channels:read"),
        "token": Token(
            access_token=Secret("printed-access"),
            token_type="bearer",
            refresh_token=Secret("printed-refresh"),
            expires_at=TOKEN_ENDS,
            lifetime_seconds=3600,
        ),
        "created_at": CREATED,
        "updated_at": UPDATED,
    }
    return Grant(**(fields | changes))


def session(**changes: Any) -> AuthSession:
    """The one that 12.5.5 prints."""
    fields: dict[str, Any] = {
        "locator": "4f2c9aAAAAAAAAAAAAAAAA",
        "app": "slack-bot",
        "provider": "slack",
        "subject_mode": "global",
        "subject": "slack:team:T111",
        "scopes": ("chat:write", "channels:read"),
        "resume": RESUME,
        "ticket": Secret("printed-ticket"),
        "attempt": Attempt(
            state=Secret("printed-state"),
            challenge="derived",
            verifier=Secret("printed-verifier"),
            nonce=Secret("printed-nonce"),
        ),
        "created_at": CREATED,
        "expires_at": SESSION_ENDS,
        "config_digest": "0" * 32,
    }
    return AuthSession(**(fields | changes))


def event(number: int = 0, instance: str = "1700000000.000100", agent: str = "planner", **changes: Any) -> AgentEvent:
    target = ResumeTarget(agent, instance, "Swarm/default", origin=RESUME.origin, auth=RESUME.auth)
    fields: dict[str, Any] = {
        "id": f"evt-as-{number}-auth.granted",
        "type": "auth.granted",
        "target": target,
        "payload": {"authSessionId": f"as-{number}", "grantId": "sha256:0"},
        "created_at": CREATED,
    }
    return AgentEvent(**(fields | changes))
