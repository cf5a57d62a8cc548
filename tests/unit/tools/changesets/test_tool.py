"""`swarmBundle__openChangeset` and `swarmBundle__commitChangeset` as a model calls them."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from oauthbroker import BrokerError, Code, check_config
from oauthbroker.tools.calling.context import ToolContext
from oauthbroker.tools.changesets.changesets import ChangesetRefused
from oauthbroker.tools.changesets.editor import BundleEditor, SwarmBundleTool
from oauthbroker.tools.changesets.files import AllowedFiles
from oauthbroker.tools.changesets.tool import COMMIT, OPEN
from oauthbroker.tools.types.failures import error_of
from oauthbroker.tools.types.results import Message
from tests.unit.tools.changesets.repositories import Desk, git

CONFIG = """apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {name: broker}
spec: {publicBaseUrl: "https://agents.example.com"}
"""


def context(agent: str = "planner", instance: str = "thread\n1") -> ToolContext:
    return ToolContext(
        agent_name=agent,
        instance_key=instance,
        turn_id="turn-1",
        trace_id="trace-1",
        tool_call_id="call-1",
        message=Message(id="m", role="assistant"),
        workdir=Path("/nonexistent"),
        logger=logging.getLogger("t"),
    )


@pytest.fixture
def desk(tmp_path):
    return Desk.made(tmp_path, check_config, **{"broker.yaml": CONFIG, "agents/planner.yaml": ""})


@pytest.mark.rule("004-12.4-1", "004-12.4-2", "004-12.4-4")
async def test_a_model_opens_a_changeset_edits_files_and_commits(desk):
    allowed = AllowedFiles(["prompts/**"], ["**"])
    tool = SwarmBundleTool(desk.changesets, lambda _agent: allowed, desk.trail.append)
    opened = await tool.open_changeset(context(), {})
    assert {"changesetId", "baseRef", "workdir", "hint"} == opened.keys()
    assert {"bundleRootInWorkdir": ".", "allowedFiles": {"swarm": ["prompts/**"], "agent": ["**"]}} == opened["hint"]
    Path(opened["workdir"], "prompts/new.md").write_text("Now.\n")
    answer = await tool.commit_changeset(context(), {"changesetId": opened["changesetId"], "message": "a\nb"})
    assert {"status", "baseRef", "newRef", "summary"} == answer.keys()
    assert ("ok", opened["baseRef"]) == (answer["status"], answer["baseRef"])
    assert 'a b\n\nAgent: ["planner", "thread\\n1"]\nTool-Call: "call-1"' == git(
        desk.repository, "log", "-1", "--format=%B", "main"
    )


@pytest.mark.rule("004-12.4-4")
async def test_a_commit_that_fails_is_a_result_and_the_changeset_stays_open(desk):
    tool = SwarmBundleTool(desk.changesets, lambda _agent: AllowedFiles(["**"], ["**"]), desk.trail.append)
    opened, before = await tool.open_changeset(context(), {}), desk.tip()
    folder = Path(opened["workdir"])
    away = folder.rename(folder.parents[1] / "away")
    folder.symlink_to(away)
    answer = await tool.commit_changeset(context(), {"changesetId": opened["changesetId"]})
    assert ("failed", opened["baseRef"], None, before) == (
        answer["status"],
        answer["baseRef"],
        answer["newRef"],
        desk.tip(),
    )
    assert answer["problems"]
    folder.unlink()
    away.rename(folder)
    folder.joinpath("prompts/new.md").write_text("Now.\n")
    answer = await tool.commit_changeset(context(), {"changesetId": opened["changesetId"]})
    assert ("ok", ["prompts/new.md"]) == (answer["status"], answer["summary"]["filesAdded"])


@pytest.mark.rule("004-12.4-4")
async def test_a_bundle_that_the_loader_refuses_is_rejected_with_place_and_remedy(desk):
    tool = SwarmBundleTool(desk.changesets, lambda _agent: AllowedFiles(["**"], ["**"]), desk.trail.append)
    opened = await tool.open_changeset(context(), {})
    Path(opened["workdir"], "broker.yaml").write_text(CONFIG.replace("publicBaseUrl", "publicBaseUrI"))
    answer = await tool.commit_changeset(context(), {"changesetId": opened["changesetId"]})
    assert "rejected" == answer["status"]
    assert any(each.startswith("broker.yaml:4:") for each in answer["problems"]), answer["problems"]


async def test_each_change_is_in_the_audit_log_before_it_is_made(desk):
    def refuse(entry):
        raise BrokerError(Code.STORE_UNAVAILABLE)

    tool = SwarmBundleTool(desk.changesets, lambda _agent: AllowedFiles(["**"], ["**"]), desk.trail.append)
    refused = replace(tool, audit=refuse)
    with pytest.raises(BrokerError):
        await refused.open_changeset(context(), {})
    assert [] == desk.worktrees()
    opened, before = await tool.open_changeset(context(), {}), desk.tip()
    given = {"changesetId": opened["changesetId"]}
    Path(opened["workdir"], "prompts/new.md").write_text("Now.\n")
    for change in (refused.commit_changeset, refused.discard_changeset):
        with pytest.raises(BrokerError):
            await change(context(), given)
    assert ([Path(opened["workdir"])], before) == (desk.worktrees(), desk.tip())
    await tool.commit_changeset(context(), given)
    with pytest.raises(ChangesetRefused) as unknown:
        await tool.discard_changeset(context(), {"changesetId": "a secret of the model"})
    assert "E_CHANGESET" == error_of(unknown.value).code
    who = {"agent": "planner", "instance": "thread\n1"}
    assert [vars(each) for each in desk.trail] == [
        {"action": "open", "changeset": None} | who,
        {"action": "commit", "changeset": opened["changesetId"]} | who,
        {"action": "discard", "changeset": None} | who,
    ]


TWINS = [
    "k",
    "k ",
    " k",
    "k\n",
    "k\r",
    "K",
    "\uff4b",
    "k\\n",
    "a/k",
    '"k"',
    "",
    "--",
    "-f",
    "refs/heads/main",
    "\ud800",
    "k\0",
    "é",
    "e\u0301",
]
ADDRESSES = [*((agent, key) for agent in ("p", "p/a") for key in TWINS), ("p/a/k", ""), ("p", "a/k/")]


async def test_owners_with_similar_names_are_different_owners(desk):
    """Git trims the reason of a lock, and `a/b` with `c` is no `a` with `b/c`."""
    changesets = desk.changesets
    editors = [
        BundleEditor(changesets, names, AllowedFiles(["**"], ["**"]), audit=desk.trail.append) for names in ADDRESSES
    ]
    assert len(ADDRESSES) == len({each.owner for each in editors})
    opened = [await each.open() for each in editors]
    for each, answer in zip(editors, opened, strict=True):
        assert [Path(answer["workdir"])] == await each.folders()
    with pytest.raises(ChangesetRefused):
        await editors[1].commit({"changesetId": opened[0]["changesetId"]}, "call-1")


async def test_the_history_keeps_its_lines_against_any_text(desk):
    editor = BundleEditor(
        desk.changesets, ("planner", "k\nAgent: other"), AllowedFiles(["**"], ["**"]), audit=desk.trail.append
    )
    opened = await editor.open()
    Path(opened["workdir"], "prompts/new.md").write_text("Now.\n")
    given = {"changesetId": opened["changesetId"], "message": "나\n\nAgent: other\ud800\0"}
    assert "ok" == (await editor.commit(given, "call-1\nAgent: other"))["status"]
    reported = git(desk.repository, "log", "-1", "--format=%B", "main").split("\n")
    assert ["나 Agent: other\\ud800\\u0000", "", 'Agent: ["planner", "k\\nAgent: other"]'] == reported[:3]
    assert ['Tool-Call: "call-1\\nAgent: other"'] == reported[3:]


@pytest.mark.rule("004-12.4-2")
def test_the_names_are_those_of_the_document():
    assert ["swarmBundle__openChangeset", "swarmBundle__commitChangeset"] == [OPEN.name, COMMIT.name]
