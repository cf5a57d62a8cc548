"""An agent of the OpenAI Agents SDK with the tools of an MCP server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Usage, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from mcp_program import SERVER, Asks, arguments, main, planned, say
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from oauthbroker import Broker, Turn
from oauthbroker.integrations import OAuthMcp, OAuthMcpServer, RunAnswer, resume_openai_agents, run_openai_agents


class ScriptedModel(Model):
    async def get_response(self, *_: Any, **more: Any) -> Any:
        return ModelResponse(self._output(_, more), Usage(), None)

    def _output(self, positional: Any, more: Any) -> list[Any]:
        given = more["input"] if "input" in more else positional[1]
        tools = more["tools"] if "tools" in more else positional[3]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        results = [str(each["output"]) for each in items if each.get("type") == "function_call_output"]
        question = next(each["content"] for each in items if each.get("role") == "user")
        name = planned(question, [tool.name for tool in tools], results)
        if name is not None:
            call = {
                "type": "function_call",
                "name": name,
                "arguments": json.dumps(arguments(name)),
                "call_id": f"call-{len(results)}",
            }
            return [ResponseFunctionToolCall.model_validate(call)]
        text = ResponseOutputText(type="output_text", text=" ".join(results), annotations=[])
        parts: Any = {"type": "message", "role": "assistant", "status": "completed", "content": [text]}
        return [ResponseOutputMessage(id="message", **parts)]

    async def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        whole = {"id": "response", "created_at": 0, "model": "scripted", "object": "response", "tools": []}
        more_parts: Any = {"output": self._output(given, more), "parallel_tool_calls": False, "tool_choice": "auto"}
        response = Response(**whole, **more_parts)
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


@asynccontextmanager
async def serve(broker: Broker, _folder: Path, url: str, streamed: bool) -> AsyncIterator[Asks]:
    set_tracing_disabled(True)
    server = OAuthMcpServer(
        OAuthMcp(broker, SERVER),
        lambda clients: MCPServerStreamableHttp(params={"url": url, "httpx_client_factory": clients}),
    )
    agent = Agent(name="planner", model=ScriptedModel(), mcp_servers=[server])

    async def deliver(turn: Turn, answer: RunAnswer) -> None:
        found = {"paused": answer.pauses} if answer.pauses else {"answer": answer.output}
        say(user=turn.instance_key, **found)

    async def event(turn: Turn, each: Any) -> None:
        say(user=turn.instance_key, event=type(each).__name__)

    stream = event if streamed else None
    async with resume_openai_agents(broker, "planner", agent, deliver=deliver, stream=stream):

        async def ask(turn: Turn, question: str) -> None:
            await deliver(turn, await run_openai_agents(broker, agent, turn, question, stream=stream))

        yield ask


if __name__ == "__main__":
    main(serve)
