"""PydanticAI: a user's consent at the provider approves no tool call. A guard inside the toolset still asks a person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from oauthbroker import Turn
from oauthbroker.integrations import OAuthToolset, RunAnswer, resume_pydantic_ai, run_pydantic_ai
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.plugin_resources import PluginResources
from oauthbroker.testing import IdentityProvider, TestClock, connect_through
from tests.kit.running_broker import BOB, Harness, running, turn, user_app

PLUGINS = {"integrations": PluginResources(())}
TOOLS = {f"Tool/{name}": (ToolAuth(name, ("read",), injected=True),) for name in ("mail", "files")}


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps = [user_app(identity_provider, name) for name in ("mail", "files")]
    async with running(identity_provider, apps, clock=test_clock, tools=TOOLS, plugins=PLUGINS) as harness:
        yield harness


class Guarded:
    """An agent that calls its tools once, each behind a guard. `done` lists the executed calls."""

    def __init__(self, harness: Harness, *calls: str, of_tools: bool = False) -> None:
        self.harness, self.calls, self.done = harness, calls, list[str]()
        self.answers: asyncio.Queue[RunAnswer] = asyncio.Queue()
        tools: FunctionToolset[Turn] = FunctionToolset()

        @tools.tool(requires_approval=of_tools)
        async def mail(ctx: RunContext[Turn], to: str) -> str:
            self.done.append(f"mail {to}")
            return "sent"

        @tools.tool(requires_approval=of_tools)
        async def files(ctx: RunContext[Turn], to: str) -> str:
            self.done.append(f"files {to}")
            return "shared"

        guarded = OAuthToolset(tools if of_tools else tools.approval_required(), broker=harness.broker)
        self.agent: Agent[Turn, Any] = Agent(
            FunctionModel(self._model), deps_type=Turn, output_type=[str, DeferredToolRequests], toolsets=[guarded]
        )

    def _model(self, messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart(name, {"to": "bob"}, f"call-{name}") for name in self.calls])

    async def run(self) -> RunAnswer:
        return await run_pydantic_ai(self.harness.broker, self.agent, turn(), "Go.")

    async def approve(self, answer: RunAnswer, approval: Any = True) -> RunAnswer:
        results = DeferredToolResults(approvals={call["tool_call_id"]: approval for call in answer.output["approvals"]})
        history = ModelMessagesTypeAdapter.validate_python(answer.history)
        broker = self.harness.broker
        more: Any = {"message_history": history, "deferred_tool_results": results}
        return await run_pydantic_ai(broker, self.agent, turn(), None, **more)

    async def deliver(self, _turn: Turn, answer: RunAnswer) -> None:
        await self.answers.put(answer)

    async def consented(self, answer: RunAnswer) -> RunAnswer:
        """Consent to all links of a run until it is not paused any more. Return its answer."""
        async with resume_pydantic_ai(self.harness.broker, "planner", self.agent, deliver=self.deliver):
            linked = set[str]()
            while answer.pauses:
                for pause in answer.pauses:
                    if pause["sessionId"] not in linked:
                        linked.add(pause["sessionId"])
                        await connect_through(
                            self.harness.browser(), self.harness.idp, pause["authorizationUrl"], "alice"
                        )
                answer = await asyncio.wait_for(self.answers.get(), 60)
        return answer


@pytest.mark.parametrize("calls", [("mail",), ("mail", "files")])
async def test_consent_at_the_provider_does_not_approve_a_guarded_call(harness: Harness, calls: tuple[str, ...]):
    agent = Guarded(harness, *calls)
    paused = await agent.run()
    assert [{"authorizationUrl", "message", "sessionId"}] * len(calls) == [set(each) for each in paused.pauses]
    asks = await agent.consented(paused)
    assert [] == agent.done
    assert [*calls] == [call["tool_name"] for call in asks.output["approvals"]]
    assert "done" == (await agent.approve(asks)).output
    assert [f"{name} bob" for name in calls] == agent.done


async def test_a_call_that_a_person_approved_before_the_consent_runs_with_the_arguments_of_the_approval(
    harness: Harness,
):
    agent = Guarded(harness, "mail", of_tools=True)
    asks = await agent.run()
    paused = await agent.approve(asks, ToolApproved(override_args={"to": "carol"}))
    assert "done" == (await agent.consented(paused)).output
    assert ["mail carol"] == agent.done


async def test_a_question_that_is_asked_again_meanwhile_runs_its_tools_once(harness: Harness):
    """The newer run takes the place of the one that waits. A different question goes on beside it."""
    agent = Guarded(harness, "mail")
    for question in ("Go.", "Go.", "Go on.", "Go."):
        await run_pydantic_ai(harness.broker, agent.agent, turn(), question)
    (conversation,) = [runs async for _, runs in harness.broker.plugin_state("integrations").all()]
    assert 2 == len(conversation)
    assert [1, 1] == [len(each["waits"]) for each in conversation.values()]
    other = turn(BOB)
    await run_pydantic_ai(harness.broker, agent.agent, other, "Go.")
    (conversation,) = [runs async for _, runs in harness.broker.plugin_state("integrations").all()]
    assert 3 == len(conversation)


async def test_a_question_that_is_asked_again_after_its_link_has_ended_waits_for_the_new_link_alone(harness: Harness):
    agent = Guarded(harness, "mail")
    first = await agent.run()
    assert await harness.broker.cancel(first.pauses[0]["sessionId"])
    again = await agent.run()
    assert first.pauses != again.pauses
    (runs,) = [each async for _, each in harness.broker.plugin_state("integrations").all()]
    (run,) = runs.values()
    assert [again.pauses[0]["sessionId"]] == list(run["waits"])
    answer = await agent.approve(await agent.consented(again))
    assert ("done", ["mail bob"]) == (answer.output, agent.done)
