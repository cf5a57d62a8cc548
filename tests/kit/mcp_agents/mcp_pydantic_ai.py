"""An agent of PydanticAI with the tools of an MCP server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp_program import SERVER, Asks, arguments, main, planned, say
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from oauthbroker import Broker, Turn
from oauthbroker.integrations import OAuthMcp, OAuthMcpToolset, RunAnswer, resume_pydantic_ai, run_pydantic_ai


def step(messages: list[ModelMessage], info: AgentInfo) -> tuple[str | None, list[str]]:
    parts = [part for each in messages if isinstance(each, ModelRequest) for part in each.parts]
    results = [str(part.content) for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
    question = next(str(part.content) for part in parts if isinstance(part, UserPromptPart))
    return planned(question, [tool.name for tool in info.function_tools], results), results


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    name, results = step(messages, info)
    part = TextPart(" ".join(results)) if name is None else ToolCallPart(name, arguments(name), f"call-{len(results)}")
    return ModelResponse([part])


async def scripted_stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    name, results = step(messages, info)
    call = DeltaToolCall(name, json.dumps(arguments(name)), tool_call_id=f"call-{len(results)}")
    yield " ".join(results) if name is None else {0: call}


@asynccontextmanager
async def serve(broker: Broker, _folder: Path, url: str, streamed: bool) -> AsyncIterator[Asks]:
    tools = OAuthMcpToolset(
        broker=broker,
        server=OAuthMcp(broker, SERVER),
        toolset=lambda clients: MCPToolset(url, http_client=clients()),
    )
    model = FunctionModel(scripted, stream_function=scripted_stream)
    agent: Agent[Turn, Any] = Agent(model, deps_type=Turn, output_type=[str, DeferredToolRequests], toolsets=[tools])

    async def deliver(turn: Turn, answer: RunAnswer) -> None:
        found = {"paused": answer.pauses} if answer.pauses else {"answer": answer.output}
        say(user=turn.instance_key, **found)

    async def event(turn: Turn, each: Any) -> None:
        say(user=turn.instance_key, event=type(each).__name__)

    stream = event if streamed else None
    async with resume_pydantic_ai(broker, "planner", agent, deliver=deliver, stream=stream):

        async def ask(turn: Turn, question: str) -> None:
            await deliver(turn, await run_pydantic_ai(broker, agent, turn, question, stream=stream))

        yield ask


if __name__ == "__main__":
    main(serve)
