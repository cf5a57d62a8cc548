"""`config show` prints what a server reads: the same bundle again, with the variables' values and without secrets."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml

from oauthbroker.config import load
from oauthbroker.config.bundle.showing import as_yaml, resources_of
from oauthbroker.testing import Authority
from tests.kit.images import PNG
from tests.unit.config.bundles import APP, BROKER, CANARY, GLOBAL, TOOL, bundle

EXAMPLE = Path(__file__).parents[3] / "config"
ODD = ["on", "1e3", "0o17", "1:20", "2026-01-01", "", "~", "a: b", "# c", "two\nlines", "한국어", "*x", "0123", "1_000"]


@pytest.mark.parametrize("name", ["the example", "a bundle of tests"])
def test_the_shown_bundle_is_the_same_bundle(tmp_path: Path, name: str) -> None:
    source = EXAMPLE if name == "the example" else bundle(tmp_path, f"{BROKER}---\n{APP}---\n{GLOBAL}---\n{TOOL}")
    again = tmp_path / "again" / "config"
    again.mkdir(parents=True)
    (again / "all.yaml").write_text(as_yaml(resources_of(source, {})), "utf-8")
    before, after = load(source), load(again)
    assert [each.app for each in before.apps.values()] == [each.app for each in after.apps.values()]
    assert (before.tools, before.connectors.keys()) == (after.tools, after.connectors.keys())
    assert before.settings.public_base_url == after.settings.public_base_url


@pytest.mark.parametrize("text", ODD)
def test_a_text_that_looks_like_something_else_stays_a_text(tmp_path: Path, text: str) -> None:
    resource = {"apiVersion": "agents.example.io/v1alpha1", "kind": "Tool", "metadata": {"name": "x"}}
    (tmp_path / "tool.yaml").write_text(as_yaml([resource | {"spec": {"about": text}}]), "utf-8")
    (found,) = resources_of(tmp_path, {})
    assert text == found["spec"]["about"]


def test_the_paths_of_a_broker_lead_to_the_same_files_from_another_folder(tmp_path: Path) -> None:
    vault = {"address": "https://vault.example", "key": "k", "tokenFile": "../token", "ca": "ca.pem"}
    spec = {
        "publicBaseUrl": "https://broker.example",
        "providerCa": "ca.pem",
        "store": {"root": "../data"},
        "keys": {
            "vault": vault,
            "also": [{"file": "../k.kek"}, {"plugin": {"name": "x", "settings": {"file": "../f"}}}],
        },
        "pages": {"logo": "../logo.png"},
        "api": {"socket": {"path": "../run/api.sock", "callers": [{"uid": 1, "roles": ["runtime"]}]}},
        "outgoingProxy": {"url": "https://proxy.example:3128", "ca": "ca.pem"},
    }
    head = {"apiVersion": "agents.example.io/v1alpha1", "kind": "Broker", "metadata": {"name": "broker"}}
    (config := tmp_path / "config").mkdir()
    Authority(config, "ca")
    (tmp_path / "logo.png").write_bytes(PNG)
    (config / "broker.yaml").write_text(as_yaml([head | {"spec": spec}]), "utf-8")
    (again := tmp_path / "a" / "b" / "config").mkdir(parents=True)
    text = as_yaml(resources_of(config, {}))
    (again / "broker.yaml").write_text(text, "utf-8")
    before, after = load(config).settings, load(again).settings
    assert before == dataclasses.replace(after, bundle_root=before.bundle_root)
    shown = yaml.safe_load(text)["spec"]
    assert (str(tmp_path / "token"), str(tmp_path / "data")) == (
        shown["keys"]["vault"]["tokenFile"],
        shown["store"]["root"],
    )
    assert {"file": "../f"} == shown["keys"]["also"][1]["plugin"]["settings"], "a plug-in reads its own settings"


def test_variables_are_shown_and_values_are_not(tmp_path: Path) -> None:
    text = APP.replace("{valueFrom: {env: ACME_SECRET}}", f"{{value: {CANARY}}}")
    broker = BROKER.replace("https://broker.example", "http://127.0.0.1:8420") + "  allowPlainSecrets: dev\n"
    env = {"OAUTHBROKER_LISTEN_PORT": "9000", "OAUTHBROKER_STORE_URL": f"postgresql://x:{CANARY}@db/x"}
    shown = as_yaml(resources_of(bundle(tmp_path, f"{broker}---\n{text}"), env))
    assert CANARY not in shown
    assert "port: 9000" in shown
    assert "env: OAUTHBROKER_STORE_URL" in shown
    assert "*** hidden" in shown
    assert "value: an-id" in shown
