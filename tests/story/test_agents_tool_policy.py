"""Which tools an agent process has: its own, or, by the policy of the swarm, all of the bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.agent_bundle import AGENTS, FILES
from tests.story.agent_world import agent_world, turn_of
from tests.unit.config.bundles import HEAD

TOOL = f"---\n{HEAD}kind: Tool\nmetadata: {{name: own}}\nspec: {{entry: ./own.py, exports: [{{name: go}}]}}\n"
WRITERS = AGENTS.replace("systemPrompt: writer, tools: [", "systemPrompt: writer, tools: [Tool/own, ")
OWN = "from pathlib import Path\nPath('loaded').touch()\nhandlers = {'go': lambda ctx, args: 'gone'}\n"


@pytest.mark.rule("002-2.3-3", "002-3-1", "002-9.1-3")
@pytest.mark.parametrize(("policy", "answer"), [("catalog", "E_TOOL_NOT_IN_CATALOG"), ("registry", "gone")])
async def test_a_tool_of_another_agent_is_called_by_the_policy_of_the_swarm_alone(
    tmp_path: Path, policy: str, answer: str
):
    agents = WRITERS.replace("policy: {", f"policy: {{toolCalls: {policy}, ") + TOOL
    async with agent_world(tmp_path, files={**FILES, "agents.yaml": agents, "own.py": OWN}) as world:
        assert answer == await world.called("own__go", {})
        loaded = (world.workdir() / "loaded").exists()
        assert loaded is (policy == "registry"), "without the policy, its code does not run in this process"
        assert "gone" == await world.called("own__go", {}, turn_of(agent="writer"))
