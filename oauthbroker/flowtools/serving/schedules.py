"""The triggers that no caller waits for: schedules, and events of the broker's queue. A schedule has one run in the
cluster for each firing, by the database's clock. The last firing of each tool is a row. It changes in the transaction
that stores the run, so a kill loses none and doubles none, and no process leads. An event starts one run, by its id. It
is settled when its run is stored. One that no run takes is delivered again, and is a dead letter after the attempts of
the broker's limits."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from cronsim import CronSim
from sqlalchemy import Column, Connection, Double, Table, Text
from sqlalchemy.exc import DBAPIError, IntegrityError

from oauthbroker import Broker, BrokerError
from oauthbroker.flowtools.entities.database import Database, is_lost_race, iso
from oauthbroker.flowtools.running.contract import FlowRuns
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.journal import META, RunRecord
from oauthbroker.flowtools.running.ports import AGENT
from oauthbroker.flowtools.serving.service import FlowService, event_key, finding
from oauthbroker.flowtools.specification.failures import FlowFailed
from oauthbroker.flowtools.specification.spec import FlowTool
from oauthbroker.flowtools.specification.triggers import Trigger
from oauthbroker.plugins import PluginFinding

_LOG: Final = logging.getLogger("oauthbroker.flowtools")
SCHEDULE_SECONDS: Final = 5.0  # between two looks
LATE_SECONDS: Final = 90.0  # a firing that is older was missed
FIRED: Final = Table(
    "flow_schedule",
    META,
    Column("tool", Text, primary_key=True),
    Column("schedule", Text, nullable=False),
    Column("last", Double, nullable=False),
)
_PATIENCE: Final = 20  # tries of an event while the database is away, before it counts as an attempt
_BETWEEN: Final = 2.0  # seconds
_OTHER_AGENT: Final = "Name another agent in the trigger."


class _NotDueAnymore(Exception):
    """Another process has taken the firing."""


async def look_at_schedules(service: FlowService) -> None:
    """Start the runs of schedules that are due. A tool that fails keeps no other one back."""
    for flow in service.taking("cron"):
        try:
            run = await service.work(partial(fire, service.database, service.runs, flow, service.service_actor(flow)))
        except BrokerError as error:
            _LOG.error("no look at the schedule of %s: %s", flow.tool.name, error.code.value)
            continue
        if run is not None:
            service.spawn(flow, run)


def fire(database: Database, runs: FlowRuns, flow: ReadyFlow, actor: Any) -> RunRecord | None:
    """Store the run of a firing that is due; None if none is. Blocks."""
    tool, trigger, latest = flow.tool, flow.tool.trigger, None
    try:
        now, last = _begun(database, flow.tool)
        latest = latest_firing(trigger, now)
        if latest is None or latest <= last:
            return None
        if now - latest > LATE_SECONDS and trigger.missed == "skip":
            _pass_over(database, tool, latest)
            return None
        data = {"scheduledAt": iso(latest)} if "scheduledAt" in tool.input.get("properties", {}) else {}
        event = event_key("cron", str(latest))
        return runs.accept(flow, data, actor, event=event, claim=lambda each: _claim(each, tool, latest))
    except _NotDueAnymore:
        return None
    except DBAPIError as error:
        if not (is_lost_race(error) or isinstance(error, IntegrityError)):
            raise
        return None  # to another process; the next look comes
    except FlowFailed as error:
        _LOG.error("the schedule of %s: refused, %s", tool.name, error.code)
    if latest is not None:
        _pass_over(database, tool, latest)  # it would be refused at each look
    return None


def latest_firing(trigger: Trigger, now: float) -> float | None:
    """Return the time of the last firing up to now; None if there was none."""
    minute = datetime.fromtimestamp(now // 60 * 60 + 60, ZoneInfo(trigger.time_zone))
    found = next(CronSim(str(trigger.schedule), minute, reverse=True), None)
    return None if found is None else found.timestamp()


def _begun(database: Database, tool: FlowTool) -> tuple[float, float]:
    """Return the time, and that of the last firing. A tool that is new, or has another schedule, begins now."""
    schedule = _written(tool.trigger)
    with database.transaction() as connection:
        now = database.now(connection)
        wanted = sa.select(FIRED.c.last).where(FIRED.c.tool == tool.name, FIRED.c.schedule == schedule)
        last: float | None = connection.execute(wanted).scalar_one_or_none()
        if last is None:
            connection.execute(sa.delete(FIRED).where(FIRED.c.tool == tool.name))
            connection.execute(sa.insert(FIRED).values(tool=tool.name, schedule=schedule, last=now))
    return now, now if last is None else last


def _pass_over(database: Database, tool: FlowTool, latest: float) -> None:
    """Take a firing without a run."""
    with suppress(_NotDueAnymore), database.transaction() as connection:
        _claim(connection, tool, latest)


def _claim(connection: Connection, tool: FlowTool, latest: float) -> None:
    """Take a firing in an open transaction. Raises _NotDueAnymore if another process has."""
    mine = FIRED.c.tool == tool.name, FIRED.c.schedule == _written(tool.trigger), FIRED.c.last < latest
    if connection.execute(sa.update(FIRED).where(*mine).values(last=latest)).rowcount != 1:
        raise _NotDueAnymore


def _written(trigger: Trigger) -> str:
    return f"{trigger.schedule} {trigger.time_zone}"


class QueueEvents:
    """Consumes the events of queue triggers, as long as their tools serve."""

    def __init__(self, service: FlowService, broker: Broker) -> None:
        self._service, self._broker = service, broker
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.problems: tuple[PluginFinding, ...] = ()

    async def look(self) -> None:
        """Follow the tools that serve. An agent has one consumer: two tools of one agent get no event."""
        agents = {each.tool.name: _agent_of(each.tool) for each in self._service.taking("queue")}
        taken = Counter([*agents.values(), AGENT])
        wanted = {agent: name for name, agent in agents.items() if taken[agent] == 1}
        stopped = [_stopped(wanted[each], task) for each, task in self._tasks.items() if each in wanted and task.done()]
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
        named = [each for each in self._service.serving.values() if each.tool.trigger.type == "queue"]
        there = [each for each in named if _agent_of(each.tool) == agent]
        flow = min(there, key=lambda each: each.withdrawn)  # a tool may follow a withdrawn one
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


def _agent_of(tool: FlowTool) -> str:
    return tool.trigger.agent or tool.name


def _stopped(tool: str, consumer: asyncio.Task[None]) -> PluginFinding:
    """Report a consumer that has ended. It is started again at each look."""
    error = None if consumer.cancelled() else consumer.exception()
    word = error.code.value if isinstance(error, BrokerError) else type(error).__name__
    text = f"The events of {tool} cannot be taken: {word}."
    return finding("queueStopped", text, "See the page of errors.")
