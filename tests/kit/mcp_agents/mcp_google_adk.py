"""An agent of Google ADK with the tools of an MCP server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from google.adk.agents import Agent
from google.adk.auth.credential_manager import CredentialManager
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai.types import Content, FunctionCall, Part
from mcp_program import SERVER, Asks, arguments, main, planned, say

from oauthbroker import Broker, Turn, TurnAuth
from oauthbroker.integrations import (
    OAuthMcp,
    OAuthMcpTools,
    OAuthProvider,
    RunAnswer,
    resume_google_adk,
    run_google_adk,
    say_refusal,
)


class ScriptedModel(BaseLlm):
    async def generate_content_async(self, llm_request: Any, *_: Any, **__: Any) -> AsyncIterator[LlmResponse]:
        parts = [part for each in llm_request.contents for part in each.parts]
        results = [str(part.function_response.response) for part in parts if part.function_response]
        question = next(part.text for part in parts if part.text)
        name = planned(question, llm_request.tools_dict, results)
        call = FunctionCall(name=name, args=arguments(name), id=f"call-{len(results)}")
        part = Part(text=" ".join(results)) if name is None else Part(function_call=call)
        yield LlmResponse(content=Content(role="model", parts=[part]))


@asynccontextmanager
async def serve(broker: Broker, folder: Path, url: str, streamed: bool) -> AsyncIterator[Asks]:
    subjects = json.loads((folder / "subjects.json").read_text("utf-8"))

    def turn_of(context: Any) -> Turn:
        user = context.user_id
        auth = TurnAuth(subjects={"user": subjects[user]})
        return Turn(agent_name="planner", instance_key=user, origin={"user": user}, auth=auth)

    provider = OAuthProvider(broker, turn_of)
    CredentialManager.register_auth_provider(provider)
    tools = OAuthMcpTools(provider, OAuthMcp(broker, SERVER), url)
    agent = Agent(
        name="planner", model=ScriptedModel(model="scripted"), tools=[tools], on_tool_error_callback=say_refusal
    )
    sessions = SqliteSessionService(str(folder / "checkpoints.sqlite"))
    runner = Runner(app_name="example", agent=agent, session_service=sessions)

    async def deliver(turn: Turn, answer: RunAnswer) -> None:
        found = {"paused": answer.pauses} if answer.pauses else {"answer": answer.output}
        say(user=turn.instance_key, **found)

    async def event(turn: Turn, each: Any) -> None:
        say(user=turn.instance_key, event=type(each).__name__)

    stream = event if streamed else None
    async with resume_google_adk(broker, "planner", runner, deliver=deliver, stream=stream):

        async def ask(turn: Turn, question: str) -> None:
            place = {"user_id": turn.instance_key, "session_id": f"{turn.instance_key}-{question}"}
            await sessions.create_session(app_name="example", **place)
            await deliver(turn, await run_google_adk(broker, runner, turn, question, stream=stream, **place))

        yield ask


if __name__ == "__main__":
    main(serve)
