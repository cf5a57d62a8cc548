"""docs/tools.md: its bundle loads, `oauthbroker tools check` lists its tools, and its runtime performs calls."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import open_broker
from oauthbroker.cli import run
from oauthbroker.tools.types.results import ToolCall
from tests.kit.docs import code_blocks
from tests.kit.running_broker import turn

PAGE = "docs/tools.md"
BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {name: broker}
spec: {publicBaseUrl: "http://127.0.0.1:8420", plugins: [tools]}
---
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {name: weather}
spec:
  provider: weather
  flow: authorizationCode
  subjectMode: user
  client: {clientId: agents, clientSecret: {valueFrom: {env: SECRET}}}
  endpoints: {authorizationUrl: "https://weather.example/authorize", tokenUrl: "https://weather.example/token"}
  scopes: [forecast.read, alerts.write]
  owner: {identity: {user: {from: tokenResponse, template: "idp:user:{user.id}"}}}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the bundle of the page, and make its store."""
    folder = tmp_path / "config"
    for name, text in zip(("tool", "swarm"), code_blocks(PAGE, "yaml"), strict=True):
        folder.mkdir(exist_ok=True)
        folder.joinpath(f"{name}.yaml").write_text(text, "utf-8")
    folder.joinpath("broker.yaml").write_text(BROKER, "utf-8")
    module, _runtime = code_blocks(PAGE)
    place, _, text = module.removeprefix("# ").partition("\n")
    for file, code in {place: text, "extensions/alerts.py": "def register(api): ...\n"}.items():
        folder.joinpath(file).parent.mkdir(exist_ok=True)
        folder.joinpath(file).write_text(code, "utf-8")
    for name in ("SECRET", "MODEL_KEY"):
        monkeypatch.setenv(name, "a-value")
    monkeypatch.chdir(tmp_path)
    assert 0 == run(["init"])
    return folder


def test_the_command_lists_the_tools_of_the_page(config: Path, capsys: pytest.CaptureFixture[str]):
    capsys.readouterr()
    assert 0 == run(["tools", "check"])
    assert "weather__get\nweather__slow\n" == capsys.readouterr().out
    assert 0 == run(["tools", "check", "--json", "--config", "config"])
    assert {"tools": ["weather__get", "weather__slow"]} == json.loads(capsys.readouterr().out)
    assert 0 == run(["check", "--strict"])


@pytest.mark.rule("002-15-4")
def test_the_command_names_each_tool_that_cannot_be_used(config: Path, capsys: pytest.CaptureFixture[str]):
    config.joinpath("tools/weather.py").write_text("handlers = dict()\n", "utf-8")
    config.joinpath("axe.py").write_text("handlers = exit(3)\n", "utf-8")
    axe = "apiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {name: axe}\nspec: {entry: ./axe.py, exports: [{name: hit}]}\n"
    config.joinpath("axe.yaml").write_text(
        axe
        + "---\n"
        + axe.replace("axe", "saw").replace("./saw", "./axe").replace("{entry", "{isolation: process, entry"),
        "utf-8",
    )
    capsys.readouterr()
    assert 2 == run(["tools", "check"])
    reported = capsys.readouterr().err
    assert "Tool/axe cannot be loaded from ./axe.py: its import raised SystemExit" in reported
    assert "Tool/weather cannot register get: its module has no such handler" in reported
    assert "saw" not in reported


def test_the_command_needs_neither_values_nor_a_store_and_tells_a_library_that_a_model_lacks(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("MODEL_KEY")
    shutil.rmtree(config.parent / "store")
    assert 0 == run(["tools", "check"])
    assert (
        """the provider 'anthropic' needs a library: run `pip install "oauthbroker[tools-models]"`"""
        in capsys.readouterr().err
    )


def test_the_command_refuses_a_configuration_with_its_place(config: Path, capsys: pytest.CaptureFixture[str]):
    config.joinpath("tools/weather.py").unlink()
    assert 2 == run(["tools", "check"])
    assert "config/tool.yaml:5:10 spec.entry: There is no such file" in capsys.readouterr().err


@pytest.mark.rule("002-2.3-4", "004-12.3-2", "tools.ours-5")
async def test_the_runtime_of_the_page_performs_calls(config: Path):
    _module, text = code_blocks(PAGE)
    page: dict[str, Any] = {}
    exec(text, page)  # noqa: S102  (our own page)
    (printed,) = code_blocks(PAGE, "json")
    async with open_broker(config) as broker:
        registry, calls = page["tool_calls"](broker)
        wanted = [ToolCall("call-1", "weather__get", {"city": "Seoul"}), ToolCall("call-2", "weather__set"),
                  ToolCall("call-3", "weather__get"), ToolCall("call-4", "weather__slow")]  # fmt: skip
        consent, unknown, wrong, slow, block = await page["perform"](broker, registry, calls, turn(), wanted)
        assert ["E_AUTHORIZATION_REQUIRED", "E_TOOL_ARGUMENTS"] == [each["error"]["code"] for each in (consent, wrong)]
        assert block["items"][0]["authorizationUrl"] in consent["error"]["suggestion"]
        assert json.loads(printed) == unknown
        assert ("ok", "call-4") == (slow["status"], slow["handle"])
        lease = await broker.events.lease("planner", wait=30)
        assert lease is not None
        assert ("tool.completed", "clear until Friday") == (lease.type, lease.event.payload["output"])
        await calls.close()
