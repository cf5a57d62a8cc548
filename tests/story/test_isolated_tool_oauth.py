"""An isolated tool gets its tokens from the broker, with the token of its turn and tool."""

from __future__ import annotations

from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path

import pytest

from oauthbroker.tools.failures import ToolFailure
from oauthbroker.tools.isolation.containment import Containment
from oauthbroker.tools.isolation.process_tool import ProcessTool, TurnAccess
from tests.story.api_server import api_server
from tests.unit.tools.contexts import context


@pytest.fixture(scope="module")
def served():
    with api_server() as it:
        yield it


@pytest.fixture
def tool(served):
    access = TurnAccess(served.url, served.tool)
    entry = Path(__file__).with_name("isolated_oauth_tool.py")
    return ProcessTool(entry=entry, containment=Containment(), lend=lambda _ctx: nullcontext(access))


@pytest.mark.parametrize("export", ["sync", "waiting"])
async def test_ctx_oauth_answers_as_in_the_agents_process(tool, served, tmp_path, export):
    answer = await tool.call(export, context(workdir=tmp_path), {"app": "mail"})
    tokens = {sha256(token.encode()).hexdigest() for token in served.canaries._known}
    assert "ready" == answer["status"]
    assert answer["digest"] in tokens


async def test_a_refusal_is_an_output(tool, tmp_path):
    answer = await tool.call("careless", context(workdir=tmp_path), {"app": "files"})
    assert ("error", "appForbidden") == (answer["status"], answer["error"]["code"])


async def test_an_object_with_a_token_is_no_output(tool, tmp_path):
    with pytest.raises(ToolFailure, match="of the type 'Ready', which JSON does not have"):
        await tool.call("careless", context(workdir=tmp_path), {"app": "mail"})


async def test_the_turn_token_is_not_visible_to_other_processes(tool, served, tmp_path):
    found = await tool.call("visible", context(workdir=tmp_path), {})
    assert [] == [name for name, text in found.items() if served.tool in text or served.url in text]
