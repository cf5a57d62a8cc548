"""The OpenAI Agents SDK: calls of tools wait for approval, which a tool gets when its user has consented."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from agents import FunctionTool, Runner, RunState
from pydantic_core import to_jsonable_python

from oauthbroker import Broker, Turn
from oauthbroker.integrations.consent import Missing, consent_for
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


async def consent_first(_context: Any, _arguments: dict[str, Any], _call_id: str) -> bool:
    """Mark a tool, as its `needs_approval`: `mail` is approved once its user has granted what `Tool/mail` declares."""
    return True


async def run_openai_agents(
    broker: Broker, agent: Any, turn: Turn, prompt: Any, *, private_links: bool = False,
    stream: Streams = None, **more: Any,
) -> RunAnswer:  # fmt: skip
    """Run an agent in a turn, its context, as `Runner.run` does with `more`; with `stream` as `Runner.run_streamed`
    does, whose events it gets. A run that pauses is kept for `resume_openai_agents`."""
    result = await _run(agent, prompt, turn, stream, context=turn, **more)
    reached = await _step(broker, agent, turn, result, private_links=private_links, stream=stream)
    return await kept(broker, turn, reached, question=prompt)


def resume_openai_agents(
    broker: Broker, name: str, agent: Any, *, deliver: DeliversAnswer, other: TakesOther = None, stream: Streams = None
) -> AbstractAsyncContextManager[None]:
    """Resume the runs of an agent, `name` in its turns, while the block runs. `deliver` gets each turn and answer, and
    `stream` the events meanwhile."""

    async def go_on(turn: Turn, state: Any, _end: PauseEnd) -> Reached:
        whole = await RunState.from_json(agent, state["run"], context_override=turn)
        return await _step(broker, agent, turn, whole, stream, private_links=state["privateLinks"])

    return resume_kept(broker, name, go_on, deliver=deliver, other=other)


async def _step(broker: Broker, agent: Any, turn: Turn, run: Any, stream: Streams, *, private_links: bool) -> Reached:
    """Approve or reject the calls that wait, and run on, until there is an answer or consent is missing."""
    while True:
        state = run if isinstance(run, RunState) else run.to_state()
        pauses = {}
        for item in state.get_interruptions():
            missing = await _missing(broker, turn, item, private_links=private_links)
            if missing is None:
                state.approve(item)
            elif isinstance(missing, str):
                state.reject(item, rejection_message=missing)
            else:
                pauses[missing.auth_session_id] = shown(missing)
        if pauses:
            kept_state = {"run": state.to_json(context_serializer=lambda _: {}), "privateLinks": private_links}
            return RunAnswer(pauses=list(pauses.values())), kept_state
        if not state.get_interruptions():
            history = to_jsonable_python(run.to_input_list())
            return RunAnswer(output=to_jsonable_python(run.final_output), history=history), None
        run = await _run(agent, state, turn, stream)


async def _run(agent: Any, start: Any, turn: Turn, stream: Streams, **more: Any) -> Any:
    if stream is None:
        return await Runner.run(agent, start, **more)
    result = Runner.run_streamed(agent, start, **more)
    async for _ in streamed(result.stream_events(), turn, stream):
        pass
    return result


async def _missing(broker: Broker, turn: Turn, item: Any, *, private_links: bool) -> Missing:
    """Return the consent that a call lacks. Raises ValueError for one that waits for another approval."""
    for server in item.agent.mcp_servers:
        mcp = getattr(server, "oauth_mcp", None)
        if mcp is not None and item.tool_origin is not None and item.tool_origin.mcp_server_name == mcp.name:
            return await mcp.missing(turn)  # type: ignore[no-any-return]
    tools = [each for each in item.agent.tools if isinstance(each, FunctionTool) and each.name == item.tool_name]
    if not any(each.needs_approval is consent_first for each in tools):
        raise ValueError("a step waits for consent and for another approval: give their tools to two agents")
    return await consent_for(broker, turn, item.tool_name, private_links=private_links)
