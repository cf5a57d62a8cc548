"""The bundles in `config/` and `oauthbroker/providers/` load, with the values that a reader expects."""

from __future__ import annotations

from pathlib import Path

from oauthbroker.config import load, resolve
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import IdentityRule
from oauthbroker.model.bundle import Bundle, ToolAuth

EXAMPLE = Path(__file__).parents[3] / "config"


def example() -> Bundle:
    loaded = load(EXAMPLE)
    env = dict.fromkeys(loaded.env_names, "a-client-id")
    return resolve(loaded, env, {key: Secret("a-secret") for key in loaded.secret_keys})


def test_the_example_bundle_loads_and_resolves():
    bundle = example()
    assert {"slack-bot", "slack-user", "github", "google-calendar", "microsoft-mail", "company-sso"} == set(bundle.apps)
    assert str(EXAMPLE.parent / "store") == bundle.settings.store_root
    assert "a-client-id" == bundle.apps["github"].client.client_id
    assert Secret("a-secret") == bundle.connectors["slack-main"].static_token


def test_an_export_has_exactly_its_narrowed_scopes():
    tools = example().tools
    assert (ToolAuth("slack-bot", ("chat:write", "channels:read")),) == tools["Tool/slack"]
    assert (ToolAuth("slack-bot", ("chat:write",)),) == tools["Tool/slack:post"]
    assert (ToolAuth("google-calendar", None),) == tools["Tool/calendar"]


def test_slack_is_two_apps_for_two_tokens():
    apps = example().apps
    bot, user = apps["slack-bot"], apps["slack-user"]
    assert ("scope", ()) == (bot.habits.scope_param, bot.habits.token_path)
    assert ("user_scope", ("authed_user",)) == (user.habits.scope_param, user.habits.token_path)
    assert IdentityRule("tokenResponse", "slack:team:{team.id}", name="team.name") == bot.owner.global_identity
    assert (
        IdentityRule("tokenResponse", "slack:user:{team.id}:{authed_user.id}", name="team.name")
        == user.owner.user_identity
    )
    assert "http://127.0.0.1:8420/oauth/callback/slack-bot" == bot.redirect.uri
