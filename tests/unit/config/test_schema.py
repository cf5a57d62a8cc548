"""The JSON Schema of a bundle accepts the documents that the broker reads, and refuses wrong shapes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from oauthbroker.cli.credential_presets import app_yaml as credential_app_yaml
from oauthbroker.config.bundle.schema import FILE_NAME, bundle_schema, write_schema
from oauthbroker.providers import presets
from oauthbroker.providers.credentials import credential_presets
from oauthbroker.providers.skeleton import app_yaml
from tests.kit.written_forms import SPECS

ROOT = Path(__file__).parents[3]
FENCE = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


@cache
def validator() -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(bundle_schema())


def documents(text: str) -> list[Any]:
    try:
        found = list(yaml.safe_load_all(text))
    except yaml.YAMLError:  # a sketch with ...
        return []
    return [each for each in found if isinstance(each, dict) and {"apiVersion", "kind", "spec"} <= each.keys()]


def problems_of(document: Any) -> list[str]:
    return [f"{each.instance_path}: {each.message}" for each in validator().iter_errors(document)]


def written() -> Iterator[tuple[str, Any]]:
    """Yield every resource of the repository, in YAML files and in the pages, and those that commands print."""
    listed = ["git", "ls-files", "*.yaml", "*.yml", "docs/*.md", "README.md"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        text = (ROOT / name).read_text("utf-8")
        for block in FENCE.findall(text) if name.endswith(".md") else [text]:
            yield from ((name, each) for each in documents(block) if is_ours(each))
    yield from ((name, each) for name, preset in presets().items() for each in documents(app_yaml(preset)))
    for name, key in credential_presets().items():
        yield from ((name, each) for each in documents(credential_app_yaml(key)))


def is_ours(document: Any) -> bool:
    """Tell resources of the broker's API groups. `Shelf` is of a plug-in that docs/plugins.md writes."""
    return str(document["apiVersion"]).startswith(("agents.example.io/", "goondan.ai/")) and document["kind"] != "Shelf"


def test_every_resource_in_the_repository_fits() -> None:
    found = list(written())
    assert len(found) > 40
    assert [] == [f"{name} {problem}" for name, document in found for problem in problems_of(document)]


BROKER = {"apiVersion": "agents.example.io/v1alpha1", "kind": "Broker", "metadata": {"name": "x"}}


@pytest.mark.parametrize(
    "wrong",
    [
        {"spec": {"listn": {}}},
        {"spec": {"listen": {"port": "8420"}}},
        {"spec": {"listen": None}},
        {"spec": {"limits": {"connections": 0}}},
        {"spec": {"store": {"url": "postgresql://db"}}},
        {"kind": "Brokr", "spec": {}},
        {"metadata": {}, "spec": {}},
        {"kind": "OAuthApp", "spec": {"client": {"clientSecret": "bare"}}},
        {"kind": "OAuthApp", "spec": {"flow": "authorisationCode"}},
        {"kind": "OAuthApp", "spec": {"owner": {"authorizers": "everyone"}}},
        {"kind": "Tool", "spec": {"auth": {"scope": []}}},
        {"kind": "FlowService", "spec": {"databse": {}}},
    ],
    ids=str,
)
def test_a_mistake_of_shape_is_refused(wrong: dict[str, Any]) -> None:
    assert problems_of(BROKER | wrong)


def test_resources_of_other_programs_are_left_alone() -> None:
    assert [] == problems_of({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "data": {}})


def test_the_schema_knows_all_kinds_and_lies_beside_the_bundle(tmp_path: Path) -> None:
    write_schema(tmp_path / "config")
    text = (tmp_path / FILE_NAME).read_text("utf-8")
    assert all(f'"const": "{kind}"' in text for kind in (*SPECS, "FlowService", "Agent", "ActionSchema"))


def test_a_place_that_cannot_be_written_gets_no_schema_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    write_schema(tmp_path / "file" / "config")
    assert ["file"] == [each.name for each in tmp_path.iterdir()]


def test_every_bundle_file_names_the_schema_beside_its_bundle() -> None:
    listed = [
        "git",
        "ls-files",
        "*.yaml",
        ":!tests",
        ":(exclude,glob)deploy/kubernetes/*.yaml",
        ":!oauthbroker/tools/base",
    ]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    checked = 0
    for path in (ROOT / name for name in names):
        first, *rest = path.read_text("utf-8").splitlines()
        if not any(line.startswith("kind:") for line in rest):
            continue
        bundle = next(each for each in path.parents if each.name in {"config", "bundle"})
        line = re.fullmatch(r"# yaml-language-server: \$schema=(.*)", first)
        assert line, path
        assert (bundle.parent / FILE_NAME).resolve() == (path.parent / line[1]).resolve()
        checked += 1
    assert checked > 10
