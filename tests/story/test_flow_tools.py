"""Deployed flows as tools of an agent: a consent wakes the agent's turn, and the repeated call goes on with the run."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from oauthbroker import TurnAuth
from oauthbroker.flowtools.as_tools import FlowTools, tool_name
from oauthbroker.flowtools.deployment.versions import versions_of
from oauthbroker.flowtools.risk.assessment import assess
from oauthbroker.flowtools.running.approvals import run_lines
from oauthbroker.flowtools.running.auditing import audit_from_threads
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.flowtools.specification.spec import load_tool
from oauthbroker.testing import IdentityProvider, TestClock, connect_through
from oauthbroker.tools import CallScope, Registry, ToolCall, ToolCallResult, ToolCalls, ToolContext
from oauthbroker.tools.types.catalog import is_export_name
from oauthbroker.tools.types.results import Message
from tests.kit.flow_versions import damage
from tests.kit.queues import until_queued
from tests.kit.running_broker import turn
from tests.story.flow_kit import ALICE, ConsentWorld, consent_world
from tests.unit.flowtools.kit import chain, written
from tests.unit.flowtools.run_kit import INPUT

pytestmark = pytest.mark.rule("flow-tools")
NAME = "flow__orders_post-note"
TURN = turn()


class Agent:
    """An agent process whose registry has the flows of a broker."""

    def __init__(self, here: ConsentWorld) -> None:
        self.here, self.versions = here, versions_of(here.harness.broker, audit_from_threads(here.harness.broker.audit))
        self.registry, self.asked, self.turn = Registry(), list[str](), TURN
        self.flows = FlowTools(self.registry, versions=self.versions, runs=here.world.runs, actor_of=self.caller)

    def caller(self, ctx: ToolContext) -> Actor:
        self.asked.append(ctx.agent_name)
        return replace(ALICE, turn=self.turn, repeats=True)

    async def deploy(self, **more: Any) -> None:
        """Deploy a version of the flow, and let it serve."""
        await asyncio.to_thread(self._deploy, **more)

    def _deploy(self, **more: Any) -> None:
        given = {"name": "orders.postNote", "description": "Post a note", "input": INPUT, "idempotencyKey": None}
        document = written(self.here.nodes, chain(*self.here.nodes), **{**given, **more})
        raw = json.dumps(document).encode()
        tool = load_tool(raw, "tool.json")
        self.versions.acknowledgements.record(tool, assess(tool), by="ada")
        self.versions.deploy(raw, "tool.json", by="ada")
        self.versions.activate(tool.name, tool.version, by="ada")

    async def call(self, number: int, args: Mapping[str, Any] | None = None, name: str = NAME) -> ToolCallResult:
        scope = CallScope(
            agent_name=TURN.agent_name,
            instance_key=TURN.instance_key,
            turn_id="turn-1",
            trace_id="trace-1",
            message=Message(id="m", role="assistant"),
            workdir=Path("/work"),
            logger=logging.getLogger("tools"),
            catalog=self.registry.catalog(["flow"]),
        )
        calls = ToolCalls(self.registry, self.here.harness.broker.scrubber.json)
        return await calls.perform(ToolCall(f"turn-1.0.{number}", name, dict(args or {"id": "a"})), scope)


@pytest.fixture
async def agent(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Agent]:
    monkeypatch.setattr(
        "oauthbroker.flowtools.specification.spec.is_public_url", lambda _: True
    )  # the API is on loopback
    async with consent_world(identity_provider, test_clock, tmp_path) as here:
        made = Agent(here)
        await made.deploy()
        assert () == await made.flows.follow()
        yield made


async def test_a_flow_is_in_the_catalog_with_its_schema_and_its_risk(agent: Agent):
    (item,) = agent.registry.catalog(["flow"])
    assert (NAME, "Post a note (risk: yellow)") == (item.name, item.description)
    assert INPUT == item.parameters
    assert [] == list(agent.registry.catalog(["mail"]))


async def test_a_call_that_needs_a_consent_gives_the_link_and_the_repeated_one_goes_on_with_its_run(agent: Agent):
    first = await agent.call(0)
    assert first.error is not None
    assert "E_AUTHORIZATION_REQUIRED" == first.error.code
    link = (first.error.suggestion or "").split()[-1]
    assert ["one"] == agent.here.world.texts()
    harness = agent.here.harness
    await connect_through(harness.browser(), harness.idp, link, "alice")
    await until_queued(harness.running.parts.queues)
    delivery = await harness.running.parts.queues.lease(TURN.agent_name)
    assert delivery is not None, "the agent's own turn is resumed"
    assert ("auth.granted", TURN.instance_key) == (delivery.event.type, delivery.event.turn.instance_key)
    second = await agent.call(1)
    assert ("ok", None) == (second.status, second.error)
    assert ["one", "two"] == agent.here.world.texts()
    assert 1 == len(agent.here.api.requests)
    third = await agent.call(2)
    assert "ok" == third.status
    assert ["one", "one", "two", "two"] == agent.here.world.texts(), "a new call is a new run"


async def test_a_call_of_the_same_id_is_the_same_run(agent: Agent):
    await agent.here.harness.connected()
    first, again = await agent.call(0), await agent.call(0)
    assert first.output == again.output
    assert 1 == len(agent.here.api.requests)


async def test_a_call_for_another_subject_goes_on_with_no_waiting_run(agent: Agent):
    first = await agent.call(0)
    agent.turn = replace(TURN, auth=TurnAuth(subjects={"user": "slack:user:T2:U1"}))
    other = await agent.call(1)
    with agent.here.world.database.transaction() as connection:
        found = run_lines(connection, limit=10)
    assert ["waiting", "waiting"] == [run.state for run in found]
    assert first.error is not None
    assert other.error is not None
    assert first.error.suggestion != other.error.suggestion, "the link is for the first one's user"


async def test_a_fault_of_the_database_tells_the_model_no_statement_and_no_value(agent: Agent):
    with agent.here.world.database.transaction() as connection:
        connection.execute(sa.text("DROP TABLE flow_run"))
    failed = await agent.call(0)
    assert failed.error is not None
    assert "storeUnavailable" == failed.error.name
    assert "flow_run" not in failed.error.message


async def test_no_other_process_goes_on_with_a_run_that_its_agent_repeats(agent: Agent):
    await agent.call(0)
    (run,) = agent.here.world.unended()
    assert ([], "") == (agent.here.world.runs.due(5), agent.here.world.runs.session(run))


async def test_the_caller_is_that_of_the_turn_and_not_the_models_word(agent: Agent):
    refused = await agent.call(0, {"id": "a", "user": "bob"})
    assert refused.error is None or "E_AUTHORIZATION_REQUIRED" == refused.error.code
    assert [TURN.agent_name] == agent.asked


async def test_arguments_that_do_not_fit_are_refused_before_the_run(agent: Agent):
    refused = await agent.call(0, {"n": 1})
    assert refused.error is not None
    assert "E_TOOL_ARGUMENTS" == refused.error.code
    assert [] == agent.asked


async def test_a_version_that_is_activated_is_followed_and_one_that_is_refused_is_left_out_with_a_reason(agent: Agent):
    await agent.deploy(version=2, description="Post a short note")
    assert () == await agent.flows.follow()
    (item,) = agent.registry.catalog(["flow"])
    assert "Post a short note (risk: yellow)" == item.description
    await damage(agent.here.harness.broker.plugin_state("flowtools"), "orders.postNote", 2)
    (why,) = await agent.flows.follow()
    assert "Damaged" in why
    assert [] == list(agent.registry.catalog(["flow"]))


@pytest.mark.rule("001-withdraw")
async def test_a_model_sees_no_withdrawn_version(agent: Agent):
    await asyncio.to_thread(agent.versions.withdraw, "orders.postNote", 1, by="ada", serving=True)
    assert () == await agent.flows.follow()
    assert [] == list(agent.registry.catalog(["flow"]))
    await agent.deploy(version=2)
    assert () == await agent.flows.follow()
    assert [NAME] == [each.name for each in agent.registry.catalog(["flow"])]


async def test_a_run_that_fails_tells_its_code_and_its_message(agent: Agent):
    await agent.deploy(version=2, policies=["paymentRollback"], auth={"allowedRoles": ["admin"]})
    await agent.flows.follow()
    refused = await agent.call(0)
    assert refused.error is not None
    assert ("forbidden", "the tool asks for one of the roles admin") == (refused.error.name, refused.error.message)


@pytest.mark.parametrize(
    ("flow", "name"),
    [
        ("createReservation", "flow__create-reservation"),
        ("auth.login", "flow__auth_login"),
        ("a.bC.dE2F", "flow__a_b-c_d-e2-f"),
    ],
)
def test_each_name_of_a_flow_is_another_name_of_a_tool(flow: str, name: str):
    assert name == tool_name(flow)
    assert is_export_name(name.removeprefix("flow__"))
