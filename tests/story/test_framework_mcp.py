"""Agents of each framework take tools from an MCP server that needs OAuth: runs pause for consent and go on."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit.framework_agents import EXAMPLES, python_of
from tests.kit.running_broker import BASE
from tests.story.mcp_agents_kit import RESOURCES, McpAgents, serving

sys.path.append(str(EXAMPLES))
from surroundings import prepare

pytestmark = pytest.mark.slow
FRAMEWORKS = ["langgraph", "langgraph-sync", "pydantic-ai", "openai-agents", "google-adk"]
LINK = {"openai-agents"}  # its tools cannot pause in the middle: the model gets the link, and its next call pauses
MAIL = "Good morning, Alice."
CONNECTED = "tickets is connected"
DENIED = "Access was not granted"


@pytest.fixture(params=FRAMEWORKS)
async def agents(
    request: Any, tmp_path: Path, identity_provider: IdentityProvider, canaries: Canaries
) -> AsyncIterator[McpAgents]:
    idp = identity_provider
    python_of(request.param.removesuffix("-sync"), mcp=True)
    canaries.excuse(*(tmp_path / f"checkpoints.sqlite{end}" for end in ("", "-wal", "-shm")))  # `leaks` looks into them
    async with serving(idp) as (port, calls):
        config = prepare(tmp_path, idp, BASE, lease_seconds=2, apps=("tickets",))
        (config / "tickets.yaml").write_text(RESOURCES.format(issuer=idp.issuer, port=port), "utf-8")
        subjects = {name: f"demo:user:{idp.account(name).sub}" for name in ("alice", "bob")}
        (tmp_path / "subjects.json").write_text(json.dumps(subjects), "utf-8")
        found = McpAgents(config, idp, request.param, port, calls)
        yield found
        for process in found.running:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert [] == found.leaks()


async def connected(agents: McpAgents, user: str = "alice") -> None:
    await agents.ask("whose", user)
    await agents.consent(await agents.paused(), user)
    assert CONNECTED in await agents.answer()


@pytest.mark.sample(1)
async def test_an_agent_gets_a_servers_tools_after_the_consent_that_listing_them_needs(agents):
    await agents.start()
    await agents.ask("whose whose")
    pause = await agents.paused()
    assert 0 == agents.calls.count
    await agents.consent(pause)
    answer = await agents.answer()
    assert CONNECTED in answer
    assert "alice!" in answer
    assert 1 == agents.calls.count


@pytest.mark.sample(1)
async def test_a_call_whose_token_the_server_refuses_pauses_the_run_or_gives_the_model_the_link(agents):
    await agents.start()
    await connected(agents)
    agents.calls.before = lambda: agents.idp.revoke_all("demo")
    await agents.ask("whose whose whose")
    pause = await agents.paused()
    await agents.consent(pause)
    answer = await agents.answer()
    assert "alice" in answer
    assert (pause["authorizationUrl"] in answer) is (agents.framework in LINK)


@pytest.mark.sample(1)
@pytest.mark.case("143")
async def test_a_user_who_declines_is_asked_once_and_the_model_gets_a_sentence(agents):
    await agents.start()
    await agents.ask("whose whose")
    await agents.consent(await agents.paused(), deny=True)
    assert 2 == (await agents.answer()).count(DENIED)
    assert 0 == agents.calls.count


@pytest.mark.sample(1)
async def test_a_streamed_run_pauses_and_goes_on_with_its_events(agents):
    await agents.start("--streamed")
    await agents.ask("whose whose")
    line, before = await agents.end()
    (pause,) = line["paused"]
    await agents.consent(pause)
    line, after = await agents.end()
    assert "alice" in line["answer"]
    assert before > 0 < after


@pytest.mark.case("140", "141")
async def test_a_run_that_waits_goes_on_in_another_process(agents):
    await agents.start()
    await agents.ask("whose whose")
    pause = await agents.paused()
    await agents.kill()
    await agents.consent(pause)
    await agents.start()
    answer = await agents.answer()
    assert CONNECTED in answer
    assert "alice" in answer
    assert 1 == agents.calls.count


@pytest.mark.sample(1)
async def test_two_users_of_a_process_never_share_a_token(agents):
    await agents.start()
    await connected(agents, "alice")
    await agents.ask("whose whose", "bob")
    pause = await agents.paused()
    await agents.ask("whose whose", "alice")
    answer = await agents.answer()
    assert "alice" in answer
    assert "bob" not in answer
    await agents.consent(pause, "bob")
    answer = await agents.answer()
    assert "bob" in answer
    assert "alice" not in answer


@pytest.mark.parametrize("agents", ["langgraph-sync"], indirect=True)
async def test_a_tool_without_await_pauses_a_graph_that_is_called_without_await(agents):
    await agents.start()
    await agents.ask("mail")
    await agents.consent(await agents.paused())
    assert MAIL in await agents.answer()


@pytest.mark.parametrize("agents", ["langgraph-sync"], indirect=True)
async def test_many_calls_without_await_do_not_wait_for_one_another(agents):
    """More than asyncio's own pool has threads: a call that needed a second one would wait for ever."""
    await agents.start()
    await connected(agents)
    for number in range(40):
        await agents.ask("whose", conversation=f"conversation-{number}")
    for _ in range(40):
        assert "alice" in await agents.answer()
