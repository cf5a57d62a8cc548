"""Agents of a bundle in a git repository change it by changesets, from processes that cannot write to the repository."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.tools.orchestration.instances import Instance
from oauthbroker.tools.orchestration.plan import plans_from
from tests.kit.agent_bundle import BASE, EDITABLE, FILES, LISTS, USER, plan
from tests.story.agent_world import AgentWorld, agent_world, turn_of
from tests.unit.tools.changesets.repositories import git

OPEN, COMMIT, WRITE = "swarmBundle__openChangeset", "swarmBundle__commitChangeset", "file-system__write"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    async with agent_world(tmp_path, files=EDITABLE, in_git=True) as running:
        yield running


async def commit(world: AgentWorld, files: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Open a changeset, write files into it, and commit it, each in a turn. Return both answers."""
    opened = await world.called(OPEN, {})
    for name, content in files.items():
        written = await world.called(WRITE, {"path": f"{opened['workdir']}/{name}", "content": content})
        assert written["written"]
    return opened, await world.called(COMMIT, {"changesetId": opened["changesetId"]})


@pytest.mark.rule("004-12.4-1", "004-12.4-2", "004-12.4-4", "004-12.4-5")
async def test_the_model_edits_its_bundle_and_its_next_turn_uses_it(world):
    assert "planner: hi" == await world.reported("hi")
    opened, answer = await commit(
        world, {"agents.yaml": LISTS.replace("systemPrompt: planner", "systemPrompt: changed")}
    )
    assert ("ok", ["agents.yaml"]) == (answer["status"], answer["summary"]["filesChanged"])
    assert answer["newRef"] != opened["baseRef"]
    assert "changed: hi" == await world.reported("hi")
    assert "E_TOOL" == await world.called("file-system__read", {"path": f"{opened['workdir']}/agents.yaml"}), "closed"


