"""LangGraph and LangChain: a middleware interrupts the graph until the user has consented."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphInterrupt
from langgraph.types import Command, interrupt

from oauthbroker import AuthorizationRequired, Broker, InjectionError, Turn
from oauthbroker.integrations.consent import consent_for
from oauthbroker.integrations.paused_runs import PausedRun, PausedRuns, pause, shown
from oauthbroker.integrations.resuming import PauseEnd, TakesOther, resume

MOST_STEPS: Final = 1024
Handler = Callable[[Any], Awaitable[Any]]
Delivers = Callable[[Turn, dict[str, Any]], Awaitable[None]]


class OAuthMiddleware(AgentMiddleware[Any, Turn, Any]):
    """Interrupts a graph before a tool whose user has to consent: a tool `mail` needs what `Tool/mail` declares.

    The graph's context is the Turn; its checkpointer is durable. Parallel calls share one interrupt for each app and
    subject. Its value is `{authorizationUrl, message, sessionId}`.
    """

    def __init__(self, broker: Broker, *, private_links: bool = False) -> None:
        super().__init__()
        self._broker, self._private_links = broker, private_links
        self._leaders: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    async def awrap_tool_call(self, request: Any, handler: Handler) -> Any:
        turn, call = request.runtime.context, request.tool_call
        while True:
            missing = await consent_for(self._broker, turn, call["name"], private_links=self._private_links)
            try:
                if missing is None:
                    return await handler(request)
            except InjectionError as error:  # the provider refused the token, or the broker the request
                missing = error.result if isinstance(error.result, AuthorizationRequired) else error.for_model
            if isinstance(missing, str):
                return ToolMessage(missing, tool_call_id=call["id"], name=call["name"], status="error")
            await self._interrupt(request, missing)

    async def _interrupt(self, request: Any, asked: AuthorizationRequired) -> None:
        """Leave the node. Return only if it was resumed and the user has to consent to another app."""
        thread = request.runtime.config["configurable"]["thread_id"]
        step = (thread, str(request.state["messages"][-1].id), asked.auth_session_id)
        call_id = request.tool_call["id"]
        if self._leaders.setdefault(step, call_id) != call_id:
            raise GraphInterrupt(())  # another call of this step asks: this one runs again with it
        if len(self._leaders) > MOST_STEPS:
            self._leaders.popitem(last=False)
        await pause(self._broker, request.runtime.context, asked, run=thread)
        while interrupt(shown(asked)) != asked.auth_session_id:
            pass  # an earlier interrupt of this call, for another session


def resume_langgraph(
    broker: Broker, agent: str, graph: Any, *, deliver: Delivers, other: TakesOther | None = None
) -> AbstractAsyncContextManager[None]:
    """Resume the threads of a graph while the block runs. `deliver` gets each turn and its answer or next interrupt."""

    async def go_on(run: PausedRun, ended: PauseEnd) -> None:
        config: Any = {"configurable": {"thread_id": run.name}}
        state = await graph.aget_state(config)
        found = [each for each in state.interrupts if isinstance(each.value, dict)]
        ours = [each.id for each in found if each.value.get("sessionId") == ended.session_id]
        if not ours and run.state != "begun":
            if state.next:
                raise LookupError("the run has not paused yet")
            return  # the conversation went on without it
        if ours or state.next:
            await PausedRuns(broker).keep(run, "begun")
            command = Command(resume=dict.fromkeys(ours, ended.session_id)) if ours else None
            result = await graph.ainvoke(command, config, context=run.turn)
        else:
            result = state.values  # it ended, but its answer may not have been delivered
        await deliver(run.turn, result)

    return resume(broker, agent, go_on, other=other)
