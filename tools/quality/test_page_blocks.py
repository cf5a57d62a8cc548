"""Every block of every page can be used as it is printed: shells, JSON, YAML and settings parse, and resources load.

Python blocks are compiled by tools/quality/test_docs.py, TypeScript's by tests/e2e/test_typescript_client.py, and command
lines are parsed by tests/unit/cli/test_docs.py. Most blocks are executed, too, by the tests of their page.
"""

from __future__ import annotations

import configparser
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from oauthbroker.config import load
from tests.kit.written_forms import SPECS

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "store/README.md")),
    *(ROOT / name for name in ("clients/typescript/README.md",)),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
EXECUTED = {
    "python",
    "ts",
    "nginx",
    "sql",
    "toml",
    "mermaid",
    "html",
}  # each by the test of its page; a page may be new to the last two
RAN_ON = {"nginx": {"docs/how-to/nginx.md"}, "sql": {"docs/how-to/import-grants.md"}, "toml": {"docs/plugins.md"}, "html": {"docs/plugins.md"}, "mermaid": {"docs/README.md"}, "ts": {"docs/tutorials/tools-in-processes.md", "docs/clients.md", "docs/injection.md", "clients/typescript/README.md"}}  # fmt: skip
HEAD = {"apiVersion": "agents.example.io/v1alpha1", "kind": "Broker", "metadata": {"name": "broker"}}


def found(*languages: str) -> Iterator[Any]:
    """Every block in one of these languages, with the page that it is on."""
    for page in PAGES:
        for number, (language, block) in enumerate(BLOCK.findall(page.read_text("utf-8"))):
            if language in languages:
                yield pytest.param(block, id=f"{page.relative_to(ROOT)} {number}")


def test_no_page_has_a_block_in_a_language_that_no_test_reads() -> None:
    for page in PAGES:
        for language, block in BLOCK.findall(page.read_text("utf-8")):
            assert language in {"", "sh", "yaml", "json", "ini", *EXECUTED}, block
            assert str(page.relative_to(ROOT)) in RAN_ON.get(language, {str(page.relative_to(ROOT))}), block


@pytest.mark.parametrize("block", [*found("sh")])
def test_every_block_for_a_shell_parses(block: str) -> None:
    parsed = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
    assert (0, "") == (parsed.returncode, parsed.stderr)


@pytest.mark.parametrize("block", [*found("json")])
def test_every_block_of_json_parses(block: str) -> None:
    assert json.loads(block)


def without_files(spec: dict[str, Any]) -> dict[str, Any]:
    """A Broker's spec without the files of the reader's own machine, which `load` would open."""
    spec = {name: value for name, value in spec.items() if name != "providerCa"}
    if "pages" in spec:
        spec["pages"] = {name: value for name, value in spec["pages"].items() if name != "logo"}
    return spec


OF_PLUGINS = (
    "docs/plugins.md",
    "docs/gateway.md",
    "docs/tutorials/two-agents.md",
)  # tests/story/test_plugins_docs.py, unit/gateway/test_page.py and story/guides/test_two_agents.py load them
KINDS_OF_PLUGINS = {"McpServer"}  # tests/story/cli/test_mcp_serve.py loads the page's


LOGIN = {  # of a Broker that a page tells elsewhere
    "client": {"clientId": "oauthbroker", "clientSecret": {"valueFrom": {"env": "LOGIN_SECRET"}}},
    "endpoints": {"issuer": "https://example.okta.com"},
    "subject": "okta:user:{sub}",
}


@pytest.mark.parametrize("block", [each for each in found("yaml") if not each.id.startswith(OF_PLUGINS)])
def test_every_block_of_yaml_parses_and_resources_load(block: str, tmp_path: Path) -> None:
    """A block that begins with `spec:` is a Broker's; one without resources is another program's."""
    documents = [HEAD | each if [*each] == ["spec"] else each for each in yaml.safe_load_all(block)]
    ours = [each for each in documents if each.get("kind") in SPECS]
    assert ours or not any("apiVersion" in each and each["kind"] not in KINDS_OF_PLUGINS for each in documents)
    brokers = [each for each in ours if each["kind"] == "Broker"]
    if not brokers and "brokerLogin" in block:
        ours.append(HEAD | {"spec": {"publicBaseUrl": "https://agents.example.com", "login": LOGIN}})
    for broker in brokers:
        broker["spec"] = without_files(broker["spec"])
    if not all(each["kind"] in {"Tool", "Connector"} for each in ours):
        (tmp_path / "config").mkdir()
        (tmp_path / "config/block.yaml").write_text(yaml.safe_dump_all(ours))
        loaded = load(tmp_path / "config")
        assert {
            each["metadata"]["name"] for each in ours if each["kind"] in {"OAuthApp", "CredentialApp"}
        } == loaded.apps.keys()


@pytest.mark.parametrize("block", [*found("ini")])
def test_every_block_of_settings_parses_and_says_each_once(block: str) -> None:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(block)
    assert parser.sections()
