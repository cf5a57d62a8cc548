"""Which unverified facts an app relies on."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker import providers
from oauthbroker.config import load
from oauthbroker.config.values import preset_merge as merging
from oauthbroker.providers.preset import Preset
from tests.unit.config.bundles import APP, HEAD, edited, write

ACME = Preset.model_validate({
    "name": "acme",
    "title": "Acme",
    "endpoints": {
        "authorizationUrl": "https://acme.example/a", "tokenUrl": "https://acme.example/t",
        "deviceAuthorizationUrl": "https://acme.example/d",
    },
    "flows": ["authorizationCode"],
    "scopeSeparator": ",",
    "authMethod": "client_secret_post",
    "authorizeParams": {"prompt": "consent", "audience": "api"},
    "identity": {
        "user": {"from": "tokenResponse", "template": "acme:user:{id}"},
        "global": {"from": "tokenResponse", "template": "acme:team:{team}"},
    },
    "notes": ["Tokens live for ever."],
    "evidence": {
        **dict.fromkeys(["endpoints", "flows", "scopeSeparator", "authMethod", "authorizeParams", "identity", "notes"], "unverified (x)"),
        "endpoints.authorizationUrl": "documentation (docs.example/y, read 2026-11-21)",
    },
})  # fmt: skip
UNVERIFIED_FACTS = Preset.model_validate({
    "name": "acme",
    "title": "Acme",
    "endpoints": {
        "authorizationUrl": "https://acme.example/a", "tokenUrl": "https://acme.example/t",
        "deviceAuthorizationUrl": "https://acme.example/d", "userInfoUrl": "https://acme.example/me",
        "jwksUrl": "https://acme.example/keys", "issuer": "https://acme.example", "refreshUrl": "https://acme.example/r",
        "pushedAuthorizationUrl": "https://acme.example/p", "revokeUrl": "https://acme.example/v",
    },
    "pkce": "supported",
    "refreshTokens": "keep",
    "refreshParams": {"again": "yes"},
    "tokenParams": {"first": "yes"},
    "authorizeParams": {"prompt": "consent"},
    "alwaysScopes": ["openid"],
    "scopeSeparator": ",",
    "scopeParam": "rights",
    "idTokenAlgorithms": ["RS256"],
    "issuerPromised": True,
    "userInfoHeaders": {"Accept": "text/json"},
    "identity": {"user": {"from": "tokenResponse", "template": "acme:user:{id}"}},
    "evidence": dict.fromkeys(
        ["endpoints", "pkce", "refreshTokens", "refreshParams", "tokenParams", "authorizeParams", "alwaysScopes",
         "scopeSeparator", "scopeParam", "idTokenAlgorithms", "issuerPromised", "userInfoHeaders", "identity"],
        "unverified (x)",
    ),
})  # fmt: skip
ALL = {
    "endpoints.tokenUrl", "scopeSeparator", "authMethod", "authorizeParams.prompt", "authorizeParams.audience",
    "identity.user.from", "identity.user.template",
}  # fmt: skip
BARE = HEAD + (
    "kind: OAuthApp\nmetadata: {name: acme}\nspec:\n  provider: acme\n  flow: authorizationCode\n  subjectMode: user\n"
    "  client: {clientId: {value: an-id}, clientSecret: {valueFrom: {env: ACME_SECRET}}}\n  scopes: [read]\n"
)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (providers, merging):
        monkeypatch.setattr(module, "presets", lambda: {"acme": ACME})


def unverified_of(folder: Path, text: str) -> set[str]:
    [draft] = load(write(folder / "b", app=text)).apps.values()
    return set(draft.unverified)


def test_an_app_that_says_nothing_relies_on_all_that_matters_to_it(tmp_path: Path):
    """Not on notes, not on the device endpoint, not on a team's account."""
    assert ALL == unverified_of(tmp_path, BARE)


@pytest.mark.parametrize(
    "old, new, gone",
    [
        ("  scopes:", "  endpoints: {tokenUrl: 'https://acme.example/x'}\n  scopes:", {"endpoints.tokenUrl"}),
        ("  scopes:", "  quirks: {scopeSeparator: ';'}\n  scopes:", {"scopeSeparator"}),
        ("{clientId:", "{authMethod: client_secret_basic, clientId:", {"authMethod"}),
        ("  scopes:", "  options: {authorize: {prompt: login}}\n  scopes:", {"authorizeParams.prompt"}),
        ("  scopes:", "  owner: {identity: {user: {template: 'acme:{sub}'}}}\n  scopes:", {"identity.user.template"}),
        (
            "  scopes:",
            "  owner: {identity: {user: {from: userInfo, template: 'acme:{sub}'}}}\n  endpoints: {userInfoUrl: 'https://acme.example/me'}\n  scopes:",
            {"identity.user.from", "identity.user.template"},
        ),
    ],
)
def test_an_apps_own_value_is_no_doubt(old: str, new: str, gone: set[str], tmp_path: Path):
    assert ALL - gone == unverified_of(tmp_path, edited(BARE, (old, new)))


