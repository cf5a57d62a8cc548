"""An agent of Google ADK that reads mail and files. Its scripted model gives way to a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from google.adk.agents import Agent
from google.adk.auth.credential_manager import CredentialManager
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai.types import Content, FunctionCall, Part
from program import AGENT, THREAD, address_of, main, named, say

from oauthbroker import Broker, Turn
from oauthbroker.integrations import OAuthProvider, RunAnswer, resume_google_adk, run_google_adk, say_refusal


class ScriptedModel(BaseLlm):
    """Call the tools that the question names, then repeat their results."""

    async def generate_content_async(self, llm_request: Any, *_: Any, **__: Any) -> AsyncIterator[LlmResponse]:
        parts = [part for each in llm_request.contents for part in each.parts]
        found = [str(part.function_response.response) for part in parts if part.function_response]
        question = next(part.text for part in parts if part.text)
        calls = [
            Part(function_call=FunctionCall(name=name, args={}, id=f"call-{at}"))
            for at, name in enumerate(named(question))
        ]
        answer = [Part(text=" ".join(found))] if found else calls
        yield LlmResponse(content=Content(role="model", parts=answer))


def mail_agent(broker: Broker, model: Any, provider: OAuthProvider) -> Agent:
    async def mail(tool_context: ToolContext) -> str:
        """Read the newest mail."""
        turn = provider.turn_of(tool_context)
        async with broker.oauth(turn, "Tool/mail").client("OAuthApp/mail") as http:
            return (await http.get(address_of("mail", turn))).text

    async def files(tool_context: ToolContext) -> str:
        """List the files of the account."""
        turn = provider.turn_of(tool_context)
        async with broker.oauth(turn, "Tool/files").client("OAuthApp/files") as http:
            return (await http.get(address_of("files", turn))).text

    tools = [AuthenticatedFunctionTool(func=mail, auth_config=provider.needs("mail"))]
    tools += [AuthenticatedFunctionTool(func=files, auth_config=provider.needs("files"))]
    return Agent(name="planner", model=model, tools=tools, on_tool_error_callback=say_refusal)


async def serve(broker: Broker, folder: Path, turn: Turn, question: str) -> None:
    def turn_of(context: Any) -> Turn:
        assert context.user_id == "alice"  # noqa: S101  (the one user of this example; yours makes the user's turn)
        return turn

    provider = OAuthProvider(broker, turn_of)
    CredentialManager.register_auth_provider(provider)
    sessions = SqliteSessionService(str(folder / "checkpoints.sqlite"))
    agent = mail_agent(broker, ScriptedModel(model="scripted"), provider)
    runner = Runner(app_name="example", agent=agent, session_service=sessions)
    place: Any = {"user_id": "alice", "session_id": THREAD}

    async def deliver(_turn: Turn, answer: RunAnswer) -> None:
        say(**{"paused": answer.pauses} if answer.pauses else {"answer": answer.output})

    async with resume_google_adk(broker, AGENT, runner, deliver=deliver):
        if question:
            await sessions.create_session(app_name="example", **place)
            await deliver(turn, await run_google_adk(broker, runner, turn, question, **place))
        await asyncio.Event().wait()


if __name__ == "__main__":
    main(serve)
