"""An agent of the OpenAI Agents SDK that reads mail and files. Its scripted model gives way to a real one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, RunContextWrapper, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from program import AGENT, address_of, main, named, say

from oauthbroker import Broker, Turn
from oauthbroker.integrations import RunAnswer, consent_first, resume_openai_agents, run_openai_agents


class ScriptedModel(Model):
    """Call the tools that the question names, then repeat their results."""

    async def get_response(self, *, input: Any, **_more: Any) -> Any:  # noqa: A002  (the name of the SDK)
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        found = [str(each["output"]) for each in items if each.get("type") == "function_call_output"]
        if found:
            text = ResponseOutputText(type="output_text", text=" ".join(found), annotations=[])
            parts: Any = {"type": "message", "role": "assistant", "status": "completed", "content": [text]}
            return ModelResponse([ResponseOutputMessage(id="message", **parts)], Usage(), None)
        question = next(each["content"] for each in items if each.get("role") == "user")
        calls = [
            ResponseFunctionToolCall(type="function_call", name=name, arguments="{}", call_id=f"call-{at}")
            for at, name in enumerate(named(question))
        ]
        return ModelResponse(calls, Usage(), None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("this example does not stream")


def mail_agent(broker: Broker, model: Any) -> Any:
    @function_tool(needs_approval=consent_first)
    async def mail(context: RunContextWrapper[Turn]) -> str:
        """Read the newest mail."""
        async with broker.oauth(context.context, "Tool/mail").client("OAuthApp/mail") as http:
            return (await http.get(address_of("mail", context.context))).text

    @function_tool(needs_approval=consent_first)
    async def files(context: RunContextWrapper[Turn]) -> str:
        """List the files of the account."""
        async with broker.oauth(context.context, "Tool/files").client("OAuthApp/files") as http:
            return (await http.get(address_of("files", context.context))).text

    tools = [mail]
    tools += [files]
    return Agent(name="planner", model=model, tools=tools)


async def serve(broker: Broker, _folder: Path, turn: Turn, question: str) -> None:
    set_tracing_disabled(True)
    agent = mail_agent(broker, ScriptedModel())

    async def deliver(_turn: Turn, answer: RunAnswer) -> None:
        say(**{"paused": answer.pauses} if answer.pauses else {"answer": answer.output})

    async with resume_openai_agents(broker, AGENT, agent, deliver=deliver):
        if question:
            await deliver(turn, await run_openai_agents(broker, agent, turn, question))
        await asyncio.Event().wait()


if __name__ == "__main__":
    main(serve)