@pytest.mark.rule("004-12.4-1")
@pytest.mark.parametrize("isolation", ["", "  isolation: process\n"])
async def test_no_tool_of_an_agent_changes_the_bundle_without_a_changeset(tmp_path, isolation):
    if not isolation and USER is None:
        pytest.skip("agents run as the user of the runtime: tools without isolation have its rights")
    base = BASE.replace("spec:\n  entry:", f"spec:\n{isolation}  entry:")
    async with agent_world(tmp_path, files={**EDITABLE, "base.yaml": base}, in_git=True) as world:
        active, repository = world.broker.bundle.plugins["tools"].folder, tmp_path / "git/bundle.git"
        assert active is not None
        assert repository.is_dir()
        before = contents(active) | contents(repository)
        opened = await world.called(OPEN, {})
        for folder in (active, repository):
            for path in (f"{folder}/agents.yaml", f"{opened['workdir']}/../../{folder.name}/agents.yaml"):
                assert "E_TOOL" == await world.called(WRITE, {"path": path, "content": "x"})
            words = (
                f"echo x > {folder}/new; echo x >> {folder}/agents.yaml; rm -rf {folder}/*; chmod 777 {folder}; true"
            )
            assert 0 == (await world.called("bash__exec", {"command": words}))["exitCode"]
            assert not folder.joinpath("new").exists()
        assert "ok" == (await world.called(COMMIT, {"changesetId": opened["changesetId"]}))["status"]
        after = contents(active) | contents(repository)  # the runtime has added to the repository
        assert before == {path: after.get(path) for path in before}
        assert opened["baseRef"] == (await world.called(OPEN, {}))["baseRef"]


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of a folder and of all that is in it."""
    found = (each for each in (folder, *folder.rglob("*")) if each.suffix != ".lock")
    return {str(each): (each.stat().st_mode, each.read_bytes() if each.is_file() else b"") for each in found}


@pytest.mark.rule("004-12.4-5", "turns.ours-26")
async def test_the_next_step_of_the_same_turn_uses_a_commit_in_another_process(world):
    opened, pid = await world.called(OPEN, {}), await world.pid()
    changed = LISTS.replace("systemPrompt: planner", "systemPrompt: changed")
    await world.called(WRITE, {"path": f"{opened['workdir']}/agents.yaml", "content": changed})
    note = ("notes__add", {"text": "once"})
    reported = await world.reported(plan((COMMIT, {"changesetId": opened["changesetId"]}), note, prompt=True))
    prompt, _, results = reported.partition(": ")
    committed, noted = json.loads(results)
    assert ("changed", "ok", "once") == (prompt, committed["status"], noted)
    assert 1 == len(world.notes()), "no call is made again"
    assert pid != await world.pid()
    planner = Instance("Swarm/default", "planner", "thread-1")
    assert 2 * 5 == await world.instances.value(planner, "Extension/counter"), "each turn is counted once"


@pytest.mark.rule("004-12.4-5", "turns.ours-26")
async def test_an_agent_that_waits_for_another_one_uses_its_commit_when_it_goes_on(world):
    opened = await world.called(OPEN, {})
    changed = LISTS.replace("systemPrompt: planner", "systemPrompt: changed")
    await world.called(WRITE, {"path": f"{opened['workdir']}/agents.yaml", "content": changed})
    slow = plan(("notes__sleep", {"seconds": 3}))
    request = plan(("others__request", {"target": "writer", "input": slow}), prompt=True)
    event_id = await world.say(request, turn_of("thread-2"))
    while len(await world.instances.messages(event_id)) < 2:
        await asyncio.sleep(0.05)
    assert "ok" == (await world.called(COMMIT, {"changesetId": opened["changesetId"]}))["status"]
    assert (await world.outcome(event_id))["answer"].startswith("changed: ")


@pytest.mark.rule("004-12.4-5")
async def test_a_turn_that_waited_while_the_one_before_committed_uses_the_new_revision(world):
    opened = await world.called(OPEN, {})
    changed = LISTS.replace("systemPrompt: planner", "systemPrompt: changed")
    await world.called(WRITE, {"path": f"{opened['workdir']}/agents.yaml", "content": changed})
    calls = [(COMMIT, {"changesetId": opened["changesetId"]}), ("notes__sleep", {"seconds": 1})]
    await world.say(plan(*calls))
    assert "changed: hi" == await world.reported("hi")


async def test_a_revision_that_an_operator_pushes_and_reverts_refuses_an_agent_and_takes_it_back(world, tmp_path):
    """No restart in between; the turn under way says how many steps it ran."""
    event_id = await world.say(plan(("notes__sleep", {"seconds": 1})))
    while len(await world.instances.messages(event_id)) < 2:
        await asyncio.sleep(0.05)
    agents = LISTS.replace("[Agent/planner, ", "[").replace("entryAgent: Agent/planner", "entryAgent: Agent/writer")
    clone, bare = tmp_path / "git/work", str(tmp_path / "git/bundle.git")
    (clone / "agents.yaml").write_text(agents)
    git(clone, "commit", "-qam", "without the planner")
    git(clone, "push", "-q", bare, "main")
    outcome = await world.outcome(event_id)
    assert ("E_TURN_REFUSED", 1) == (outcome["error"]["code"], outcome["steps"])
    git(clone, "revert", "--no-edit", "HEAD")
    git(clone, "push", "-q", bare, "main")
    assert "planner: hi" == await world.reported("hi")


@pytest.mark.rule("004-12.4-4", "004-6.4-3")
async def test_a_file_outside_of_the_lists_is_named_and_the_changeset_can_be_fixed(world):
    opened, answer = await commit(world, {"model.py": "model = None", "agents.yaml": LISTS + "# more\n"})
    assert ("rejected", ["model.py"]) == (answer["status"], [each["file"] for each in answer["rejected"]])
    await world.called(WRITE, {"path": f"{opened['workdir']}/model.py", "content": FILES["model.py"]})
    assert "ok" == (await world.called(COMMIT, {"changesetId": opened["changesetId"]}))["status"]


async def test_a_shell_reaches_an_open_changeset_and_other_instances_do_not(world):
    opened = await world.called(OPEN, {})
    listed = await world.called("bash__exec", {"command": f"ls {opened['workdir']}"})
    assert "agents.yaml" in listed["stdout"]
    other = turn_of("thread-2")
    path = {"path": f"{opened['workdir']}/agents.yaml"}
    assert "E_TOOL" == await world.called("file-system__read", path, other)
    assert "E_CHANGESET" == await world.called(COMMIT, {"changesetId": opened["changesetId"]}, other)
    assert LISTS == (await world.called("file-system__read", path))["content"]


@pytest.mark.rule("004-12.4-2")
async def test_isolated_base_tools_use_the_open_changesets_of_their_agent_alone(tmp_path):
    base = BASE.replace("spec:\n  entry:", "spec:\n  isolation: process\n  entry:")
    async with agent_world(tmp_path, files={**EDITABLE, "base.yaml": base}, in_git=True) as world:
        opened = await world.called(OPEN, {})
        path = f"{opened['workdir']}/agents.yaml"
        assert LISTS == (await world.called("file-system__read", {"path": path}))["content"]
        assert (await world.called(WRITE, {"path": path, "content": f"{LISTS}# more\n"}))["written"]
        listed = await world.called("bash__exec", {"command": f"tail -1 {path}; echo '# last' >> {path}; pwd"})
        assert f"# more\n{world.workdir()}\n" == listed["stdout"]
        script = await world.called("bash__script", {"path": f"{opened['workdir']}/counter.py"})
        assert "counter.py: 1:" in script["stdout"], "it is run, and is no shell script"
        assert "E_TOOL" == await world.called("file-system__read", {"path": path}, turn_of("thread-2"))
        assert "without '..'" in await world.history(), "the suggestion of an isolated tool's failure"
        committed = await world.called(COMMIT, {"changesetId": opened["changesetId"]})
        assert ("ok", ["agents.yaml"]) == (committed["status"], committed["summary"]["filesChanged"])


async def test_an_agent_without_a_list_has_no_changesets(world):
    assert "E_TOOL_NOT_IN_CATALOG" == await world.called(OPEN, {}, turn_of(agent="writer"))


async def test_agents_of_a_bundle_in_no_repository_have_no_changesets(tmp_path):
    async with agent_world(tmp_path, files=EDITABLE) as world:
        assert "E_TOOL_NOT_IN_CATALOG" == await world.called(OPEN, {})


async def test_secret_places_and_the_configuration_are_hidden_from_isolated_tools(world):
    bundle = world.broker.bundle
    (plan,) = plans_from(world.broker).values()
    folder = bundle.plugins["tools"].folder
    places = {bundle.settings.store_root, bundle.settings.key_file, str(folder.with_name(".env"))}
    assert places == set(plan.agents["planner"]["hidden"])
    files = {each.name for each in folder.glob("*.yaml")}
    assert files == {Path(each).name for each in plan.agents["planner"]["configuration"]}
