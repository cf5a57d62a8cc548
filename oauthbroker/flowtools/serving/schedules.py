"""Schedules: one run in the cluster for each firing, by the database's clock. The last firing of each tool is a row. It
changes in the transaction that stores the run, so a kill loses none and doubles none, and no process leads."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from cronsim import CronSim
from sqlalchemy import Column, Connection, Double, Table, Text
from sqlalchemy.exc import DBAPIError, IntegrityError

from oauthbroker import BrokerError
from oauthbroker.flowtools.entities.database import Database, is_lost_race, iso
from oauthbroker.flowtools.running.contract import FlowRuns
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.journal import META, RunRecord
from oauthbroker.flowtools.serving.service import FlowService, event_key
from oauthbroker.flowtools.specification.failures import FlowFailed
from oauthbroker.flowtools.specification.spec import FlowTool
from oauthbroker.flowtools.specification.triggers import Trigger

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


class _NotDueAnymore(Exception):
    """Another process has taken the firing."""


class Schedules:
    """Starts the runs of cron triggers."""

    def __init__(self, service: FlowService) -> None:
        self._service = service

    async def look(self) -> None:
        """Start the runs that are due. A tool that fails keeps no other one back."""
        for flow in list(self._service.serving.values()):
            if flow.tool.trigger.type == "cron" and not flow.withdrawn:
                await self._start(flow)

    async def _start(self, flow: ReadyFlow) -> None:
        service = self._service
        try:
            run = await service.work(lambda: fire(service.database, service.runs, flow, service.service_actor(flow)))
        except BrokerError as error:
            _LOG.error("no look at the schedule of %s: %s", flow.tool.name, error.code.value)
            return
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
