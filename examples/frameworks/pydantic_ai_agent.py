"""An agent of PydanticAI that reads mail and files. Its model is scripted: pass a real one to `mail_agent`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from program import AGENT, address_of, main, named, say
from pydantic_ai import Agent, DeferredToolRequests, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.messages import UserPromptPart as Question
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from oauthbroker import Broker, Turn
from oauthbroker.integrations import OAuthToolset, RunAnswer, resume_pydantic_ai, run_pydantic_ai


def scripted(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Call the tools that the question names, then repeat their results."""
    parts = [part for each in messages if isinstance(each, ModelRequest) for part in each.parts]
    found = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
    if found:
        return ModelResponse([TextPart(" ".join(found))])
    question = next(str(part.content) for part in parts if isinstance(part, Question))
    return ModelResponse([ToolCallPart(name, {}, f"call-{at}") for at, name in enumerate(named(question))])


def mail_agent(broker: Broker, model: Any) -> Agent[Turn, Any]:
    tools: FunctionToolset[Turn] = FunctionToolset()

    @tools.tool
    async def mail(ctx: RunContext[Turn]) -> str:
        """Read the newest mail."""
        async with broker.oauth(ctx.deps, "Tool/mail").client("OAuthApp/mail") as http:
            return (await http.get(address_of("mail", ctx.deps))).text

    @tools.tool
    async def files(ctx: RunContext[Turn]) -> str:
        """List the files of the account."""
        async with broker.oauth(ctx.deps, "Tool/files").client("OAuthApp/files") as http:
            return (await http.get(address_of("files", ctx.deps))).text

    toolsets = [OAuthToolset(tools, broker=broker)]
    return Agent(model, deps_type=Turn, output_type=[str, DeferredToolRequests], toolsets=toolsets)


async def serve(broker: Broker, _folder: Path, turn: Turn, question: str) -> None:
    agent = mail_agent(broker, FunctionModel(scripted))

    async def deliver(_turn: Turn, answer: RunAnswer) -> None:
        say(**{"paused": answer.pauses} if answer.pauses else {"answer": answer.output})

    async with resume_pydantic_ai(broker, AGENT, agent, deliver=deliver):
        if question:
            await deliver(turn, await run_pydantic_ai(broker, agent, turn, question))
        await asyncio.Event().wait()


if __name__ == "__main__":
    main(serve)
