"""Conversations of several users on one orchestrator: no agent of one reads what was said or kept in another."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oauthbroker.tools.orchestration.instances import Instance
from tests.kit.agent_bundle import FILES
from tests.story.agent_world import AgentWorld, agent_world, turn_of

REMEMBERING = """\
import json

from oauthbroker.tools.model_port import ModelAnswer
from oauthbroker.tools.results import ToolCall


class Remembering:
    \"\"\"Makes the calls of a plan, and answers other words with all messages that it sees.\"\"\"

    async def complete(self, request):
        seen = [each.text for each in request.messages]
        if request.messages[-1].result is not None:
            results = [each.result for each in request.messages if each.result]
            return ModelAnswer(json.dumps([each.error.code if each.error else each.output for each in results[-1:]]))
        try:
            calls = json.loads(seen[-1])["calls"]
        except (ValueError, KeyError, TypeError):
            return ModelAnswer(json.dumps(seen))
        return ModelAnswer("", [ToolCall("x", name, args) for name, args in calls])


model = Remembering()
"""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    async with agent_world(tmp_path, files={**FILES, "model.py": REMEMBERING}) as running:
        yield running


@pytest.mark.rule("turns.ours-19")
@pytest.mark.parametrize(
    ("bob", "alice", "name"),
    [("slack::BOB", "slack::ALICE", None), ("tenant::bob", "tenant", "bob"), ("a::b::bob", "a::b", "bob")],
)
async def test_a_key_of_a_channel_with_a_separator_is_one_conversation(world, bob, alice, name):
    secret = {"target": "writer", "input": "the secret of Bob"}
    await world.called("others__request", secret, turn_of(bob))
    await world.told("the secret of Bob", turn_of(bob, "writer"))
    asked = {"target": "writer", "input": "what do you know?"} | ({} if name is None else {"instanceKey": name})
    told = await world.called("others__request", asked, turn_of(alice))
    assert ["what do you know?"] == json.loads(told["response"])
    assert [] == await world.called("others__list", {"includeAll": True}, turn_of(alice))
