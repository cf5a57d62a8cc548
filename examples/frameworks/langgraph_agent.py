"""An agent of LangChain that reads mail and files. Its model is scripted: pass a real one to `mail_agent`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.tools import ToolRuntime, tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from program import AGENT, THREAD, address_of, main, named, say

from oauthbroker import Broker, Turn
from oauthbroker.integrations import OAuthMiddleware, resume_langgraph


class ScriptedModel(BaseChatModel):
    """Call the tools that the question names, then repeat their results."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        found = [str(each.content) for each in messages if isinstance(each, ToolMessage)]
        question = next(str(each.content) for each in reversed(messages) if isinstance(each, HumanMessage))
        calls = [{"name": name, "args": {}, "id": f"call-{at}"} for at, name in enumerate(named(question))]
        answer = AIMessage(" ".join(found)) if found else AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def mail_agent(broker: Broker, model: Any, saver: Any) -> Any:
    @tool
    async def mail(runtime: ToolRuntime[Turn]) -> str:
        """Read the newest mail."""
        async with broker.oauth(runtime.context, "Tool/mail").client("OAuthApp/mail") as http:
            return (await http.get(address_of("mail", runtime.context))).text

    @tool
    async def files(runtime: ToolRuntime[Turn]) -> str:
        """List the files of the account."""
        async with broker.oauth(runtime.context, "Tool/files").client("OAuthApp/files") as http:
            return (await http.get(address_of("files", runtime.context))).text

    tools = [mail]
    tools += [files]
    middleware = [OAuthMiddleware(broker)]
    return create_agent(model, tools, middleware=middleware, context_schema=Turn, checkpointer=saver)


async def serve(broker: Broker, folder: Path, turn: Turn, question: str) -> None:
    async def deliver(_turn: Turn, result: dict[str, Any]) -> None:
        paused = result.get("__interrupt__")
        say(**{"paused": [each.value for each in paused]} if paused else {"answer": result["messages"][-1].content})

    async with AsyncSqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
        agent = mail_agent(broker, ScriptedModel(), saver)
        async with resume_langgraph(broker, AGENT, agent, deliver=deliver):
            if question:
                config: Any = {"configurable": {"thread_id": THREAD}}
                asked: Any = {"messages": [HumanMessage(question)]}
                await deliver(turn, await agent.ainvoke(asked, config, context=turn))
            await asyncio.Event().wait()


if __name__ == "__main__":
    main(serve)
