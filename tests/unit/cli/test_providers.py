"""`oauthbroker providers`: facts and their sources."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from oauthbroker.cli.providers import UNSURE, app
from oauthbroker.config import load
from oauthbroker.core.refused import Refused
from oauthbroker.providers import presets

PLAIN = {"NO_COLOR": "1", "COLUMNS": "80", "TERM": "dumb"}


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), env=PLAIN, catch_exceptions=True)


def test_the_list_has_every_preset_with_its_doubts():
    result = typed("list")
    rows = {line.split()[0]: line for line in result.stdout.splitlines()[1:]}
    assert (0, "", set(presets())) == (result.exit_code, result.stderr, set(rows))
    assert "slack:user:{team.id}:{authed_user.id}" in rows["slack"]
    for name, preset in presets().items():
        count = len(preset.unverified())
        assert rows[name].endswith(f"{count} fact{'s' if count != 1 else ''}" if count else "-")


def test_the_list_in_json_says_the_same():
    found: list[dict[str, Any]] = json.loads(typed("list", "--json").stdout)
    assert list(presets()) == [it["name"] for it in found]
    [google] = [it for it in found if it["name"] == "google"]
    assert {"from": "idToken", "template": "google:user:{sub}", "name": "email"} == google["identity"]["user"]
    assert presets()["google"].unverified() == google["unverified"]


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", presets())
def test_an_unverified_fact_has_a_mark_and_a_verified_one_has_none(name: str):
    lines = typed("show", name).stdout.partition("An OAuthApp to start from")[0].splitlines()
    reported = [line for line in lines if line[:2] in {"  ", f"{UNSURE} "} and line[2:3] not in {" ", ""}]
    sources = [lines[lines.index(line) + 1].strip() for line in reported if "unverified: not found" not in line]
    marked = [line.startswith(UNSURE) for line in reported if "unverified: not found" not in line]
    assert marked == ["unverified (" in source for source in sources]
    assert any("unverified: not found" in line for line in lines) == bool(presets()[name].unverified())


def test_printed_values_can_be_pasted(tmp_path: Path):
    shown = typed("show", "slack").stdout.partition("An OAuthApp to start from:\n")[2]
    tmp_path.joinpath("apps.yaml").write_text(shown, "utf-8")
    assert {f"my-slack-{mode}" for mode in ("bot", "user", "orgBot", "orgUser")} == set(load(tmp_path).apps)


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", presets())
def test_it_says_first_what_to_register_there(name: str):
    preset = presets()[name]
    lines = typed("show", name).stdout.partition("An OAuthApp to start from")[0].splitlines()
    steps = [line.partition(". ")[2] for line in lines if re.match(r"[0-9]+\. ", line)]
    assert preset.title in steps[0]
    comes_back = tuple(preset.flows) != ("clientCredentials",)
    assert any(f"/oauth/callback/my-{name}" in step for step in steps) == comes_back
    assert all(any(f"params.{param}" in step for step in steps) for param in preset.params)
    assert all(any(scope in step for step in steps) for scope in [*preset.always_scopes, *preset.sample_scopes])
    assert any("oauth.client(" in step for step in steps) == bool(preset.api_hosts)
    assert all(f"Note: {note}" in steps for note in preset.notes)
    assert any("providerData" in step for step in steps) == bool(preset.connection_facts.names)


@pytest.mark.parametrize("name", ["google", "slack", "oidc"])
def test_short_is_a_screen_without_evidence_and_with_the_same_app(name: str, tmp_path: Path):
    short, long = typed("show", name, "--short").stdout, typed("show", name).stdout
    start = "An OAuthApp to start from:\n"
    assert short.partition(start)[2] == long.partition(start)[2]
    before = short.partition(start)[0].splitlines()
    assert len(before) <= 8 < len(long.partition(start)[0].splitlines())
    assert "read 20" not in short
    assert presets()[name].title in before[0]


def test_json_has_every_fact_with_its_source():
    found: dict[str, Any] = json.loads(typed("show", "slack", "--json").stdout)
    assert set(presets()["slack"].fact_paths()) == set(found["evidence"])
    assert "https://{domain}/api/oauth.v2.access" == found["endpoints"]["tokenUrl"]
    assert ["bot", "orgBot", "orgUser", "user"] == sorted(found["apps"])
    assert "subjectMode: global" in found["apps"]["orgBot"]
    assert "subjectMode: user" in found["apps"]["orgUser"]
    assert "slack" == yaml.safe_load(found["apps"]["bot"])["spec"]["provider"]


@pytest.mark.parametrize(
    "name, said", [("slak", "The nearest known one is slack"), ("zzzzzz", "oauthbroker providers list")]
)
def test_an_unknown_name_is_refused_with_what_to_do(name: str, said: str):
    result = typed("show", name)
    assert isinstance(result.exception, Refused)
    assert said in str(result.exception)
