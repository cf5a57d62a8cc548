"""A preset in words, and as an app to start from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from oauthbroker.config import load
from oauthbroker.model.located_app import located
from oauthbroker.providers import presets
from oauthbroker.providers.preset import Param, Preset
from oauthbroker.providers.skeleton import app_yaml, example
from oauthbroker.providers.words import _WORDS, account, facts, flows, own_facts

MODES = [
    pytest.param(preset, mode, id=f"{preset.name} {mode}".strip())
    for preset in presets().values()
    for mode in ["", *(preset.modes.values if preset.modes else [])]
]
NOT_SHOWN = {"name", "title", "documentation", "sampleScopes", "modes", "noApi", "evidence"}


def preset(**said: Any) -> Preset:
    return Preset.model_validate({"name": "acme", "title": "Acme", "evidence": {}, **said})


def test_every_field_has_words():
    assert {info.alias or name for name, info in Preset.model_fields.items()} == {
        path.partition(".")[0] for path in _WORDS
    } | NOT_SHOWN


@pytest.mark.parametrize("preset, mode", MODES)
def test_every_fact_is_one_row_with_its_source_and_its_doubt(preset: Preset, mode: str):
    variant = preset.in_mode(mode) if mode else preset
    reported = facts(variant)
    assert len({fact.path for fact in reported}) == len(reported)
    own = [path for path in variant.fact_paths() if not path.startswith("modes.")]
    assert all(any(f"{path}.".startswith(f"{fact.path}.") for fact in reported) for path in own)
    doubted = {path for path in variant.unverified() if not path.startswith("modes.")}
    assert {fact.path for fact in reported if not fact.is_sure} == {
        fact.path for fact in reported if any(f"{path}.".startswith(f"{fact.path}.") for path in doubted)
    }
    for fact in reported:
        assert fact.label
        assert fact.text
        assert fact.source, (
            f"{fact.path} has no source: write one under `evidence` of its file, as docs/providers.md says"
        )
        assert ("unverified (" in fact.source) == (not fact.is_sure)


def test_two_sources_of_one_fact_are_told_apart():
    found = preset(
        revoke={"kind": "rfc7009", "reach": "grant"},
        evidence={"revoke": "documentation (docs.example/a, read 2026-11-21)", "revoke.reach": "unverified (b)"},
    )
    [fact] = facts(found)
    assert ("kind: documentation (docs.example/a, read 2026-11-21); reach: unverified (b)", ("reach",)) == (
        fact.source,
        fact.unverified,
    )
    assert "RFC 7009; ends everything the person gave this client" == fact.text


def test_a_mode_lists_its_changes():
    slack = presets()["slack"]
    assert {"environment", "scopeParam", "tokenPath", "refreshTokenPath", "tokenTypeAliases"} == {
        fact.path for fact in own_facts(slack, "user")
    }


@pytest.mark.parametrize("preset, mode", MODES)
def test_every_app_to_start_from_loads_as_it_is(preset: Preset, mode: str, tmp_path: Path):
    tmp_path.joinpath("app.yaml").write_text(app_yaml(preset, mode), "utf-8")
    [draft] = load(tmp_path).apps.values()
    assert preset.name == draft.app.provider
    facts = {name: fact.default for name, fact in draft.app.facts.callback.items()}
    endpoints = located(draft.app, facts).endpoints
    assert all("{" not in url.replace("{client_id}", "") for url in _urls(endpoints))


@pytest.mark.parametrize("preset, mode", MODES)
def test_an_app_to_start_from_has_two_scopes_where_the_provider_has_scopes(preset: Preset, mode: str):
    variant = preset.in_mode(mode) if mode else preset
    scopes = yaml.safe_load(app_yaml(preset, mode))["spec"]["scopes"]
    assert (0 if variant.scopeless else 2) == len(set(scopes))


def _urls(endpoints: Any) -> list[str]:
    return [getattr(endpoints, slot) for slot in endpoints.__slots__]


def test_a_mode_for_teams_makes_an_app_for_a_team():
    bot, user = (yaml.safe_load(app_yaml(presets()["slack"], mode))["spec"] for mode in ("bot", "user"))
    assert ("global", "anyone") == (bot["subjectMode"], bot["owner"]["authorizers"])
    assert ("user", False) == (user["subjectMode"], "owner" in user)


@pytest.mark.parametrize(
    "param, value",
    [
        (Param(description="a", pattern=r"[a-z.]+", default="gitlab.com"), "gitlab.com"),
        (Param(description="a"), "example"),
        (Param(description="a", pattern=r"[a-z.]+"), "example.com"),
        (Param(description="a", pattern=r"[0-9]+"), "12345"),
        (Param(description="a", pattern=r"!"), ""),
    ],
)
def test_an_example_of_a_parameter_fits(param: Param, value: str):
    assert value == example(param)


def test_every_default_of_a_parameter_fits():
    for known in presets().values():
        for name, param in known.params.items():
            assert not param.default or re.fullmatch(param.pattern, param.default), f"{known.name} {name}"


def test_an_unverified_account_is_marked():
    found = preset(
        identity={"user": {"from": "userInfo", "template": "acme:user:{id}"}, "global": {"from": "idToken"}},
        evidence={
            "identity": "documentation (docs.example/a, read 2026-11-21)",
            "identity.user.template": "unverified (b)",
        },
    )
    assert ("acme:user:{id}", False) == account(found, "user")
    assert ("idToken, write a template", True) == account(found, "global")
    assert ("write one", True) == account(preset(), "user")


def test_unverified_flows_are_marked():
    said = {"flows": ["authorizationCode", "deviceCode"], "evidence": {"flows": "unverified (a)"}}
    assert ("authorizationCode deviceCode", False) == flows(preset(**said))
    assert ("authorizationCode", True) == flows(preset())
