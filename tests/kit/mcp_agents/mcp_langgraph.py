"""An agent of LangChain with the tools of an MCP server. `mcp_langgraph_sync.py` calls the same graph without await."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.tools import ToolRuntime, tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from mcp_program import SERVER, Asks, arguments, main, planned, say

from oauthbroker import Broker, Turn
from oauthbroker.integrations import OAuthMcp, OAuthMcpMiddleware, OAuthMiddleware, resume_langgraph


class ScriptedModel(BaseChatModel):
    tools: tuple[str, ...] = ()

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return ScriptedModel(tools=tuple(each.name for each in tools))

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        results = [str(each.content) for each in messages if isinstance(each, ToolMessage)]
        question = next(str(each.content) for each in messages if isinstance(each, HumanMessage))
        name = planned(question, self.tools, results)
        call: Any = {"name": name, "args": arguments(name), "id": f"call-{len(results)}"}
        answer = AIMessage(" ".join(results)) if name is None else AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])


def made(broker: Broker, folder: Path, url: str, saver: Any) -> Any:
    place = json.loads(json.loads((folder / "config" / "origin.json").read_text("utf-8"))["places"])["mail"]

    @tool
    def mail(runtime: ToolRuntime[Turn]) -> str:
        """Read the newest mail, without await."""
        with broker.oauth(runtime.context, "Tool/mail").sync.client("OAuthApp/mail") as http:
            return http.get(place).text

    middleware = [OAuthMiddleware(broker), OAuthMcpMiddleware(broker, OAuthMcp(broker, SERVER), url)]
    return create_agent(ScriptedModel(), [mail], middleware=middleware, context_schema=Turn, checkpointer=saver)


async def deliver(turn: Turn, result: dict[str, Any]) -> None:
    paused = result.get("__interrupt__")
    found = {"paused": [each.value for each in paused]} if paused else {"answer": result["messages"][-1].content}
    say(user=turn.instance_key, **found)


async def event(turn: Turn, chunk: Any) -> None:
    say(user=turn.instance_key, event=str(chunk[0]))


def asked(question: str) -> Any:
    return {"messages": [HumanMessage(question)]}


def config_of(turn: Turn, question: str) -> Any:
    return {"configurable": {"thread_id": f"{turn.instance_key}-{question}"}}


@asynccontextmanager
async def serve(broker: Broker, folder: Path, url: str, streamed: bool) -> AsyncIterator[Asks]:
    async with AsyncSqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
        agent = made(broker, folder, url, saver)
        stream = event if streamed else None
        async with resume_langgraph(broker, "planner", agent, deliver=deliver, stream=stream):

            async def ask(turn: Turn, question: str) -> None:
                config = config_of(turn, question)
                if not streamed:
                    return await deliver(turn, await agent.ainvoke(asked(question), config, context=turn))
                result: dict[str, Any] = {}
                async for mode, chunk in agent.astream(
                    asked(question), config, context=turn, stream_mode=["updates", "values"]
                ):
                    await event(turn, (mode, chunk))
                    result |= chunk if mode == "values" or "__interrupt__" in chunk else {}
                return await deliver(turn, result)

            yield ask


if __name__ == "__main__":
    main(serve)