@pytest.mark.parametrize(
    "said, doubted",
    [
        ("", False),
        ("authMethod: private_key_jwt, ", True),
        ("authMethod: private_key_jwt, assertionAudience: endpoint, ", False),
    ],
)
def test_an_assertions_audience_is_a_doubt_of_a_client_that_signs_and_does_not_say_it(
    said: str, doubted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    facts = ACME.model_dump(by_alias=True, exclude_unset=True) | {"assertionAudience": "tokenEndpoint"}
    facts["evidence"] = {**facts["evidence"], "assertionAudience": "unverified (x)"}
    monkeypatch.setattr(merging, "presets", lambda: {"acme": Preset.model_validate(facts)})
    found = unverified_of(tmp_path, edited(BARE, ("{clientId:", f"{{{said}clientId:")))
    assert doubted is ("assertionAudience" in found)


def test_a_team_relies_on_the_teams_account(tmp_path: Path):
    shared = edited(BARE, ("subjectMode: user", "subjectMode: global\n  owner: {authorizers: anyone}"))
    found = unverified_of(tmp_path, shared)
    assert {"identity.global.from", "identity.global.template"} == {it for it in found if it.startswith("identity")}


def test_another_flow_relies_on_its_endpoint_and_on_the_list_of_flows(tmp_path: Path):
    text = edited(BARE, ("flow: authorizationCode", "flow: deviceCode"))
    [draft] = load(write(tmp_path / "b", app=text)).apps.values()
    assert ALL | {"endpoints.deviceAuthorizationUrl", "flows"} == set(draft.unverified)
    assert draft.unusual_flow


@pytest.mark.parametrize(
    "flow, unused",
    [
        ("authorizationCode", {"endpoints.deviceAuthorizationUrl"}),
        ("deviceCode", {"endpoints.authorizationUrl", "endpoints.pushedAuthorizationUrl", "pkce", "issuerPromised"}),
        (
            "clientCredentials",
            {
                "endpoints.authorizationUrl", "endpoints.pushedAuthorizationUrl", "endpoints.deviceAuthorizationUrl",
                "endpoints.userInfoUrl", "endpoints.jwksUrl", "endpoints.issuer", "endpoints.refreshUrl", "pkce",
                "issuerPromised", "userInfoHeaders", "idTokenAlgorithms", "alwaysScopes", "authorizeParams.prompt",
                "refreshParams.again", "refreshTokens", "scopeParam", "identity.user.from", "identity.user.template",
            },
        ),
    ],
)  # fmt: skip
def test_what_its_flow_never_uses_is_no_doubt(
    flow: str, unused: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(merging, "presets", lambda: {"acme": UNVERIFIED_FACTS})
    text = edited(BARE, ("flow: authorizationCode", f"flow: {flow}"))
    if flow == "clientCredentials":
        text = edited(text, ("subjectMode: user", "subjectMode: global"))
    facts = {it for it in UNVERIFIED_FACTS.fact_paths() if not it.startswith("identity.global")} - {"flows"}
    assert facts - unused == unverified_of(tmp_path, text) - {"flows"}


def test_an_issuer_that_leads_to_the_token_endpoint_matters_to_client_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    endpoints = {"issuer": "https://acme.example"}
    found = Preset.model_validate(
        {"name": "acme", "title": "Acme", "endpoints": endpoints, "evidence": {"endpoints": "unverified (x)"}}
    )
    monkeypatch.setattr(merging, "presets", lambda: {"acme": found})
    text = edited(
        BARE, ("flow: authorizationCode\n  subjectMode: user", "flow: clientCredentials\n  subjectMode: global")
    )
    assert {"endpoints.issuer"} == unverified_of(tmp_path, text)


def test_an_app_without_a_preset_has_no_doubts(tmp_path: Path):
    [draft] = load(write(tmp_path / "b", app=edited(APP, ("provider: acme", "provider: other")))).apps.values()
    assert ((), False) == (draft.unverified, draft.unusual_flow)
