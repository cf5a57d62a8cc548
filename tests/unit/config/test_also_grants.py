"""`alsoGrants` loads only for two apps whose tokens come in one answer, and whose owner that answer tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oauthbroker.protocol.consent_answer import consent_response
from oauthbroker.protocol.messages import ProviderResponse
from tests.unit.config.bundles import GLOBAL, edited, loaded_with_values, problems_in, write

BOT = edited(GLOBAL, ("  scopes:", "  alsoGrants: OAuthApp/person\n  scopes:"))
USER = edited(
    GLOBAL,
    ("{name: shared}", "{name: person}"),
    ("subjectMode: global", "subjectMode: user"),
    ('["chat:write"]', '["search:read"]'),
    ('  owner: {authorizers: ["slack:user:T1:U1"]}\n', ""),
)
Change = tuple[str, str]
SCOPES = '  scopes: ["search:read"]\n'
LONG = "p" * 81
SHOP = "  connectParams: {shop: {pattern: '[a-z]+'}}\n"
MCP_BOT = (
    ("provider: slack", "provider: mcp\n  mcp: {url: https://acme.example/mcp}"),
    ("subjectMode: global", "subjectMode: user"),
    ('  owner: {authorizers: ["slack:user:T1:U1"]}\n', "  owner: {binding: runtimeConfirm, confirmUrl: https://broker.example/c}\n"),
)  # fmt: skip


def more(text: str) -> Change:
    return SCOPES, SCOPES + text


def test_the_second_app_stands_in_the_first_one(tmp_path: Path) -> None:
    _, bundle = loaded_with_values(write(tmp_path, bot=BOT, user=USER))
    first, second = bundle.apps["shared"], bundle.apps["person"]
    assert second == first.also
    assert second.also is None
    alone = loaded_with_values(write(tmp_path / "b", bot=GLOBAL, user=USER))[1].apps["shared"]
    other = edited(USER, ("search:read", "users:read"))
    changed = loaded_with_values(write(tmp_path / "c", bot=BOT, user=other))[1].apps["shared"]
    assert 3 == len({first.config_digest, alone.config_digest, changed.config_digest}), (
        "running authorizations end with a change"
    )


def test_the_apps_of_the_preset_read_their_own_token_out_of_one_answer(tmp_path: Path) -> None:
    """The answer has the form of the example in Slack's documentation."""
    _, bundle = loaded_with_values(write(tmp_path, bot=BOT, user=USER))
    user = {"id": "U1", "scope": "search:read", "access_token": "xoxp-1", "token_type": "user"}
    bot = {"ok": True, "access_token": "xoxb-1", "token_type": "bot", "scope": "chat:write", "team": {"id": "T1"}}
    body = json.dumps({**bot, "authed_user": user}).encode()
    answer = ProviderResponse(status=200, content_type="application/json", retry_after=None, body=body)
    found = [consent_response(bundle.apps[name], answer) for name in ("shared", "person")]
    assert ["xoxb-1", "xoxp-1"] == [it.access_token.reveal() for it in found]
    assert [("chat:write",), ("search:read",)] == [it.scopes for it in found]


@pytest.mark.case("40", "95")
@pytest.mark.parametrize(
    "what, bot, user",
    [
        ("no such OAuthApp", [("OAuthApp/person", "OAuthApp/persona")], []),
        ("not a reference to an OAuthApp", [("OAuthApp/person", "Tool/person")], []),
        ("the same token", [("OAuthApp/person", "OAuthApp/shared")], []),
        ("the same token", [], [more("  options: {slack: {tokenMode: bot}}\n")]),
        ("a flow without one code", [], [("flow: authorizationCode", "flow: clientCredentials")]),
        ("one token for a consent", MCP_BOT, []),
        ("its provider and", [], [("provider: slack", "provider: google")]),
        ("its params and", [], [more("  params: {domain: slack-gov.com}\n")]),
        ("its client and", [], [("{value: an-id}", "{value: another-id}")]),
        ("its client and", [], [("key: client_secret", "key: another")]),
        ("its endpoints and", [], [more("  endpoints: {revokeUrl: 'https://slack.com/x'}\n")]),
        ("its resource and", [], [more("  resource: https://api.example\n")]),
        ("the token response alone", [], [more("  owner: {binding: runtimeConfirm, confirmUrl: 'https://b.example/c'}\n")]),
        ("the token response alone", [], [more("  owner: {identity: {user: {from: userInfo, template: 'slack:user:{sub}'}}}\n")]),
        ("without scopes", [], [('["search:read"]', "[]")]),
        ("facts of its own", [], [more("  facts: {callback: {realm: {pattern: '[0-9]+'}}}\n")]),
        ("several accounts", [], [more("  accounts: several\n")]),
        ("a third one", [], [more("  alsoGrants: OAuthApp/shared\n")]),
        ("more than 80 characters", [("OAuthApp/person", f"OAuthApp/{LONG}")], [("{name: person}", f"{{name: {LONG}}}")]),
        ("those of the first token", [("alsoGrants: OAuthApp/person", "title: Bot")], [more("  alsoGrants: OAuthApp/shared\n")]),
        ("the token response alone", [], [("subjectMode: user", "subjectMode: global"), more("  options: {slack: {tokenMode: user}}\n  owner: {authorizers: anyone}\n")]),
        ("exchanged once more", [], [more("  quirks: {secondExchange: {url: 'https://slack.com/api/x', grantType: long}}\n")]),
        ("connectParams", [("  alsoGrants", SHOP + "  alsoGrants")], []),
        ("connectParams", [], [more(SHOP)]),
    ],
)  # fmt: skip
def test_it_is_refused(tmp_path: Path, what: str, bot: list[Change], user: list[Change]) -> None:
    found = problems_in(write(tmp_path, bot=edited(BOT, *bot), user=edited(USER, *user)))
    assert any(what.lower() in str(it).lower() for it in found if it.path.startswith("spec.alsoGrants")), [
        str(it) for it in found
    ]
