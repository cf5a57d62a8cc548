"""PydanticAI: a toolset defers the calls of tools whose user has to consent, as calls that wait for approval."""

from __future__ import annotations

from collections.abc import AsyncIterable
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Final

from pydantic_ai import Agent, ApprovalRequired, DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
from pydantic_core import to_jsonable_python

from oauthbroker import Broker, InjectionError, Turn
from oauthbroker.integrations.consent import Missing, consent_for, lacked
from oauthbroker.integrations.paused_runs import shown
from oauthbroker.integrations.resuming import (
    DeliversAnswer,
    PauseEnd,
    Reached,
    RunAnswer,
    Streams,
    TakesOther,
    kept,
    resume_kept,
    streamed,
)

TurnAgent = Agent[Turn, Any]
_MARK: Final = "oauthbroker"  # in the metadata of our calls: their session, and the arguments that a person approved


@dataclass
class OAuthToolset(WrapperToolset[Turn]):
    """Defers the calls of a toolset whose user has to consent: a tool `mail` needs what `Tool/mail` declares.

    The agent's dependencies are the Turn, and its output types include `DeferredToolRequests`.
    """

    _: KW_ONLY
    broker: Broker
    private_links: bool = False

    async def missing(self, turn: Turn, name: str) -> Missing:
        """Return the consent that a tool lacks, as `consent_for` does."""
        return await consent_for(self.broker, turn, name, private_links=self.private_links)

    async def run_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Turn], tool: ToolsetTool[Turn]
    ) -> Any:
        """Run a tool that lacks no consent."""
        return await self.wrapped.call_tool(name, tool_args, ctx, tool)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Turn], tool: ToolsetTool[Turn]
    ) -> Any:
        approved = ctx.tool_call_approved
        if _MARK in (ctx.tool_call_metadata or {}):  # resumed by us: consent at the provider approves no call
            approved = ctx.tool_call_metadata[_MARK]["args"] is not None
        args = to_jsonable_python(tool_args) if approved else None
        missing = await self.missing(ctx.deps, name)
        try:
            if missing is None:
                return await self.run_tool(name, tool_args, replace(ctx, tool_call_approved=approved), tool)
        except ApprovalRequired as asked:
            metadata = {**(asked.metadata or {}), _MARK: {"session": None, "args": args}}
            raise ApprovalRequired(metadata=metadata) from None
        except InjectionError as error:  # the provider refused the token, or the broker the request
            missing = await lacked(self.broker, error)
        if isinstance(missing, str):
            return missing
        mark = {"session": missing.auth_session_id, "args": args}
        raise ApprovalRequired(metadata={**shown(missing), _MARK: mark})


async def run_pydantic_ai(
    broker: Broker, agent: TurnAgent, turn: Turn, prompt: str | None, *, stream: Streams = None, **more: Any
) -> RunAnswer:
    """Run an agent in a turn, as `agent.run` does with `more`; `stream` gets its events. A run that pauses is kept for
    `resume_pydantic_ai`."""
    reached = _reached(await agent.run(prompt, deps=turn, **_events(stream), **more))
    question = None if prompt is None else [prompt, more.get("message_history")]
    return await kept(broker, turn, reached, question=question)


def resume_pydantic_ai(
    broker: Broker, name: str, agent: TurnAgent, *, deliver: DeliversAnswer, other: TakesOther = None,
    stream: Streams = None,
) -> AbstractAsyncContextManager[None]:  # fmt: skip
    """Resume the runs of an agent, `name` in its turns, while the block runs. `deliver` gets each turn and answer, and
    `stream` the events meanwhile."""

    async def go_on(turn: Turn, state: Any, end: PauseEnd) -> Reached:
        denied = None if end.sentence is None else ToolDenied(end.sentence)
        args = {call: state.get("args", {}).get(call) for call in state["waits"]}
        approvals: dict[str, Any] = {
            call: denied if denied and session == end.session_id else ToolApproved(override_args=args[call])
            for call, session in state["waits"].items()
        }
        metadata = {call: {_MARK: {"args": args[call]}} for call in args}
        history = ModelMessagesTypeAdapter.validate_python(state["history"])
        results = DeferredToolResults(approvals=approvals, metadata=metadata)
        more = _events(stream)
        return _reached(await agent.run(message_history=history, deferred_tool_results=results, deps=turn, **more))

    return resume_kept(broker, name, go_on, deliver=deliver, other=other)


def _events(stream: Streams) -> dict[str, Any]:
    async def each(ctx: RunContext[Turn], events: AsyncIterable[Any]) -> None:
        async for _ in streamed(events, ctx.deps, stream):
            pass

    return {} if stream is None else {"event_stream_handler": each}


def _reached(result: AgentRunResult[Any]) -> Reached:
    history = to_jsonable_python(result.all_messages())
    if not isinstance(result.output, DeferredToolRequests):
        return RunAnswer(output=to_jsonable_python(result.output), history=history), None
    asked = result.output
    marks = {call: data.pop(_MARK) for call, data in asked.metadata.items() if _MARK in data}
    waits = {call: mark["session"] for call, mark in marks.items()}
    pauses = {session: asked.metadata[call] for call, session in waits.items() if session is not None}
    if not pauses:
        return RunAnswer(output=to_jsonable_python(asked), history=history), None
    if len(marks) < len(asked.approvals) + len(asked.calls):
        raise ValueError("a step waits for consent and for another approval: give their tools to two agents")
    args = {call: mark["args"] for call, mark in marks.items()}
    return RunAnswer(pauses=list(pauses.values()), history=history), {"waits": waits, "args": args, "history": history}
