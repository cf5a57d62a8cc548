"""LangGraph and LangChain: a middleware interrupts the graph until the user has consented."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphInterrupt
from langgraph.types import Command, interrupt

from oauthbroker import AuthorizationRequired, Broker, InjectionError, Turn
from oauthbroker.integrations.consent import Missing, consent_for, lacked
from oauthbroker.integrations.paused_runs import PausedRun, PausedRuns, pause, shown
from oauthbroker.integrations.resuming import PauseEnd, Streams, TakesOther, resume, streamed
from oauthbroker.plugins import Bounded, wait_on

MOST_STEPS: Final = 1024
MODES: Final = ["updates", "messages"]
Handler = Callable[[Any], Awaitable[Any]]
Delivers = Callable[[Turn, dict[str, Any]], Awaitable[None]]


class OAuthMiddleware(AgentMiddleware[Any, Turn, Any]):
    """Interrupts a graph before a tool whose user has to consent: a tool `mail` needs what `Tool/mail` declares.

    The graph's context is the Turn; its checkpointer is durable. Parallel calls share one interrupt for each
    connection. Its value is `{authorizationUrl, message, sessionId}`. Make it in the broker's event loop: a synchronous
    call of the graph asks the broker there, from a thread of its own.
    """

    def __init__(self, broker: Broker, *, private_links: bool = False) -> None:
        super().__init__()
        self._broker, self._private_links = broker, private_links
        self._leaders = Bounded[tuple[str, str, str], str](MOST_STEPS)
        self._loop = _loop()

    async def missing(self, request: Any) -> Missing:
        """Return the consent that a call lacks, as `consent_for` does."""
        turn, name = request.runtime.context, request.tool_call["name"]
        return await consent_for(self._broker, turn, name, private_links=self._private_links)

    async def awrap_tool_call(self, request: Any, handler: Handler) -> Any:
        while True:
            missing = await self.missing(request)
            try:
                if missing is None:
                    return await handler(request)
            except InjectionError as error:
                missing = await lacked(self._broker, error)
            if isinstance(missing, str):
                return _refusal(request.tool_call, missing)
            await self._keep(request, missing)
            _interrupt(missing)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        while True:  # the handler runs in this thread: if each call took a second one, all could wait for one
            missing = self.wait(self.missing(request))
            try:
                if missing is None:
                    return handler(request)
            except InjectionError as error:
                missing = self.wait(lacked(self._broker, error))
            if isinstance(missing, str):
                return _refusal(request.tool_call, missing)
            self.wait(self._keep(request, missing))
            _interrupt(missing)

    def wait(self, asked: Coroutine[Any, Any, Any]) -> Any:
        """Do something in the broker's loop for a synchronous call. Raises RuntimeError in its own thread."""
        if self._loop is None or _loop() is self._loop:
            asked.close()
            raise RuntimeError(
                "a synchronous call waits for the broker's event loop: make the middleware in that loop, and call the "
                "graph in another thread, as in asyncio.to_thread(graph.invoke, ...)"
            )
        return wait_on(self._loop, asked, 660.0)  # no call with a token lasts longer

    async def _keep(self, request: Any, asked: AuthorizationRequired) -> None:
        """Keep the pause, unless another call of this step asks the same."""
        thread = request.runtime.config["configurable"]["thread_id"]
        step = (thread, str(request.state["messages"][-1].id), asked.auth_session_id)
        call_id = request.tool_call["id"]
        if self._leaders.get(step, call_id) != call_id:
            raise GraphInterrupt(())  # another call of this step asks: this one runs again with it
        self._leaders.keep(step, call_id)
        await pause(self._broker, request.runtime.context, asked, run=thread)


def _interrupt(asked: AuthorizationRequired) -> None:
    """Leave the node. Return only if it was resumed and the user has to consent to another app."""
    while interrupt(shown(asked)) != asked.auth_session_id:
        pass  # an earlier interrupt of this call, for another session


def _refusal(call: Any, sentence: str) -> ToolMessage:
    return ToolMessage(sentence, tool_call_id=call["id"], name=call["name"], status="error")


def _loop() -> asyncio.AbstractEventLoop | None:
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


def resume_langgraph(
    broker: Broker, agent: str, graph: Any, *, deliver: Delivers, other: TakesOther = None,
    stream: Streams = None, synchronous: bool = False,
) -> AbstractAsyncContextManager[None]:  # fmt: skip
    """Resume the threads of a graph while the block runs. `deliver` gets each turn and its answer or next interrupt,
    and `stream` the chunks of MODES meanwhile. `synchronous`: a graph whose checkpointer has no await, in a thread."""

    async def state_of(config: Any) -> Any:
        return await (asyncio.to_thread(graph.get_state, config) if synchronous else graph.aget_state(config))

    async def go_on(run: PausedRun, ended: PauseEnd) -> None:
        config: Any = {"configurable": {"thread_id": run.name}}
        state = await state_of(config)
        found = [each for each in state.interrupts if isinstance(each.value, dict)]
        ours = [each.id for each in found if each.value.get("sessionId") == ended.session_id]
        if not ours and run.state != "begun":
            if state.next:
                raise LookupError("the run has not paused yet")
            return  # the conversation went on without it
        if ours or state.next:
            await PausedRuns(broker).keep(run, "begun")
            command = Command(resume=dict.fromkeys(ours, ended.session_id)) if ours else None
            given = {"input": command, "config": config, "context": run.turn, "stream_mode": MODES}
            chunks = _in_thread(graph, given) if synchronous else graph.astream(**given)
            async for _ in streamed(chunks, run.turn, stream):
                pass
            state = await state_of(config)
        # Else it ended before, but its answer may not have been delivered.
        waits = {"__interrupt__": list(state.interrupts)} if state.interrupts else {}
        await deliver(run.turn, {**state.values, **waits})

    return resume(broker, agent, go_on, other=other)


async def _in_thread(graph: Any, given: dict[str, Any]) -> AsyncIterator[Any]:
    """Yield the chunks of a graph without await, in a thread of its own: asyncio's pool may be full of such runs."""
    end = object()
    step: Any = partial(copy_context().run, next, graph.stream(**given), end)
    pool, loop = ThreadPoolExecutor(1), asyncio.get_running_loop()
    try:
        while (chunk := await loop.run_in_executor(pool, step)) is not end:
            yield chunk
    finally:
        pool.shutdown(wait=False)
