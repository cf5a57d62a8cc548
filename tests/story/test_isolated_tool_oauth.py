"""An isolated tool gets its tokens from the broker, with the token of its turn and tool."""

from __future__ import annotations

from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.tools.isolation.containment import Containment, detect_containment
from oauthbroker.tools.isolation.process_tool import ProcessTool, TurnAccess
from oauthbroker.tools.types.failures import ToolFailure
from tests.kit.agent_bundle import USER, given
from tests.story.api_server import api_server
from tests.unit.tools.contexts import context


@pytest.fixture(scope="module")
def served():
    with api_server() as it:
        yield it


SANDBOX = detect_containment(user=USER)


def tool_of(served: Any, containment: Containment, **more: Any) -> ProcessTool:
    access = TurnAccess(served.url, served.tool)
    entry = Path(__file__).with_name("isolated_oauth_tool.py")
    return ProcessTool(entry=entry, containment=containment, lend=lambda _ctx: nullcontext(access), **more)


@pytest.fixture
def tool(served):
    return tool_of(served, Containment())


@pytest.mark.skipif(not SANDBOX.bubblewrap, reason="needs bubblewrap that may make namespaces")
async def test_in_a_sandbox_a_broker_without_a_socket_is_reached_with_an_open_network_alone(served, tmp_path):
    given(tmp_path)
    there = context(workdir=tmp_path)
    assert "ready" == (await tool_of(served, SANDBOX, network=True).call("sync", there, {"app": "mail"}))["status"]
    with pytest.raises(ToolFailure, match="over a Unix socket only") as failed:
        await tool_of(served, SANDBOX).call("sync", there, {"app": "mail"})
    assert "ToolBrokerUnreachable" == failed.value.error.name


@pytest.mark.parametrize("export", ["sync", "waiting"])
async def test_ctx_oauth_answers_as_in_the_agents_process(tool, served, tmp_path, export):
    answer = await tool.call(export, context(workdir=tmp_path), {"app": "mail"})
    tokens = {sha256(token.encode()).hexdigest() for token in served.canaries._known}
    assert "ready" == answer["status"]
    assert answer["digest"] in tokens


async def test_a_refusal_is_an_error_with_its_code(tool, tmp_path):
    with pytest.raises(ToolFailure) as failed:
        await tool.call("careless", context(workdir=tmp_path), {"app": "files"})
    assert "appForbidden" == failed.value.error.name


async def test_an_object_with_a_token_is_no_output(tool, tmp_path):
    with pytest.raises(ToolFailure, match="of the type 'Ready', which JSON does not have"):
        await tool.call("careless", context(workdir=tmp_path), {"app": "mail"})


async def test_the_turn_token_is_not_visible_to_other_processes(tool, served, tmp_path):
    found = await tool.call("visible", context(workdir=tmp_path), {})
    assert [] == [name for name, text in found.items() if served.tool in text or served.url in text]
