"""The service: deployed versions that can run, and their runs on one database. Triggers, pages and tools share it. A
version that cannot run, and a database that is away, are findings: the broker serves, and goes on by itself."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from oauthbroker import Broker, BrokerError, Code
from oauthbroker.flowtools.deployment.versions import FlowVersions, same_route, same_secret
from oauthbroker.flowtools.entities.database import Database, apply
from oauthbroker.flowtools.entities.definition import entities_in
from oauthbroker.flowtools.running.approvals import RunLine
from oauthbroker.flowtools.running.contract import FlowRuns
from oauthbroker.flowtools.running.erasing import expire
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.journal import RunRecord
from oauthbroker.flowtools.running.lifecycle import again
from oauthbroker.flowtools.running.mail import SmtpAdapter
from oauthbroker.flowtools.running.ports import Ports, with_sandbox
from oauthbroker.flowtools.running.requests import BrokerRequests
from oauthbroker.flowtools.serving.callers import actor_of
from oauthbroker.flowtools.serving.data import database_url
from oauthbroker.flowtools.serving.kinds import FlowServiceSpec, installed_adapter
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.flowtools.specification.source import FlowRefused, one_of
from oauthbroker.plugins import PluginFinding, PluginResource, on_thread

_LOG: Final = logging.getLogger("oauthbroker.flowtools")
THREADS: Final = 12  # of runs; the pool of connections has 15
WAITING: Final = 100  # calls that wait for a thread; more are refused
_MOST_FINDINGS, _MOST_TEXT = 20, 280
T = TypeVar("T")


class FlowService:
    """One service of a running broker. Its methods that block are called from its threads."""

    def __init__(
        self, resource: PluginResource, folder: Path, *, store: Path, ports: Ports, versions: FlowVersions
    ) -> None:
        """Raises ValueError for a database that can never work."""
        self.spec: FlowServiceSpec = resource.spec
        self.versions = versions
        self._own = ("database",) not in resource.secrets
        if self._own:
            store.parent.mkdir(parents=True, exist_ok=True)
        self.database = Database(database_url(resource, store))
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="flow")
        self.ready = asyncio.Event()
        self.serving: Mapping[str, ReadyFlow] = {}
        self.problems: tuple[PluginFinding, ...] = ()
        self._entities, self._ports = entities_in(folder / each for each in self.spec.entities), ports
        self._runs: FlowRuns | None = None
        self._kept: dict[tuple[str, int], ReadyFlow] = {}
        self._calls, self._tasks = 0, set[asyncio.Task[None]]()

    @property
    def runs(self) -> FlowRuns:
        """Raises `storeUnavailable` until the database has answered once."""
        if self._runs is None:
            raise BrokerError(Code.STORE_UNAVAILABLE, note="the database of flows")
        return self._runs

    def flow(self, reference: str) -> ReadyFlow:
        """Return a version by `NAME@VERSION`, or the one of NAME that serves now; a withdrawn one refuses new calls.
        Blocks. Raises `notFound` if it is not deployed, `configInvalid` if it cannot run, and `storeUnavailable`."""
        runs = self.runs
        try:
            name, number = self.versions.named(reference)
            if (name, number) not in self._kept:
                deployed = self.versions.deployed(f"{name}@{number}")
                flow = runs.ready(deployed.tool, deployed.policies)
                self._refuse_identity(flow)
                self._kept[name, number] = flow
            return replace(self._kept[name, number], withdrawn=self.versions.withdrawn(name, number) is not None)
        except FlowRefused as refused:
            raise BrokerError(Code.CONFIG_INVALID, note=_short(str(refused.problems[0]))) from None
        except BrokerError as error:
            if error.code is not Code.REQUEST_INVALID:
                raise
        raise BrokerError(Code.NOT_FOUND)

    def flow_of(self, run: RunRecord | RunLine) -> ReadyFlow | None:
        """Return the flow of a run; None if its version cannot run here. Blocks."""
        try:
            return self.flow(f"{run.tool}@{run.version}")
        except BrokerError:
            return None

    def taking(self, trigger: str) -> list[ReadyFlow]:
        """Return the flows with this trigger that take new calls."""
        flows = self.serving.values()
        return [each for each in flows if each.tool.trigger.type == trigger and not each.withdrawn]

    def service_actor(self, flow: ReadyFlow) -> Actor | None:
        """Return the service identity that a tool runs as; None for a public tool without one."""
        name = flow.tool.run_as
        known = self.spec.services[name] if name else None
        return actor_of(f"service:{name}", known.roles, known.subjects) if known else None

    async def accept(self, flow: ReadyFlow, data: Any, event: str) -> RunRecord:
        """Store the run of an event durably, as the tool's service identity; it goes on behind this call. A killed
        process leaves it to those that resume. Raises FlowFailed, and as `work`."""
        run = await self.work(lambda: self.runs.accept(flow, data, self.service_actor(flow), event=event))
        self.spawn(flow, run)
        return run

    def spawn(self, flow: ReadyFlow, run: RunRecord) -> None:
        """Let a stored run go on. One that cannot now is found by those that resume."""

        async def go_on() -> None:
            try:
                await self.work(lambda: self.runs.go_on(flow, run))
            except BrokerError:
                pass
            except Exception as error:  # noqa: BLE001  (its text may hold values of the run)
                _LOG.error("the run %s did not go on: %s", run.id, type(error).__name__)

        task = asyncio.create_task(go_on())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def work(self, work: Callable[[], T]) -> T:
        """Do work on a thread, to its end. Raises `serverBusy` if too many wait, and `storeUnavailable`."""
        if self._calls >= THREADS + WAITING:
            raise BrokerError(Code.SERVER_BUSY, retry_after_seconds=1)
        self._calls += 1
        try:
            return await on_thread(work, pool=self.pool)
        except SQLAlchemyError as error:
            name = type(error).__name__
        finally:
            self._calls -= 1
        _LOG.error("the database of flows: %s", name)
        raise BrokerError(Code.STORE_UNAVAILABLE, note="the database of flows")

    async def look(self) -> None:
        """Follow deployments and activations, and the database. Never raises."""
        self.serving, self.problems = await on_thread(self._look, pool=self.pool)
        if self._runs is not None:
            self.ready.set()

    async def forget(self) -> None:
        """Take input, result and steps from the runs whose retention is over."""
        days = self.spec.retention_days
        while self._runs is not None and await self.work(lambda: expire(self.database, days)) > 0:
            pass

    async def close(self) -> None:
        """Wait for the runs that are under way: their requests need the broker."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self.pool.shutdown)
        self.database.engine.dispose()

    def _look(self) -> tuple[Mapping[str, ReadyFlow], tuple[PluginFinding, ...]]:
        found, problems = dict[str, ReadyFlow](), list[PluginFinding]()
        try:
            self._connect()
            names = self.versions.names()
        except SQLAlchemyError as error:
            return self.serving, (finding("databaseAway", f"The database: {type(error).__name__}.", "Start it."),)
        except (ValueError, BrokerError) as error:
            return self.serving, (finding("notServing", str(error), "Apply the changes, or correct the entities."),)
        for name in names:
            try:
                found[name] = self.flow(name)
            except BrokerError as error:
                problems.append(finding("toolCannotRun", f"{name}: {error.note}", "Run `oauthbroker flow versions`."))
        for pair in same_secret(flow.tool for flow in found.values() if not flow.withdrawn):
            for one, other in (pair, pair[::-1]):
                found.pop(one.name, None)
                text = f"{one.name}: its webhook has the secret of {other.name}, and takes no event."
                problems.append(finding("sameSecret", text, "Name another secret, or declare sharedSecret in both."))
        for one, other in same_route(flow.tool for flow in found.values() if not flow.withdrawn):
            text = f"{one.name} and {other.name} have one method and path, and neither is served there."
            problems.append(finding("sameRoute", text, "Activate other versions of them."))
        return found, tuple(problems[:_MOST_FINDINGS])

    def _connect(self) -> None:
        """Open the runs once; later only ask whether the database is there."""
        if self._runs is not None:
            with self.database.transaction() as connection:
                self.database.now(connection)
            return
        if self._own if self.spec.apply_changes is None else self.spec.apply_changes:
            again(apply)(self.database, self._entities)
        self._runs = FlowRuns(self.database, self._entities, self._ports, audit=self.versions.audit)

    def _refuse_identity(self, flow: ReadyFlow) -> None:
        """Refuse a tool that its trigger cannot call: its service identity is missing or unknown."""
        tool = flow.tool
        if tool.run_as is not None and tool.run_as not in self.spec.services:
            known = sorted(self.spec.services)
            hint = f"{one_of(tool.run_as, known)}; or declare it" if known else "declare it in the FlowService"
            raise FlowRefused([tool.source.problem(("auth", "runAs"), "no declared service", hint)])
        needs = tool.auth_required or bool(tool.allowed_roles)
        if tool.trigger.type != "http" and needs and tool.run_as is None:
            hint = "name a service of the FlowService"
            raise FlowRefused([tool.source.problem(("auth", "runAs"), "missing", hint)])


def event_key(trigger: str, event: str) -> str:
    return f"{trigger}:{hashlib.sha256(event.encode()).hexdigest()}"


def finding(code: str, text: str, hint: str) -> PluginFinding:
    """Return a finding whose text is not too long: names of tools and agents are their authors'."""
    return PluginFinding(code=code, text=_short(text), hint=hint)


def _short(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..."


def ports_of(resource: PluginResource | None, broker: Broker) -> Ports:
    """Return the ports of a FlowService, without one those of a broker alone. Call it on the broker's event loop.
    Raises ValueError for a bad adapter."""
    if resource is None:
        return Ports(requests=BrokerRequests(broker))
    spec, secrets = resource.spec, resource.secrets
    payments = {
        name: installed_adapter("payments", each, secrets.get(("payments", name, "secret")))
        for name, each in spec.payments.items()
    }
    sms = installed_adapter("sms", spec.sms, secrets.get(("sms", "secret"))) if spec.sms is not None else None
    email = SmtpAdapter(spec.mail, secrets.get(("mailPassword",))) if spec.mail is not None else None
    ports = Ports(email=email, sms=sms, payments=payments, requests=BrokerRequests(broker))
    return with_sandbox(ports) if spec.sandbox else ports
