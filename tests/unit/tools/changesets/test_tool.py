"""`swarmBundle__openChangeset` and `swarmBundle__commitChangeset` as a model calls them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from oauthbroker import check_config
from oauthbroker.tools.changesets.allowed import AllowedFiles
from oauthbroker.tools.changesets.tool import COMMIT, OPEN, SwarmBundleTool
from oauthbroker.tools.context import ToolContext
from oauthbroker.tools.messages import Message
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
    tool = SwarmBundleTool(desk.changesets, lambda _agent: allowed)
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


async def test_a_bundle_that_the_loader_refuses_is_rejected_with_place_and_remedy(desk):
    tool = SwarmBundleTool(desk.changesets, lambda _agent: AllowedFiles(["**"], ["**"]))
    opened = await tool.open_changeset(context(), {})
    Path(opened["workdir"], "broker.yaml").write_text(CONFIG.replace("publicBaseUrl", "publicBaseUrI"))
    answer = await tool.commit_changeset(context(), {"changesetId": opened["changesetId"]})
    assert "rejected" == answer["status"]
    assert any(each.startswith("broker.yaml:4:") for each in answer["problems"]), answer["problems"]


def test_the_names_are_those_of_the_document():
    assert ["swarmBundle__openChangeset", "swarmBundle__commitChangeset"] == [OPEN.name, COMMIT.name]
