"""A Slack app with PKCE enabled is a public client: it gets tokens for the verifier alone, other apps for their secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.config import load
from oauthbroker.model.apps import Client, IdentityRule, Owner
from oauthbroker.model.token_results import Ready
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import running, turn, user_app
from tests.story.refresh_kit import LIFETIME

SUBJECT = "slack:user:T111:U234567"
BUNDLE = """apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {name: slack}
spec:
  provider: slack
  flow: authorizationCode
  subjectMode: user
  client: CLIENT
  scopes: [read, write]
"""
SECRET = "clientId: an-id, clientSecret: {valueFrom: {env: SLACK_SECRET}}"


@pytest.mark.case("18", "26")
@pytest.mark.parametrize("written, enabled", [("clientId: an-id, authMethod: none", True), (SECRET, False)])
async def test_the_exchange_and_a_refresh_prove_the_app_as_slack_has_registered_it(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, written: str, enabled: bool
) -> None:
    (tmp_path / "slack.yaml").write_text(BUNDLE.replace("CLIENT", f"{{{written}}}"))
    preset = load(tmp_path).apps["slack"].app
    owner = Owner(user_identity=IdentityRule("tokenResponse", "slack:user:{team.id}:{authed_user.id}"))
    app = user_app(identity_provider, "slack", owner=owner, habits=preset.habits)
    client = Client(app.client.client_id, None if enabled else app.client.client_secret, preset.client.auth_method)
    identity_provider.change(
        client.client_id, dialect="slack", auth_method=client.auth_method, access_lifetime=LIFETIME
    )
    identity_provider.script.refresh.alter(lambda found: found | found["authed_user"], times=None)  # flat
    app = user_app(identity_provider, "slack", owner=owner, habits=preset.habits, client=client)
    async with running(identity_provider, [app], clock=test_clock) as harness:
        first = await harness.connected("slack", of=turn(user=SUBJECT), scopes=["read"])
        test_clock.advance(LIFETIME)
        second = await harness.ask("slack", scopes=["read"], of=turn(user=SUBJECT))
        assert isinstance(second, Ready)
        assert first.access_token.reveal() != second.access_token.reveal()
    (exchange,), (refresh,) = identity_provider.seen("authorization_code"), identity_provider.seen("refresh_token")
    assert exchange.has_code_verifier
    for request in (exchange, refresh):
        assert ("client_id" in request.form) is enabled
        assert "client_secret" not in request.form
