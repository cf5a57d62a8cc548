"""What `check` refuses of a CredentialApp: half of a preset, a name with two meanings, and places that fit no request."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.config import load
from tests.unit.config.bundles import BROKER, HEAD, KEYED, edited, problems_in, write

LOCAL = edited(BROKER, ("https://broker.example", "http://127.0.0.1:8420"))
DATADOG = (
    HEAD
    + "kind: CredentialApp\nmetadata: {name: datadog}\nspec:\n  provider: datadog\n  subjectMode: user\n  params: {}\n"
)
HOST = "hosts: [api.example.com]}"


@pytest.mark.parametrize(
    ("app", "place", "words"),
    [
        (
            edited(KEYED, (HOST, 'hosts: ["{apiKey}.example.com"]}\n  connectParams: {apiKey: {}}')),
            "spec.fields.apiKey",
            "a parameter and a field",
        ),
        (edited(DATADOG, ("params: {}", "params: {apiKey: mine}")), "spec.params.apiKey", "a parameter and a field"),
        (
            edited(DATADOG, ("params: {}", "api: {hosts: [evil.example.com]}")),
            "spec.owner.binding",
            "nothing tells whose",
        ),
        (edited(KEYED, ("{apiKey}", "{apikey}")), "spec.inject", "{apikey} is no field"),
        (KEYED + "  environment: {apiKee: METER_KEY}\n", "spec.environment.apiKee", "no field of this app"),
        (KEYED + "  environment: {apiKey: METER KEY}\n", "spec.environment.apiKey", "not the name of a variable"),
        (KEYED + "  environment: {apiKey: LD_PRELOAD}\n", "spec.environment.apiKey", "a variable that the system"),
        (
            edited(KEYED, ("localOperator", "brokerLogin")) + "  environment: {apiKey: METER_KEY}\n",
            "spec.environment",
            "a key for programs",
        ),
    ],
)
def test_it_is_refused(tmp_path: Path, app: str, place: str, words: str) -> None:
    problems = problems_in(write(tmp_path, broker=LOCAL, app=app))
    assert any(place == it.path and words in it.what for it in problems), problems


def test_it_loads(tmp_path: Path) -> None:
    assert ["meter"] == list(load(write(tmp_path, broker=LOCAL, app=KEYED)).apps)
