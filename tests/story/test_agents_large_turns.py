"""A turn whose results are larger together than a message between processes: it goes on after its process has ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oauthbroker.tools.orchestration.instances import MOST_HISTORY
from oauthbroker.tools.orchestration.ipc import MOST_LINE
from oauthbroker.tools.types.results import VALUE
from tests.kit.agent_bundle import FILES
from tests.story.agent_world import agent_world

LARGE = """\
from pathlib import Path


async def large(ctx, args):
    with Path("made").open("a") as made:
        made.write(ctx.tool_call_id + "\\n")
    return args["character"] * args["count"]


handlers = {"large": large}
"""
MODEL = """\
import json

from oauthbroker.tools.models import ModelAnswer
from oauthbroker.tools.types.results import ToolCall


class Stepping:
    async def complete(self, request):
        last = max(i for i, each in enumerate(request.messages) if each.role == "user")
        steps, after = json.loads(request.messages[last].text), request.messages[last + 1 :]
        step = sum(each.role == "assistant" for each in after)
        if step < len(steps):
            return ModelAnswer("", [ToolCall("x", name, args) for name, args in steps[step]])
        ends = [each.result.error.code if each.result.error else len(each.result.output) for each in after if each.result]
        return ModelAnswer(json.dumps([len(request.messages[:last]), *ends]))


model = Stepping()
"""
RESOURCE = """\
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: large}
spec: {entry: ./large.py, exports: [{name: large}]}
"""
AGENTS = FILES["agents.yaml"].replace("[Tool/others, Tool/notes]", "[Tool/others, Tool/notes, Tool/large]") + RESOURCE
BUNDLE = {**FILES, "agents.yaml": AGENTS, "large.py": LARGE, "model.py": MODEL}


@pytest.mark.slow
@pytest.mark.rule("turns.ours-11", "turns.ours-16")
@pytest.mark.parametrize("character", ["x", "\N{GRINNING FACE}"])  # one byte, and twelve bytes of a message
async def test_a_turn_with_more_results_than_a_message_takes_goes_on_in_a_new_process(tmp_path: Path, character):
    count = (VALUE.size - 2) // len(character.encode())
    calls = MOST_LINE // (count * len(json.dumps(character)[1:-1])) + 2
    large = ["large__large", {"character": character, "count": count}]
    async with agent_world(tmp_path, files=BUNDLE) as world:
        event_id = await world.say(
            json.dumps([[large] * calls, [["notes__crash", {}]], [["notes__add", {"text": "x"}]]])
        )
        outcome = await world.outcome(event_id, 120)
        assert [0, *[count] * calls, "E_TOOL_INTERRUPTED", 1] == json.loads(outcome["answer"]), outcome
        made = (world.workdir() / "made").read_text().splitlines()
        assert calls == len(made) == len(set(made)), "no call twice"


@pytest.mark.slow
async def test_earlier_turns_as_large_as_a_model_may_see_reach_a_new_process(tmp_path: Path):
    large = ["large__large", {"character": "\N{GRINNING FACE}", "count": (VALUE.size - 2) // 4}]
    calls = MOST_HISTORY // (VALUE.size // 4) - 1
    async with agent_world(tmp_path, files=BUNDLE) as world:
        await world.reported(json.dumps([[large] * calls]))
        crash = await world.outcome(await world.say(json.dumps([[["notes__crash", {}]]])), 60)
        assert [calls + 3, "E_TOOL_INTERRUPTED"] == json.loads(crash["answer"])
