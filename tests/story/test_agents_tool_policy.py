"""The tools of an agent process: which it has (its own, or, by the policy of the swarm, all of the bundle), where each
kind of tool is called, what its handler gets, and how its errors end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.agent_bundle import AGENTS, FILES, given, plan
from tests.story.agent_world import AgentWorld, agent_world, turn_of
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


LOOKS = """\
import os
import sys


def see(ctx, args):
    own = ["pid", "workdir", "cwd", "call", "calls", "agent", "instance", "turn", "trace", "more", "runtime"]
    ctx.logger.info("seen")
    more = [name for name in ("oauth", "swarmBundle", "swarm_bundle", "broker", "store") if hasattr(ctx, name)]
    calls = [call.id for call in ctx.message.calls]
    found = [os.getpid(), str(ctx.workdir), os.getcwd(), ctx.tool_call_id, calls, ctx.agent_name, ctx.instance_key]
    return dict(zip(own, [*found, ctx.turn_id, ctx.trace_id, more, ctx.runtime is not None]))


async def look(ctx, args):
    return see(ctx, args)


def fail(ctx, args):
    raise ValueError("\ud55c\uae00\U0001f600 " * 2000)


async def leave(ctx, args):
    sys.exit(3)


handlers = {"see": see, "look": look, "fail": fail, "leave": leave}
"""
EXTENSION = """\
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from oauthbroker.tools import ToolCatalogItem

spec = spec_from_file_location("looks", Path(__file__).with_name("looks.py"))
looks = module_from_spec(spec)
spec.loader.exec_module(looks)
HIDDEN = {"looks__look", "own__look", "apart__look"}


def register(api):
    async def around(ctx):
        with Path("around").open("a") as lines:
            lines.write(f"before {ctx.tool_name}\\n")
        result = await ctx.next()
        with Path("around").open("a") as lines:
            lines.write(f"after {ctx.tool_name} {result.status}\\n")
        return result

    async def hide(ctx):
        for name in HIDDEN:
            ctx.tool_catalog.remove(name)
        return await ctx.next()

    for name, handler in looks.handlers.items():
        api.tools.register(ToolCatalogItem(name=f"own__{name}"), handler)
    api.pipeline.register("toolCall", around)
    api.pipeline.register("step", hide)
"""
KINDS = f"""\
---
{HEAD}kind: Tool
metadata: {{name: looks}}
spec: {{entry: ./looks.py, exports: [{{name: see}}, {{name: look}}, {{name: fail}}, {{name: leave}}]}}
---
{HEAD}kind: Tool
metadata: {{name: apart}}
spec: {{entry: ./looks.py, isolation: process, errorMessageLimit: 20, exports: [{{name: see}}, {{name: look}}, {{name: fail}}, {{name: leave}}]}}
"""
OF_EACH_KIND = {
    **FILES,
    "agents.yaml": AGENTS.replace("Tool/notes]", "Tool/notes, Tool/looks, Tool/apart]") + KINDS,
    "looks.py": LOOKS,
    "counter.py": EXTENSION,
}
SEE = ("looks__see", "own__see", "apart__see", "notes__pid")


async def seen(world: AgentWorld, *names: str, **of: Any) -> list[Any]:
    found: list[Any] = json.loads(await world.reported(plan(*[(name, {}) for name in names]), turn_of(**of)))
    return found


@pytest.mark.rule(
    "002-1.1-3", "002-1.2-1", "002-2.7-3", "002-2.5-1", "002-2.5-3", "002-2.5-4", "002-7.3-1", "002-8.1-1"
)
async def test_each_kind_of_tool_gets_the_same_context_in_the_process_of_its_agent(tmp_path: Path):
    async with agent_world(tmp_path, files=OF_EACH_KIND) as world:
        *found, pid = await seen(world, *SEE)
        looks, own, apart = found
        assert [pid, pid, False] == [looks["pid"], own["pid"], apart["pid"] == pid], "isolation alone starts a process"
        ids = looks["calls"]
        assert (4, ids[:3]) == (len(set(ids)), [each["call"] for each in found])
        assert [True, True, False] == [each.pop("runtime") for each in found]
        for each in found:
            del each["pid"], each["call"]
        assert looks == own == apart
        assert (str(world.workdir()), looks["workdir"]) == (looks["workdir"], looks["cwd"])
        assert ("planner", "thread-1", "trace-7", []) == tuple(
            looks[name] for name in ("agent", "instance", "trace", "more")
        )
        around = (world.workdir() / "around").read_text().splitlines()
        assert {
            f"{when}{end}" for name in SEE for when, end in ((f"before {name}", ""), (f"after {name}", " ok"))
        } == set(around)

        for other in ({"instance": "thread-2"}, {"agent": "writer"}):
            here, refused, there, other_pid = await seen(world, *SEE, **other)
            assert {str(world.workdir(**other))} == {here["workdir"], here["cwd"], there["workdir"], there["cwd"]}
            assert (other_pid, pid) != (pid, other_pid)
            assert ("E_TOOL_NOT_IN_CATALOG" == refused) is ("agent" in other), "the extension of another agent"

        (world.workdir() / "drafts").mkdir()
        given(world.workdir() / "drafts")
        await world.called("others__spawn", {"target": "writer", "instanceKey": "poems", "cwd": "drafts"})
        asked = {"target": "writer", "instanceKey": "poems", "input": plan(("looks__see", {}), ("apart__see", {}))}
        reported = json.loads((await world.called("others__request", asked))["response"])
        assert [str(world.workdir() / "drafts")] * 2 == [each["workdir"] for each in reported]


@pytest.mark.rule("002-2.4-1", "002-2.4-2", "002-2.4-3", "002-2.4-4", "002-8.1-3")
async def test_an_error_of_each_kind_of_tool_is_a_recorded_result_and_the_process_goes_on(tmp_path: Path):
    async with agent_world(tmp_path, files=OF_EACH_KIND) as world:
        before = await world.pid()
        names = [f"{kind}__{export}" for kind in ("looks", "own", "apart") for export in ("fail", "leave")]
        assert ["E_TOOL"] * 6 == await seen(world, *names)
        assert before == await world.pid()
        kept = [json.loads(line) for line in (await world.history()).splitlines()]
        errors = {each["result"]["toolName"]: each["result"].get("error") for each in kept if "result" in each}
        limits = {"looks": 1000, "own": 1000, "apart": 20}
        for kind, limit in limits.items():
            assert limit == len(errors[f"{kind}__fail"]["message"])
            assert errors[f"{kind}__fail"]["message"].endswith("... (truncated)")
            assert ("ValueError", "SystemExit") == tuple(errors[f"{kind}__{end}"]["name"] for end in ("fail", "leave"))
            assert errors[f"{kind}__fail"]["suggestion"]


@pytest.mark.rule("002-2.3-1", "002-2.3-3", "002-2.1-3", "002-2.1-4", "002-1.1-1")
@pytest.mark.parametrize("policy", ["catalog", "registry"])
async def test_a_tool_of_each_kind_that_the_step_hides_is_called_by_the_policy_alone(tmp_path: Path, policy: str):
    agents = OF_EACH_KIND["agents.yaml"].replace("policy: {", f"policy: {{toolCalls: {policy}, ")
    async with agent_world(tmp_path, files={**OF_EACH_KIND, "agents.yaml": agents}) as world:
        found = await seen(world, "looks__look", "own__look", "apart__look", "own__unknown", "looks__see")
        refused = ["E_TOOL_NOT_IN_CATALOG" == each for each in found]
        assert [*[policy == "catalog"] * 3, True, False] == refused
