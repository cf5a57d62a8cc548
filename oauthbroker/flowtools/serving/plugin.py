"""The plug-in in a running broker: routes, background work, findings, and runs that go on by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from oauthbroker import Broker, BrokerError, Code
from oauthbroker.flowtools.deployment.versions import versions_of
from oauthbroker.flowtools.running.auditing import audit_from_threads
from oauthbroker.flowtools.running.ports import AGENT
from oauthbroker.flowtools.running.resuming import doing, resuming
from oauthbroker.flowtools.serving.callers import FlowCallers
from oauthbroker.flowtools.serving.http_calls import HttpCalls
from oauthbroker.flowtools.serving.pages import FlowPages
from oauthbroker.flowtools.serving.schedules import SCHEDULE_SECONDS, QueueEvents, look_at_schedules
from oauthbroker.flowtools.serving.service import FlowService, ports_of
from oauthbroker.flowtools.serving.webhooks import Webhooks
from oauthbroker.plugins import Background, PluginFinding, PluginResources, PublicWeb, RunningPlugin, SystemClock

LOOK_SECONDS: Final = 2.0
_RETENTION_SECONDS: Final = 3600.0


@asynccontextmanager
async def open_plugin(broker: Broker, resources: PluginResources) -> AsyncIterator[RunningPlugin]:
    """Serve the flow tools of a FlowService. Without one, the plug-in has its commands alone."""
    if not resources.resources:
        yield RunningPlugin()
        return
    broker.events.check_polled(AGENT)  # resuming needs these events
    async with AsyncExitStack() as stack:
        web = await stack.enter_async_context(PublicWeb.of(broker.bundle.settings))
        service = _service(broker, resources)
        stack.push_async_callback(service.close)
        webhooks, events = Webhooks(service, broker), QueueEvents(service, broker)
        stack.push_async_callback(events.close)
        await service.look()
        calls = HttpCalls(service, FlowCallers(service.spec, broker, web, clock=SystemClock()))
        await stack.enter_async_context(doing(_go_on(broker, service)))
        yield RunningPlugin(
            routes=[*calls.routes(), *webhooks.routes()],
            background=[
                Background(name="flows", seconds=LOOK_SECONDS, work=service.look),
                Background(name="retention", seconds=_RETENTION_SECONDS, work=service.forget),
                Background(name="queues", seconds=LOOK_SECONDS, work=events.look),
                Background(name="schedules", seconds=SCHEDULE_SECONDS, work=partial(look_at_schedules, service)),
                Background(name="webhooks", seconds=LOOK_SECONDS, work=webhooks.look),
            ],
            findings=lambda: [*service.problems, *_reloaded(broker, resources), *webhooks.problems, *events.problems],
            pages=FlowPages(service).declared(),
        )


def _reloaded(broker: Broker, opened: PluginResources) -> Iterator[PluginFinding]:
    """Tell that a reloaded configuration has changed the service, which is opened once, or forwards its events."""
    if broker.bundle.plugins.get("flowtools") != opened:
        text = "The FlowService has changed since the start, and the old one still serves."
        yield PluginFinding(code="restartNeeded", text=text, hint="Restart the broker.")
    if broker.bundle.forwards(AGENT):
        text = f"The events of {AGENT} are forwarded, and runs that wait for a user may not go on."
        yield PluginFinding(code="agentForwarded", text=text, hint=f"Take {AGENT} out of the Forwarder.")


def _service(broker: Broker, resources: PluginResources) -> FlowService:
    (resource,), settings = resources.resources, broker.bundle.settings
    if ("database",) not in resource.secrets and settings.store_url_env:
        note = "a broker whose store is in PostgreSQL needs FlowService.spec.database: its hosts share one"
        raise BrokerError(Code.CONFIG_INVALID, note=note)
    versions, store = versions_of(broker, audit_from_threads(broker.audit)), Path(settings.store_root)
    try:
        folder, ports = resources.folder or Path(), ports_of(resource, broker)
        return FlowService(resource, folder, store=store, ports=ports, versions=versions)
    except ValueError as error:
        note = str(error)
    raise BrokerError(Code.CONFIG_INVALID, note=note)


async def _go_on(broker: Broker, service: FlowService) -> None:
    """Go on with waiting and abandoned runs, from the first answer of the database."""
    await service.ready.wait()
    while True:
        with suppress(BrokerError):  # a reload forwards our events: a finding says so
            async with resuming(broker, service.runs, service.flow_of, pool=service.pool):
                await asyncio.Event().wait()
        await asyncio.sleep(LOOK_SECONDS)
