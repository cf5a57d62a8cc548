"""Records at the command line: as the specification prints them, and never a secret."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import yaml

from oauthbroker import open_broker
from oauthbroker.testing import IdentityProvider
from tests.kit.cli import Desk
from tests.kit.running_broker import turn

GRANT = {
    "provider", "oauthAppRef", "subject", "flow", "scopesGranted", "token", "createdAt", "updatedAt", "revoked",
    "providerData",
}  # fmt: skip
SESSION = {
    "provider", "oauthAppRef", "subjectMode", "subject", "requestedScopes", "flow", "status", "createdAt", "expiresAt",
    "resume",
}  # fmt: skip


@pytest.fixture
def harness(desk: Desk, idp: IdentityProvider) -> Desk:
    desk.ready_to_serve(idp)
    desk.connect("alice", idp)
    return desk


def ask(idp: IdentityProvider) -> None:
    """A user is asked, so that a session waits."""

    async def asked() -> None:
        async with open_broker("config", env={}, background=False) as broker:
            subject = f"idp:user:{idp.account('bob').sub}"
            result: Any = await broker.oauth(turn(user=subject)).get_access_token("mail")
            assert "authorization_required" == result.status

    asyncio.run(asked())


@pytest.mark.rule("12.5.4")
def test_a_grants_record_is_the_specifications_with_its_secrets_masked(harness: Desk):
    [grant] = json.loads(harness.type("grants", "list", "--json").out)
    done = harness.type("grants", "show", grant["grantId"], "--record")
    record = yaml.safe_load(done.out)
    assert (0, "agents.example.io/v1alpha1", "OAuthGrantRecord") == (done.code, record["apiVersion"], record["kind"])
    assert {"name": grant["grantId"]} == record["metadata"]
    spec = record["spec"]
    assert set(spec) == GRANT
    assert ({"kind": "OAuthApp", "name": "mail"}, grant["subject"]) == (spec["oauthAppRef"], spec["subject"])
    assert ("<secret>", "<secret>") == (spec["token"]["accessToken"], spec["token"]["refreshToken"])
    assert len("2026-02-01T10:00:00Z") == len(spec["createdAt"])
    assert record == json.loads(harness.type("grants", "show", grant["grantId"], "--record", "--json").out)


@pytest.mark.rule("12.5.5")
def test_a_sessions_record_is_the_specifications_with_its_secrets_masked(harness: Desk, idp: IdentityProvider):
    ask(idp)
    pending, completed = json.loads(harness.type("sessions", "list", "--json").out)
    assert ("pending", "completed") == (pending["spec"]["status"], completed["spec"]["status"])
    name = pending["metadata"]["name"]
    done = harness.type("sessions", "show", name[:10])
    record = yaml.safe_load(done.out)
    assert (0, pending) == (done.code, record)
    assert ("AuthSessionRecord", True) == (record["kind"], name.startswith("as-"))
    spec = record["spec"]
    assert set(spec) == SESSION
    assert ("authorization_code", "S256") == (spec["flow"]["type"], spec["flow"]["pkce"]["method"])
    assert {"<secret>"} == {spec["flow"]["state"]} | ({spec["flow"]["pkce"].get("codeVerifier", "<secret>")})
    assert {"swarmRef", "instanceKey", "agentName", "origin", "auth"} >= set(spec["resume"])


def test_sessions_are_listed_by_app_and_by_subject(harness: Desk, idp: IdentityProvider):
    ask(idp)
    subject = f"idp:user:{idp.account('bob').sub}"
    listed = harness.type("sessions", "list").out.splitlines()
    assert ["session", "app", "subject", "status", "expires", "agent"] == listed[0].split()
    assert 3 == len(listed)
    assert 1 == len(json.loads(harness.type("sessions", "list", "--subject", subject, "--json").out))
    none = harness.type("sessions", "list", "--subject", "idp:user:U0")
    assert (0, "", "There are no such sessions.\n") == (none.code, none.out, none.err)


@pytest.mark.parametrize("typed", ["as-zzzzzzzz", "as-z"])
def test_an_unknown_or_short_session_is_refused_with_what_to_do(harness: Desk, typed: str):
    done = harness.type("sessions", "show", typed)
    assert (2, "") == (done.code, done.out)
    assert "sessions list" in done.err or "at least 6" in done.err
