"""One schema for what a preset and an app may say of a provider's own ways."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pydantic import ValidationError

from oauthbroker.config.written.resource_specs import IdentitySpec, OAuthAppSpec, QuirksSpec, models_in
from oauthbroker.model.provider_habits import OUR_HEADERS, Habits
from oauthbroker.providers.preset import Preset, PresetIdentity
from oauthbroker.providers.quirks import Quirks, quirks_of

OF_THE_OPTIONS = {"authorize_params", "token_params", "refresh_params"}
PRESET: dict[str, Any] = {"name": "acme", "title": "Acme", "evidence": {}}


NOT_OWN = ["state", "code_verifier", "client_secret", "redirect_uri", "code", "State", "iss", "error", "scope", ""]
NO_TOKEN_HEADERS = ["Authorization", "authorization", "Cookie", "Host", "Content-Type", "Accept", "User-Agent",
                    "Proxy-Authorization", "X-Forwarded-For", "X_Forwarded_For", "Connection", "TE", "Upgrade", "Expect", "Via",
                    "Transfer-Encoding", "Content-Length", "X-HTTP-Method-Override", "OAuthBroker-Scopes", "Sec-Fetch-Mode"]  # fmt: skip


def quirks(**said: Any) -> Quirks:
    return Quirks.model_validate(said)


def test_every_habit_can_be_written_and_every_quirk_is_a_habit():
    habits = {field.name for field in dataclasses.fields(Habits)}
    assert habits - OF_THE_OPTIONS == set(QuirksSpec.model_fields) - {"scope_prefixes", "revoke"}
    assert set(Preset.model_fields) >= OF_THE_OPTIONS


def test_the_standard_applies_when_nothing_is_written():
    assert Habits() == quirks().over(Habits())
    for name, info in Quirks.model_fields.items():
        standard = info.get_default(call_default_factory=True)
        if standard is not None and name != "scope_prefixes":
            expected = getattr(Habits(), name)
            assert standard == (list(expected) if isinstance(expected, tuple) else expected), name


def test_only_the_written_quirks_change():
    known = Habits(scope_separator=",", keeps=("team",), token_headers={"A": "b"})
    changed = quirks(keeps=["user"], tokenPath=["data"]).over(known)
    assert dataclasses.replace(known, keeps=("user",), token_path=("data",)) == changed


@pytest.mark.parametrize(
    "said",
    [
        {"scopeSeparator": ""},
        {"scopeSeparator": "a"},
        {"scopeParam": "a b"},
        {"alwaysScopes": ['a"b']},
        {"tokenRequestFormat": "xml"},
        {"tokenHeaders": {"X": "a\r\nHost: evil"}},
        {"tokenHeaders": {"a b": "c"}},
        {"tokenNames": {"expires_in": "lifetime"}},
        {"tokenNames": {"access_token": ""}},
        {"tokenTypeOptional": "yes"},
        {"lifetimeForm": "days"},
        {"defaultLifetimeSeconds": 0},
        *({"refreshTokenDays": days} for days in (0, -1, 4000, "7", 7.5, True)),
        {"refreshTokenEndField": "a b"},
        *({"refreshWith": said} for said in ({}, {"token": "refresh", "grantType": "x"}, {"token": "access"})),
        {"refreshWith": {"token": "access", "grantType": "ig_refresh_token", "minAgeSeconds": -1}},
        *(
            {"secondExchange": {"url": "https://a.example/x", **more}}
            for more in (
                {},
                {"grantType": "urn:ietf"},
                {"grantType": "x", "method": "PUT"},
                *(
                    {"grantType": "x", "tokenParam": name}
                    for name in ("client_secret", "client_id", "grant_type", "a&b")
                ),
            )
        ),
        {"errorWords": {"bad": "no_such_word"}},
        {"idTokenAlgorithms": ["HS256"]},
        {"idTokenAlgorithms": ["none"]},
        {"idTokenAlgorithms": []},
        {"issuerTemplate": "http://login.example/{tid}"},
        {"userInfoMethod": "DELETE"},
        {"userInfoBody": {"query": {"a": "b"}}},
        {"tokenHeader": "a:b"},
        {"userInfoTokenScheme": "Bearer x"},
        {"scopeSeperator": ","},
        {"tokenRequestFormat": "get"},
        {"okMembers": {"code": 0.5}},
        {"okMembers": {"code": None}},
        {"tokenHeader": "X-Token: a\r\nHost"},
        {"tokenHeader": "X Token"},
        {"tokenHeader": ""},
        *({"tokenHeader": name} for name in NO_TOKEN_HEADERS),
        {"tokenScheme": "Bearer x"},
        {"tokenScheme": "a\r\nHost: evil"},
        {"tokenScheme": "a\n"},
        {"paramNames": {"state": "s"}},
        {"paramNames": {"code_verifier": "v"}},
        {"paramNames": {"grant_type": "g"}},
        *({"paramNames": {"client_id": name}} for name in NOT_OWN),
        {"paramNames": {"client_id": "id", "client_secret": "id"}},
        {"paramNames": {"client_id": "id", "client_secret": "ID"}},
        {"paramNames": {"client_id": "app"}, "scopeParam": "app"},
        {"paramNames": {"client_id": "a&b=c"}},
        *({"codeParam": name} for name in NOT_OWN if name != "code"),
        {"codeParam": "a b"},
        {"revoke": {"kind": "none", "reach": "grant"}},
        {"revoke": {"kind": "rfc7009", "method": "DELETE"}},
        {"revoke": {"kind": "own", "method": "GET"}},
        {"revoke": {"kind": "own", "headers": {"Host": "evil.example"}}},
        {"revoke": {"kind": "own", "reach": "everything"}},
        *({"tokenHeaders": {name.title(): "x"}} for name in sorted(OUR_HEADERS)),
        *({"userInfoHeaders": {name: "x"}} for name in sorted(OUR_HEADERS)),
    ],
)
def test_an_unknown_quirk_is_refused_in_a_preset_and_in_an_app(said: dict[str, Any]):
    with pytest.raises(ValidationError):
        Quirks.model_validate(said)
    with pytest.raises(ValidationError):
        Preset.model_validate(PRESET | said)


IN_AN_APP = {
    "auth_method": "client.authMethod", "assertion_audience": "client.assertionAudience", "api_hosts": "api.hosts",
    "api_base_path": "api.basePath",
    "authorize_params": "options", "token_params": "options", "refresh_params": "options", "connection_facts": "facts",
    "identity": "owner.identity", "endpoints": "endpoints", "flows": "flow",
}  # fmt: skip
# These describe a provider to people, or make one preset of several apps. No request depends on them.
OF_PRESETS_ALONE = {
    "name", "title", "documentation", "register_at", "sample_scopes", "params", "derived", "modes", "notes", "no_api", "evidence",
    "refresh_tokens", "refresh_token_idle_days", "refresh_token_leeway_seconds",
    "access_token_idle_days", "token_limit", "public_flows", "environment", "pkce_refused_at",
}  # fmt: skip


def test_an_app_can_say_everything_that_a_preset_can():
    assert OF_PRESETS_ALONE | set(IN_AN_APP) == set(Preset.model_fields) - set(QuirksSpec.model_fields)
    for path in IN_AN_APP.values():
        model: Any = OAuthAppSpec
        for name in path.split("."):
            fields = {info.alias or field: info for field, info in model.model_fields.items()}
            inner = list(models_in(fields[name].annotation))
            model = inner[0] if inner else None
    identity = {info.alias or name for name, info in IdentitySpec.model_fields.items()}
    assert identity == {info.alias or name for name, info in PresetIdentity.model_fields.items()}


@pytest.mark.parametrize(
    "name", ["X-Shopify-Access-Token", "X-Auth-Token", "Access-Token", "X-Api-Key", "Private-Token", "X-Tableau-Auth"]
)
def test_a_header_of_the_providers_own_may_carry_the_token(name: str):
    assert name == quirks(tokenHeader=name).over(Habits()).token_header


def test_the_names_of_quirks_are_told_as_they_are_written():
    assert [] == quirks_of(Habits())
    said = {"codeParam": "spapi_oauth_code", "tokenScheme": "", "paramNames": {"client_id": "client_key"}}
    assert sorted(said) == quirks_of(quirks(**said).over(Habits()))


# --- evidence


def preset(**said: Any) -> Preset:
    evidence = {
        "endpoints": "unverified (a)",
        "endpoints.tokenUrl": "documentation (docs.example/b, read 2026-11-21)",
        **said.pop("evidence", {}),
    }
    ends = {"tokenUrl": "https://a.example/t", "revokeUrl": "https://a.example/r"}
    return Preset.model_validate({**PRESET, "endpoints": ends, "evidence": evidence, **said})


def test_evidence_of_the_longest_prefix_counts():
    found = preset()
    assert ["endpoints.tokenUrl", "endpoints.revokeUrl"] == found.fact_paths()
    assert "documentation (docs.example/b, read 2026-11-21)" == found.source("endpoints.tokenUrl")
    assert ["endpoints.revokeUrl"] == found.unverified()


def test_a_fact_that_nothing_speaks_of_has_no_source():
    assert "" == preset(scopeSeparator=",").source("scopeSeparator")
    assert "" == preset(
        scopeSeparator=",", evidence={"scope": "documentation (docs.example/c, read 2026-11-21)"}
    ).source("scopeSeparator")


def test_notes_and_single_parameters_are_facts_of_their_own():
    found = preset(
        notes=["Tokens live for ever.", "An admin must agree."],
        authorizeParams={"prompt": "consent", "access_type": "offline"},
        evidence={
            "notes": "documentation (docs.example/a, read 2026-11-21)",
            "notes.1": "unverified (b)",
            "authorizeParams.prompt": "unverified (c)",
        },
    )
    assert {"notes.0", "notes.1", "authorizeParams.prompt", "authorizeParams.access_type"} <= set(found.fact_paths())
    assert ["authorizeParams.prompt", "endpoints.revokeUrl", "notes.1"] == sorted(found.unverified())


MODES = {
    "option": "kind",
    "default": {"user": "a", "global": "b"},
    "values": {"a": {"scopeParam": "x", "endpoints": {"revokeUrl": "https://a.example/other"}}, "b": {"keeps": ["c"]}},
}


def test_a_mode_brings_its_own_facts_and_leaves_the_others_behind():
    base = preset(
        modes=MODES,
        evidence={"modes.a": "unverified (x)", "modes.b": "documentation (docs.example/y, read 2026-11-21)"},
    )
    found = base.in_mode("a")
    assert {"modes.a.scopeParam", "modes.a.endpoints.revokeUrl", "modes.b.keeps"} < set(base.fact_paths())
    assert ["scopeParam", "endpoints.tokenUrl", "endpoints.revokeUrl"] == found.fact_paths()
    assert ("https://a.example/t", "https://a.example/other") == (
        found.endpoints.token_url,
        found.endpoints.revoke_url,
    )
    assert ["scopeParam", "endpoints.revokeUrl"] == found.unverified()
    assert ["a", "b"] == list(base.variants())
    assert base.in_mode("nothing of the kind") is base


@pytest.mark.parametrize("said", ["hearsay", "documentation", "unverified", "package authlib (x)", "Documentation (x)"])
def test_evidence_names_its_kind_and_its_place(said: str):
    with pytest.raises(ValidationError):
        preset(evidence={"name": said})
