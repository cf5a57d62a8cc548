"""The pages of flow tools: their documents load, and its assessment is the one that the command prints."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from oauthbroker import Secret, check_config
from oauthbroker.flowtools.cli.commands import app
from oauthbroker.flowtools.running.ports import AnswerLost, Effect, EffectRefused, NotSent
from oauthbroker.flowtools.specification.expression_text import FUNCTIONS
from oauthbroker.flowtools.specification.policies import FACTS, PRODUCT_POLICIES, load_policy
from oauthbroker.flowtools.specification.source import published_schema
from oauthbroker.testing.flow_adapter_contract import CHARGE
from tests.kit import docs
from tests.unit.flowtools.entity_kit import sqlite_url
from tests.unit.flowtools.kit import tool_of
from tests.unit.flowtools.run_kit import Entries

PAGES = ("docs/flowtools.md", "docs/flowtools-running.md", "docs/flowtools-serving.md")
TEXT = "".join(map(docs.page_text, PAGES))


def code_blocks(language: str = "python") -> list[str]:
    """Return the blocks of the pages, in their order."""
    return [block for page in PAGES for block in docs.code_blocks(page, language)]


def test_the_tool_and_the_result_of_the_page(tmp_path, monkeypatch, capsys):
    tool, policy = code_blocks("json")
    monkeypatch.chdir(tmp_path)
    Path("markPaid.json").write_text(tool, "utf-8")
    Path("policy.json").write_text(policy, "utf-8")
    result = CliRunner().invoke(app, ["check", "markPaid.json", "--policy", "policy.json"])
    assert 0 == result.exit_code
    assert f"```\n{result.output}```" in TEXT
    assert "smallPayments" == load_policy(policy.encode(), "policy.json").name
    _, _, serve, tools, code = code_blocks()
    exec(serve, {})  # noqa: S102  (our own page)
    exec(tools, {})  # noqa: S102  (our own page)
    exec(code, {})  # noqa: S102  (our own page)
    assert capsys.readouterr().out.startswith("yellow acknowledge\nexternal-without-timeout (")


def test_the_entity_of_the_page_is_run_by_the_code_of_the_page(tmp_path):
    entity = code_blocks("yaml")[0]
    document = tool_of({"t": ("transform", {"expression": "input.id"})}, [], "t").source.data
    given: dict[str, Any] = {}
    exec(code_blocks()[0], given)  # noqa: S102  (our own page)
    result = given["run"](sqlite_url(tmp_path), entity.encode(), json.dumps(document).encode(), {"id": "a"}, Entries())
    assert ("succeeded", {"result": "a"}) == (result.state, result.output)


def test_the_page_names_every_function_fact_policy_and_node():
    kinds = [
        each for each in published_schema()["$defs"]["FlowNode"]["properties"]["type"]["enum"] if each[0].islower()
    ]
    names = {*FUNCTIONS, *FACTS.types, *PRODUCT_POLICIES, *kinds}
    assert set() == {name for name in names if f"`{name}" not in TEXT}


@pytest.mark.parametrize(
    ("status", "raised"), [(200, None), (402, EffectRefused), (429, EffectRefused), (503, AnswerLost), (0, NotSent)]
)
def test_the_adapter_of_the_page_tells_what_happened(monkeypatch, status, raised):
    seen: list[tuple[Any, ...]] = []

    class Connection:
        def __init__(self, host: str, timeout: float) -> None:
            seen.append((host, timeout))

        def connect(self) -> None:
            if status == 0:
                raise OSError

        def request(self, *words: Any) -> None:
            seen.append(words)

        def getresponse(self) -> Any:
            return SimpleNamespace(status=status, read=lambda: b'{"id": "c1"}')

        def close(self) -> None: ...

    monkeypatch.setattr("http.client.HTTPSConnection", Connection)
    given: dict[str, Any] = {}
    exec(code_blocks()[1], given)  # noqa: S102  (our own page)
    adapter = given["acme_shop"]({"host": "shop.example"}, Secret("s"))
    with pytest.raises(raised) if raised else nullcontext():
        assert {"id": "c1"} == adapter.send(CHARGE)
    reported = {"Authorization": "Bearer s", "Idempotency-Key": CHARGE.key}
    sent = [("POST", "/charge", json.dumps(CHARGE.fields), reported)] if status else []
    assert [("shop.example", CHARGE.seconds), *sent] == seen


def test_the_page_names_every_field_of_an_effect():
    assert set() == {each.name for each in fields(Effect) if f"`{each.name}`" not in TEXT}


def test_the_request_of_the_page_is_a_node():
    request = yaml.safe_load(code_blocks("yaml")[1])
    assert "POST" == tool_of({"r": (request["type"], request["config"])}, [], "r").nodes["r"].config["method"]


def test_the_bundle_of_the_page_is_accepted(tmp_path):
    entity, *_, bundle = code_blocks("yaml")
    (tmp_path / "bundle.yaml").write_text(bundle, "utf-8")
    (tmp_path / "entities").mkdir()
    (tmp_path / "entities" / "order.json").write_text(json.dumps(yaml.safe_load(entity)), "utf-8")
    assert [] == check_config(tmp_path)
