"""The base tools are declared as the document prints them, and each export has a handler."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import yaml

import oauthbroker.tools.base
from oauthbroker.tools.base import agents
from oauthbroker.tools.bundle.spec import ToolResourceSpec
from oauthbroker.tools.types.failures import ToolFailure
from tests.unit.tools.contexts import context

TOOLS = list(yaml.safe_load_all(Path(oauthbroker.tools.base.__file__).with_name("tools.yaml").read_text("utf-8")))
NAMES = {
    "bash": ["exec", "script"],
    "file-system": ["read", "write"],
    "http-fetch": ["get", "post"],
    "agents": ["request", "send", "spawn", "list", "catalog"],
}


def test_the_tools_and_exports_are_those_of_the_document():
    assert NAMES == {it["metadata"]["name"]: [each["name"] for each in it["spec"]["exports"]] for it in TOOLS}


@pytest.mark.parametrize("tool", TOOLS, ids=list(NAMES))
def test_each_export_has_a_handler_in_the_module_of_the_entry(tool):
    spec = ToolResourceSpec.model_validate(tool["spec"])
    module = importlib.import_module(
        f"oauthbroker.tools.base.{str(spec.entry).removeprefix('base:').replace('-', '_')}"
    )
    assert {each.name for each in spec.exports or ()} == module.handlers.keys()


class Recorded:
    """A runtime that writes down how it was called."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def __getattr__(self, name):
        async def call(*arguments, **options):
            self.calls.append((name, arguments, options))
            return {"list": [{"target": "b"}], "send": None}.get(name, {"of": name})

        return call


CALLS = [
    (
        "request",
        {"target": "b", "input": "hi"},
        {"of": "request"},
        ("b", "hi"),
        {"instance_key": None, "timeout": 60.0},
    ),
    (
        "request",
        {"target": "b", "input": "hi", "instanceKey": "k", "timeoutSeconds": 5},
        {"of": "request"},
        ("b", "hi"),
        {"instance_key": "k", "timeout": 5.0},
    ),
    ("send", {"target": "b", "input": "hi"}, {"sent": True}, ("b", "hi"), {"instance_key": None}),
    ("spawn", {"target": "b", "cwd": "x"}, {"of": "spawn"}, ("b",), {"instance_key": None, "cwd": "x"}),
    ("list", {}, [{"target": "b"}], (), {"include_all": False}),
    ("list", {"includeAll": True}, [{"target": "b"}], (), {"include_all": True}),
    ("catalog", {}, {"of": "catalog"}, (), {}),
]


@pytest.mark.rule("002-14-4", "002-2.6-6", "002-11.3-9")
@pytest.mark.parametrize(("export", "given", "answer", "arguments", "options"), CALLS)
async def test_calls_of_agents_reach_the_runtime(export, given, answer, arguments, options):
    runtime = Recorded()
    assert answer == await agents.handlers[export](context(runtime=runtime), given)
    assert [(export, arguments, options)] == runtime.calls


async def test_without_a_runtime_a_call_of_agents_is_an_error():
    with pytest.raises(ToolFailure, match="cannot reach"):
        await agents.handlers["catalog"](context(), {})
