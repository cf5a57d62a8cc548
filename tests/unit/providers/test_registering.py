"""`providers show` says what to register where, before an app works."""

from __future__ import annotations

import pytest

from oauthbroker.providers import presets
from oauthbroker.providers.registering import steps
from tests.kit.popular_presets import POPULAR


@pytest.mark.parametrize("name", POPULAR)
def test_the_first_step_names_the_place_and_the_others_the_usual_hosts(name: str):
    preset = presets()[name]
    said = steps(preset, "mine")
    assert preset.register_at
    assert f"at {preset.title}: {preset.register_at}. " in said[0]
    hosts = next(step for step in said if "Tools call" in step)
    assert not [param for param, it in preset.params.items() if it.default and f"{{{param}}}" in hosts]
    assert not [part for part, it in preset.derived.items() if f"{{{part}}}" in hosts]


@pytest.mark.parametrize(
    "name, step",
    [
        ("google", "Allow it these scopes, which the broker always asks for: openid"),
        ("discord", "always asks for: bot (who: guild); identify (who: person)"),
        ("atlassian", "asks for: offline_access (identity: site); offline_access read:me (identity: person)"),
        ("notion", "Choose its permissions there. The broker asks for no scopes, and the app's scopes are []"),
        ("github", "For yourself alone: oauthbroker login github prints another redirect address"),
        ("github", "Tools call the API at api.github.com: "),
        ("intuit", "Tools call the API at quickbooks.api.intuit.com: "),
        ("microsoft", "Tools call the API at graph.microsoft.com: "),
        ("zendesk", "Tools call the API at {subdomain}.zendesk.com: "),
    ],
)
def test_a_step_says_what_holds_for_the_usual_app(name: str, step: str):
    assert any(step in each for each in steps(presets()[name], "mine"))
