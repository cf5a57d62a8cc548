"""Events of the broker's queue: each starts one run, by the event's id. It is settled when its run is stored. One that
no run takes is delivered again, and is a dead letter after the attempts of the broker's limits."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from oauthbroker import BrokerError
from oauthbroker.flowtools.running.ports import AGENT
from oauthbroker.flowtools.serving.service import FlowService, event_key, finding
from oauthbroker.flowtools.specification.failures import FlowFailed
from oauthbroker.plugins import PluginFinding

if TYPE_CHECKING:
    from oauthbroker import Broker

_LOG: Final = logging.getLogger("oauthbroker.flowtools")
_PATIENCE: Final = 20  # tries of an event while the database is away, before it counts as an attempt
_BETWEEN: Final = 2.0  # seconds
_OTHER_AGENT: Final = "Name another agent in the trigger."


class QueueEvents:
    """Consumes the events of queue triggers, as long as their tools serve."""

    def __init__(self, service: FlowService, broker: Broker) -> None:
        self._service, self._broker = service, broker
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.problems: tuple[PluginFinding, ...] = ()

    async def look(self) -> None:
        """Follow the tools that serve. An agent has one consumer: two tools of one agent get no event."""
        flows = [each for each in self._service.serving.values() if not each.withdrawn]
        tools = [each.tool for each in flows if each.tool.trigger.type == "queue"]
        agents = {each.name: each.trigger.agent or each.name for each in tools}
        taken = Counter([*agents.values(), AGENT])
        wanted = {agent: name for name, agent in agents.items() if taken[agent] == 1}
        ended = {agent: task for agent, task in self._tasks.items() if task.done()}
        stopped = [_stopped(wanted[agent], task) for agent, task in ended.items() if agent in wanted]
        same = [
            finding("sameAgent", f"Another tool has the agent of {name}, and its events wait.", _OTHER_AGENT)
            for name, agent in agents.items()
            if taken[agent] > 1
        ]
        self.problems = (*same, *stopped)
        for agent, task in list(self._tasks.items()):
            if agent not in wanted or task.done():
                await self._end(self._tasks.pop(agent))
        for agent in wanted.keys() - self._tasks.keys():
            self._tasks[agent] = asyncio.create_task(self._consume(agent))

    async def close(self) -> None:
        for task in self._tasks.values():
            await self._end(task)

    async def _end(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _consume(self, agent: str) -> None:
        async def take(event: Any) -> None:
            await self._take(agent, event.to_json())

        async with self._broker.on_granted(agent, take):
            await asyncio.Event().wait()

    async def _take(self, agent: str, event: dict[str, Any]) -> None:
        flows = self._service.serving.values()
        named = (each for each in flows if each.tool.trigger.type == "queue")
        flow = next(each for each in named if (each.tool.trigger.agent or each.tool.name) == agent)
        for tries in range(_PATIENCE):
            try:
                await self._service.accept(flow, event["payload"], event_key("queue", event["eventId"]))
            except FlowFailed as error:
                _LOG.error("%s takes no event: %s", flow.tool.name, error.code)
                raise
            except BrokerError as error:
                if not error.code.retryable or tries + 1 == _PATIENCE:
                    raise
                await asyncio.sleep(_BETWEEN)
            else:
                return


def _stopped(tool: str, consumer: asyncio.Task[None]) -> PluginFinding:
    """Report a consumer that has ended. It is started again at each look."""
    error = None if consumer.cancelled() else consumer.exception()
    word = error.code.value if isinstance(error, BrokerError) else type(error).__name__
    text = f"The events of {tool} cannot be taken: {word}."
    return finding("queueStopped", text, "See the page of errors.")
