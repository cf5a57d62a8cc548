"""`quirks.secondExchange` and `refreshWith`: what loads, and which unsafe forms `check` refuses, at which place."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.config import load
from oauthbroker.core.errors import BrokerError
from oauthbroker.model.provider_habits import AccessExchange
from oauthbroker.providers import presets
from tests.unit.config.bundles import APP, BROKER, edited, problems_in, write

SECOND = "secondExchange: {url: https://acme.example/long, grantType: acme_exchange}"
RENEWAL = "refreshWith: {token: access, grantType: acme_refresh, minAgeSeconds: 60}"
REFRESH_URL = (
    "tokenUrl: https://acme.example/token",
    "tokenUrl: https://acme.example/token\n    refreshUrl: https://acme.example/next",
)
PUBLIC = ("clientSecret: {valueFrom: {env: ACME_SECRET}}", "authMethod: none")


def app_text(quirks: str, *changes: tuple[str, str]) -> str:
    return edited(APP, *changes) + f"  quirks: {{{quirks}}}\n"


def test_both_forms_load(tmp_path: Path) -> None:
    write(tmp_path, broker=BROKER, app=app_text(f"{SECOND}, {RENEWAL}", REFRESH_URL))
    habits = load(tmp_path).apps["acme"].app.habits
    assert AccessExchange(url="https://acme.example/long", grant_type="acme_exchange") == habits.second_exchange
    assert AccessExchange(grant_type="acme_refresh", min_age_seconds=60) == habits.refresh_with


@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.example/long", "http://acme.example/long", "https://acme.example:444/long",
        "https://acme.example.evil.example/long", "https://user@acme.example/long", "https://acme.example/long?a=b",
        "https://acme.example/long#a", "https://169.254.169.254/long", "https://127.0.0.1/long", "long", "",
    ],
)  # fmt: skip
def test_the_secret_goes_to_no_other_place_than_the_providers(tmp_path: Path, url: str) -> None:
    write(tmp_path, broker=BROKER, app=app_text(f'secondExchange: {{url: "{url}", grantType: acme_exchange}}'))
    assert {"spec.quirks.secondExchange.url"} == {problem.path for problem in problems_in(tmp_path)}


def test_a_host_of_the_api_is_the_providers(tmp_path: Path) -> None:
    text = app_text("secondExchange: {url: https://graph.acme.example/long, grantType: acme_exchange}")
    write(tmp_path, broker=BROKER, app=text + "  api: {hosts: [graph.acme.example]}\n")
    assert load(tmp_path).apps["acme"].app.habits.second_exchange is not None


@pytest.mark.parametrize(
    "quirks, changes, path",
    [
        (RENEWAL, (), "spec.endpoints.refreshUrl"),
        (SECOND, (PUBLIC,), "spec.quirks.secondExchange"),
        (SECOND, (("flow: authorizationCode", "flow: clientCredentials"),), "spec.quirks.secondExchange"),
        (RENEWAL, (REFRESH_URL, ("flow: authorizationCode", "flow: clientCredentials")), "spec.quirks.refreshWith"),
    ],
)
def test_what_could_not_work_is_told(
    tmp_path: Path, quirks: str, changes: tuple[tuple[str, str], ...], path: str
) -> None:
    write(tmp_path, broker=BROKER, app=app_text(quirks, *changes))
    assert path in {problem.path for problem in problems_in(tmp_path)}


@pytest.mark.parametrize("name", [name for name in presets() if presets()[name].second_exchange is not None])
def test_an_app_elsewhere_gets_no_exchange_of_its_preset(tmp_path: Path, name: str) -> None:
    """Its tokens, and its client's secret, would go to the preset's provider."""
    text = edited(APP, ("provider: acme", f"provider: {name}"))
    write(tmp_path, broker=BROKER, app=text)
    try:
        habits = load(tmp_path).apps["acme"].app.habits
    except BrokerError:
        pytest.skip("the preset needs more of an app")
    assert (None, None) == (habits.second_exchange, habits.refresh_with)
