"""The records of a broker after some weeks of work, planted at once: grants in every state, unsettled events."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.turn import ResumeTarget
from oauthbroker.records import AgentEvent, Grant, Token
from oauthbroker.records.refresh_state import RefreshState
from oauthbroker.repository.repository import Repository
from oauthbroker.testing import Canaries
from tests.kit.running_broker import Harness


async def grant(harness: Harness, app: str, subject: str, **changes: Any) -> Grant:
    """A living grant, made two hours ago, that can be refreshed; `changes` are of the record."""
    now, configured = harness.clock.now(), harness.broker.bundle.apps[app]
    made = Grant(
        app=app,
        provider=configured.provider,
        subject=subject,
        flow="authorization_code",
        scopes=configured.scopes[:2],
        token=Token(
            access_token=_canary(f"planted-access-{app}-{subject}", "access token"),
            token_type="Bearer",
            refresh_token=_canary(f"planted-refresh-{app}-{subject}", "refresh token"),
            expires_at=now + timedelta(hours=1),
            lifetime_seconds=3600,
        ),
        created_at=now - timedelta(hours=2),
        updated_at=now - timedelta(minutes=3),
        pinned=("https://idp.example", subject),
        authorized_by=subject if configured.subject_mode == "user" else None,
        auth_session_id="as-" + "p" * 22,
        registration=configured.registration,
        resume=ResumeTarget("planner", "1700000000.000100"),
    )
    made = replace(made, **changes)
    repository = Repository(harness.store)
    async with repository.pair(GrantKey(app, subject)):
        versioned = await repository.grant(made.key)
        await repository.save_grant(made, expect=0 if versioned is None else versioned.generation)
    return made


async def dead_grant(harness: Harness, app: str, subject: str) -> Grant:
    """Its provider has refused the refresh token."""
    now = harness.clock.now()
    token = Token(
        access_token=_canary(f"planted-dead-{app}-{subject}", "access token"),
        token_type="Bearer",
        refresh_token=None,
        expires_at=now,
        lifetime_seconds=3600,
    )
    return await grant(harness, app, subject, token=token, refresh_state=RefreshState(ended="dead"))


async def ending_grant(harness: Harness, app: str, subject: str) -> Grant:
    """A grant that cannot be refreshed and ends in three hours."""
    ends = harness.clock.now() + timedelta(hours=3)
    token = Token(
        access_token=_canary(f"planted-ending-{app}-{subject}", "access token"),
        token_type="Bearer",
        refresh_token=None,
        expires_at=ends,
        lifetime_seconds=86_400,
    )
    return await grant(harness, app, subject, token=token)


async def ended_grant(harness: Harness, app: str, subject: str) -> Grant:
    """Revoked, and its provider knows."""
    return await grant(harness, app, subject, token=None, revoked=True, revocation="done", pinned=None)


async def dead_letter(
    harness: Harness, number: int = 1, agent: str = "planner", app: str = "mail", kind: str = "OAuthApp"
) -> AgentEvent:
    """An event that was nacked as often as it may be."""
    event = AgentEvent.about(
        f"as-{number:022d}",
        "auth.granted",
        ResumeTarget(agent, "1700000000.000100"),
        {"oauthAppRef": {"kind": kind, "name": app}},
        harness.clock.now(),
    )
    queues = harness.parts.queues
    await queues.enqueue(event)
    for _ in range(harness.broker.bundle.settings.limits.queue_attempts):
        delivery = await queues.lease(agent)
        assert delivery is not None
        assert event.id == delivery.id
        await delivery.nack()
        harness.clock.advance(1000)
    assert await queues.lease(agent) is None
    return event


def open_circuit(harness: Harness, app: str, code: Code = Code.APP_MISCONFIGURED) -> None:
    """This process has just been told so by the app's provider."""
    harness.parts.manager.refresh.circuits.failed(app, BrokerError(code))


def _canary(text: str, kind: str) -> Secret:
    Canaries.active().add(text, kind)
    return Secret(text)
