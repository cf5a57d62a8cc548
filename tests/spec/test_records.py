"""12.5.4 and 12.5.5: the two records, member by member."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from datetime import timedelta

import pytest

from oauthbroker.core.clock import to_iso
from oauthbroker.model.connect_links import locator_of
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records import AuthSession, Grant, grant_id
from tests.kit.running_broker import ALICE, TEAM, Harness
from tests.spec.kit import printed

HEAD = {"apiVersion": "agents.example.io/v1alpha1", "schema": 1}


@pytest.mark.rule("12.5.4")
@pytest.mark.parametrize("app, subject", [("mail", ALICE), ("team", TEAM)])
async def test_a_grant_is_kept_as_the_specification_prints_it(harness: Harness, app: str, subject: str) -> None:
    """Every member of its example, nothing more in `spec`; what we keep beside it stands in `status`."""
    ready = await harness.connected(app)
    record = await printed(harness, harness.repository.grant_place(GrantKey(app, subject)))
    now = to_iso(harness.clock.now())
    token = record["spec"].pop("token")
    assert {"metadata": {"name": grant_id(app, subject)}, "kind": "OAuthGrantRecord", **HEAD} == {
        name: value for name, value in record.items() if name not in {"spec", "status"}
    }
    assert {
        "provider": "oidc",
        "oauthAppRef": {"kind": "OAuthApp", "name": app},
        "subject": subject,
        "flow": "authorization_code",
        "scopesGranted": ["read", "write", "admin"],
        "createdAt": now,
        "updatedAt": now,
        "revoked": False,
        "providerData": {},
    } == record["spec"]
    assert ready.access_token.matches(token.pop("accessToken"))
    assert token.pop("refreshToken")
    assert {"tokenType": "bearer", "expiresAt": to_iso(harness.clock.now() + timedelta(seconds=3600))} == token


@pytest.mark.rule("12.5.4")
async def test_a_grant_without_refresh_token_or_end_has_no_such_members(harness: Harness) -> None:
    """What the provider did not give is left out, not null."""
    harness.idp.change("client-mail", access_lifetime=None, issue_refresh=False)
    await harness.connected()
    record = await printed(harness, harness.repository.grant_place(GrantKey("mail", ALICE)))
    assert {"tokenType", "accessToken"} == record["spec"]["token"].keys()


@pytest.mark.rule("12.5.4")
async def test_a_grants_name_is_a_hash_of_app_and_subject_and_tells_neither(harness: Harness) -> None:
    """Written `sha256:` and 64 hex digits; it is the grantId of events and lists."""
    await harness.connected()
    [event] = await harness.events()
    record = await printed(harness, harness.repository.grant_place(GrantKey("mail", ALICE)))
    name = record["metadata"]["name"]
    assert name == event["payload"]["grantId"]
    kind, _, digits = name.partition(":")
    assert ("sha256", 64, True) == (kind, len(digits), set(digits) <= set("0123456789abcdef"))


@pytest.mark.rule("12.5.4")
async def test_a_grant_keeps_its_beginning_when_it_is_refreshed(harness: Harness) -> None:
    """Connecting again updates the one record: createdAt stays, updatedAt moves."""
    await harness.connected(scopes=["read"])
    begun = to_iso(harness.clock.now())
    harness.clock.advance(60)
    await harness.connected(scopes=["write"])
    spec = (await printed(harness, harness.repository.grant_place(GrantKey("mail", ALICE))))["spec"]
    assert (begun, to_iso(harness.clock.now())) == (spec["createdAt"], spec["updatedAt"])
    assert ["read", "write"] == spec["scopesGranted"]
    assert [ALICE] == [grant.subject async for grant in harness.broker.grants.list()]


@pytest.mark.rule("12.5.4")
async def test_a_revoked_grant_says_so_and_forgets_its_tokens(harness: Harness) -> None:
    """The record stays as a tombstone, so that nothing older can come back in its place."""
    await harness.connected()
    await harness.broker.revoke("mail", subject=ALICE)
    spec = (await printed(harness, harness.repository.grant_place(GrantKey("mail", ALICE))))["spec"]
    assert (True, {}) == (spec["revoked"], spec["token"])


@pytest.mark.rule("12.5.5")
@pytest.mark.parametrize("app, mode, subject", [("mail", "user", ALICE), ("team", "global", TEAM)])
async def test_a_session_is_kept_as_the_specification_prints_it(
    harness: Harness, app: str, mode: str, subject: str
) -> None:
    """Every member of its example, the resume block with origin and auth included."""
    asked = await harness.ask_link(app)
    record = await printed(harness, harness.repository.session_key(locator_of(asked.auth_session_id)))
    flow = record["spec"].pop("flow")
    assert {"metadata": {"name": asked.auth_session_id}, "kind": "AuthSessionRecord", **HEAD} == {
        name: value for name, value in record.items() if name not in {"spec", "status"}
    }
    assert {
        "provider": "oidc",
        "oauthAppRef": {"kind": "OAuthApp", "name": app},
        "subjectMode": mode,
        "subject": subject,
        "requestedScopes": ["read", "write", "admin"],
        "status": "pending",
        "createdAt": to_iso(harness.clock.now()),
        "expiresAt": to_iso(asked.expires_at),
        "resume": {
            "swarmRef": {"kind": "Swarm", "name": "default"},
            "instanceKey": "1700000000.000100",
            "agentName": "planner",
            "origin": {"connector": "chat-main", "channel": "C123"},
            "auth": {
                "actor": {"type": "user", "id": "chat:U234567"},
                "subjects": {"user": ALICE, "global": TEAM},
            },
        },
    } == record["spec"]
    verifier = flow["pkce"]["codeVerifier"]
    challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    assert {"type", "pkce", "state"} == flow.keys()
    assert ("authorization_code", "S256", challenge) == (
        flow["type"],
        flow["pkce"]["method"],
        flow["pkce"]["codeChallenge"],
    )
    assert 43 <= len(verifier) <= 128
    assert len(flow["state"]) >= 43


@pytest.mark.rule("12.5.5")
async def test_a_session_ends_in_one_of_three_words_and_its_one_time_secrets_end_with_it(harness: Harness) -> None:
    """completed, failed and expired are final; verifier, nonce and ticket are gone from the record then."""
    done, denied, over = [await harness.ask_link(scopes=[scope]) for scope in ("read", "write", "admin")]
    await harness.connect(done)
    await harness.connect(denied, deny=True)
    await harness.broker.cancel(over.auth_session_id)
    for asked, word in ((done, "completed"), (denied, "failed"), (over, "expired")):
        session = await harness.session(asked)
        assert (word, None, None, None) == (
            session.status,
            session.ticket,
            session.attempt.verifier,
            session.attempt.nonce,
        )


@pytest.mark.rule("12.5.5")
async def test_a_finished_session_is_cleaned_up_after_a_while(harness: Harness) -> None:
    """It stays an hour for callers that ask how it ended, and then goes."""
    asked = await harness.ask_link()
    await harness.connect(asked)
    await harness.events()
    assert "completed" == (await harness.broker.wait(asked.auth_session_id, timeout=60)).status
    harness.clock.advance(harness.broker.bundle.settings.limits.keep_finished_seconds + 1)
    await _swept(harness)
    assert [] == [held async for held in harness.repository.sessions()]


async def _swept(harness: Harness) -> None:
    """One pass of the broker's own sweeper."""
    await harness.parts.sweep.once()


@pytest.mark.rule("12.5.4", "12.5.5")
async def test_both_records_come_back_as_they_went(harness: Harness) -> None:
    """Reading a written record gives the same record, so that nothing is lost on the way through the seal."""
    asked = await harness.ask_link("files")
    await harness.connected()
    session, grant = await harness.session(asked), await harness.grant()
    assert grant is not None
    assert session == AuthSession.from_plaintext(session.to_plaintext())
    assert grant == Grant.from_plaintext(grant.to_plaintext())
