"""The OpenAI Agents SDK: calls of tools wait for approval, which a tool gets when its user has consented."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from agents import FunctionTool, Runner, RunState
from pydantic_core import to_jsonable_python

from oauthbroker import Broker, Turn
from oauthbroker.integrations.consent import consent_for
from oauthbroker.integrations.kept_answers import DeliversAnswer, Reached, RunAnswer, kept, resume_kept
from oauthbroker.integrations.paused_runs import shown
from oauthbroker.integrations.resuming import PauseEnd, TakesOther


async def consent_first(_context: Any, _arguments: dict[str, Any], _call_id: str) -> bool:
    """Mark a tool, as its `needs_approval`: `mail` is approved once its user has granted what `Tool/mail` declares."""
    return True


async def run_openai_agents(
    broker: Broker, agent: Any, turn: Turn, prompt: Any, *, private_links: bool = False, **more: Any
) -> RunAnswer:
    """Run an agent in a turn, its context, as `Runner.run` does with `more`. A run that pauses is kept for
    `resume_openai_agents`."""
    result = await Runner.run(agent, prompt, context=turn, **more)
    return await kept(broker, turn, await _step(broker, agent, turn, result, private_links=private_links))


def resume_openai_agents(
    broker: Broker, name: str, agent: Any, *, deliver: DeliversAnswer, other: TakesOther | None = None
) -> AbstractAsyncContextManager[None]:
    """Resume the runs of an agent, `name` in its turns, while the block runs. `deliver` gets each turn and answer."""

    async def go_on(turn: Turn, state: Any, _end: PauseEnd) -> Reached:
        whole = await RunState.from_json(agent, state["run"], context_override=turn)
        return await _step(broker, agent, turn, whole, private_links=state["privateLinks"])

    return resume_kept(broker, name, go_on, deliver=deliver, other=other)


async def _step(broker: Broker, agent: Any, turn: Turn, run: Any, *, private_links: bool) -> Reached:
    """Approve or reject the calls that wait, and run on, until there is an answer or consent is missing."""
    while True:
        state = run if isinstance(run, RunState) else run.to_state()
        pauses = {}
        for item in state.get_interruptions():
            if not _is_ours(item):
                raise ValueError("a step waits for consent and for another approval: give their tools to two agents")
            missing = await consent_for(broker, turn, item.tool_name, private_links=private_links)
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
        run = await Runner.run(agent, state)


def _is_ours(item: Any) -> bool:
    tools = [each for each in item.agent.tools if isinstance(each, FunctionTool) and each.name == item.tool_name]
    return any(each.needs_approval is consent_first for each in tools)
