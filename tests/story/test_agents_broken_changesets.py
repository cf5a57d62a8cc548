"""A changeset that would end its agents is rejected; one whose revision does not start is left again. The agents go on
with the last revision that ran, their model is told why, and the operator's log has it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oauthbroker.tools.changesets import trial
from oauthbroker.tools.changesets.activation import Activation
from oauthbroker.tools.orchestration import processes
from oauthbroker.tools.orchestration.orchestrator import Orchestrator
from oauthbroker.tools.orchestration.plan import plans_from
from tests.kit.agent_bundle import BASE, FILES, LISTS, MODEL, NOTES, USER, plan
from tests.story.agent_world import AgentWorld, agent_world, turn_of
from tests.unit.config.bundles import HEAD

OPEN, COMMIT, WRITE = "swarmBundle__openChangeset", "swarmBundle__commitChangeset", "file-system__write"
DISCARD = "swarmBundle__discardChangeset"
SEES_BLOCKS = MODEL.replace("json.dumps(ends))", "json.dumps([*ends, *request.blocks]))")
FREE = LISTS.replace("allow: [agents.yaml]", "allow: ['*']").replace("allow: ['*.yaml']", "allow: ['*']")
BUNDLE = {**FILES, "agents.yaml": FREE, "base.yaml": BASE, "model.py": SEES_BLOCKS}
IN_AGENT = "if 'workspaces' in os.getcwd():  # not in a trial\n    "
REGISTERS = "import os\ndef register(api):\n    "
ENDS = {
    "raise": ("notes.py", NOTES, "raise RuntimeError('no')"),
    "handlers": ("notes.py", NOTES, "handlers = 5"),
    "exit": ("notes.py", NOTES, "os._exit(0)"),
    "loop": ("notes.py", NOTES, "while True: time.sleep(1)"),
    "memory": ("notes.py", NOTES, "raise MemoryError"),
    "extension": ("counter.py", REGISTERS, "raise OSError"),
}
TRIED = {**ENDS, "memory": ("notes.py", NOTES, "bomb = [bytearray(2 ** 28) for _ in range(64)]")}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LIMITS", replace(trial.LIMITS, seconds=8))
    monkeypatch.setattr(processes, "CONFIGURE_SECONDS", 8)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    async with agent_world(tmp_path, files=BUNDLE, in_git=True) as running:
        yield running


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING, "oauthbroker.tools"):
        yield caplog


async def written(world: AgentWorld, **files: str) -> str:
    """Open a changeset and write files into it, each in a turn. Return its id."""
    opened = await world.called(OPEN, {})
    for name, content in files.items():
        assert (await world.called(WRITE, {"path": f"{opened['workdir']}/{name}", "content": content}))["written"]
    return str(opened["changesetId"])


@pytest.mark.rule("004-12.4-4")
@pytest.mark.parametrize(("name", "text", "end"), TRIED.values(), ids=TRIED)
async def test_a_changeset_that_would_end_its_agents_is_rejected_and_all_agents_go_on(world, log, name, text, end):
    changeset = await written(world, **{name: text + end + "\n"})
    answer = await world.called(COMMIT, {"changesetId": changeset})
    part = "Tool/notes" if name == "notes.py" else "Agent/planner"
    assert ("rejected", None) == (answer["status"], answer["newRef"])
    assert answer["problems"][0].startswith(part), answer
    assert f"a changeset of planner is rejected: {part}" in log.text
    for agent in ("planner", "writer"):
        assert "on" == await world.called("notes__add", {"text": "on"}, turn_of(agent=agent))
    fixed = await world.called(
        WRITE, {"path": f"{workdir_of(world, changeset)}/{name}", "content": BUNDLE[name] + "#\n"}
    )
    assert fixed["written"]
    assert "ok" == (await world.called(COMMIT, {"changesetId": changeset}))["status"], "it stayed open"


async def test_a_model_that_has_opened_too_many_changesets_is_told_them_and_discards_one(world):
    opened = [(await world.called(OPEN, {}))["changesetId"] for _ in range(8)]
    assert "E_CHANGESET" == await world.called(OPEN, {})
    reported = (await world.history()).rpartition("8 changesets are open")[2]
    assert all(each in reported for each in opened)
    assert {"status": "discarded"} == await world.called(DISCARD, {"changesetId": opened[0]})
    assert "E_CHANGESET" == await world.called(DISCARD, {"changesetId": opened[0]})
    assert (await world.called(OPEN, {}))["changesetId"] not in opened


def workdir_of(world: AgentWorld, changeset: str) -> Path:
    activation = world.orchestrator._changes._activation
    assert activation is not None
    return activation.changesets.root / "worktrees" / changeset


@pytest.mark.rule("004-12.4-5")
@pytest.mark.parametrize(("name", "text", "end"), ENDS.values(), ids=ENDS)
async def test_a_revision_that_does_not_start_is_left_and_the_turn_that_made_it_goes_on(world, log, name, text, end):
    """It passes its trial, because it breaks only where agents run."""
    before = await world.called(OPEN, {})
    broken = text + (IN_AGENT if name == "notes.py" else IN_AGENT.replace("    ", "        ")) + end + "\n"
    changeset = await written(world, **{name: broken})
    calls = [(COMMIT, {"changesetId": changeset})]
    committed, block = json.loads(await world.reported(plan(*calls)))
    assert "ok" == committed["status"]
    facts = {"type": "bundle.refused", "revision": committed["newRef"], "active": before["baseRef"]}
    assert facts == {member: block[member] for member in facts}
    assert block["reason"]
    assert f"revision {committed['newRef']} is refused: {block['reason']}" in log.text
    assert ["on", block] == json.loads(await world.reported(plan(("notes__add", {"text": "on"}))))
    other = plan(("notes__add", {"text": "on"}))
    assert ["on"] == json.loads(await world.reported(other, turn_of(agent="writer"))), "it may not change the bundle"


async def test_a_later_revision_is_taken_and_the_model_is_not_told_any_longer(world):
    changeset = await written(world, **{"notes.py": NOTES + IN_AGENT + "raise OSError\n"})
    await world.reported(plan((COMMIT, {"changesetId": changeset})))
    opened, _ = json.loads(await world.reported(plan((OPEN, {}))))
    path = f"{opened['workdir']}/notes.py"
    await world.reported(plan((WRITE, {"path": path, "content": NOTES + "# fixed\n"})))
    (committed,) = json.loads(await world.reported(plan((COMMIT, {"changesetId": opened["changesetId"]}))))
    assert "ok" == committed["status"]
    assert "on" == await world.called("notes__add", {"text": "on"})


async def test_an_agent_that_no_revision_has_started_yet_takes_the_whole_bundle_back(world):
    """Only the writer breaks, and only after it was idle all the time."""
    agents = FREE.replace(
        "systemPrompt: writer, tools: [Tool/others, Tool/notes]", "systemPrompt: w, tools: [Tool/own]"
    )
    tool = (
        f"{agents}---\n{HEAD}kind: Tool\nmetadata: {{name: own}}\nspec: {{entry: ./own.py, exports: [{{name: go}}]}}\n"
    )
    own = "import os\n" + IN_AGENT + "raise OSError\nhandlers = {'go': len}\n"
    changeset = await written(world, **{"agents.yaml": tool, "own.py": own})
    assert "ok" == (await world.called(COMMIT, {"changesetId": changeset}))["status"]
    assert "on" == await world.called("notes__add", {"text": "on"}, turn_of(agent="writer")), "with the tools of before"


async def test_an_orchestrator_that_starts_with_a_broken_revision_goes_back_to_the_one_that_ran(tmp_path, log):
    async with agent_world(tmp_path, files=BUNDLE, in_git=True) as world:
        changeset = await written(world, **{"notes.py": NOTES + IN_AGENT + "raise OSError\n"})
        committed, _ = json.loads(await world.reported(plan((COMMIT, {"changesetId": changeset}))))
        log.clear()
        again = await restarted(world)
        assert "on" == json.loads(await again.reported(plan(("notes__add", {"text": "on"}))))[0]
        assert f"revision {committed['newRef']} is refused" in log.text
        await again.stop()


async def restarted(world: AgentWorld) -> AgentWorld:
    """Stop the orchestrator, and start another one with the newest revision, as a new process does."""
    activation = world.orchestrator._changes._activation
    assert activation is not None
    await world.stop()
    newest = activation.changesets.newest()
    await world.broker.reload(newest.folder)
    fresh = Activation(world.broker, activation.changesets, newest)
    orchestrator = Orchestrator(world.broker, plans_from(world.broker), world.workspaces, activation=fresh, user=USER)
    return replace(world, orchestrator=orchestrator, running=asyncio.create_task(orchestrator.run()))
