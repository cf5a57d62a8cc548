"""Open the plug-ins of a broker, run their background work, and close them. A fault in their code is logged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

from oauthbroker.audit.plugin_entry import PluginAuditEntry, PluginAuditTypes
from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.errors import BrokerError, Code, ConfigCauseError
from oauthbroker.core.foreign_code import ForeignFault, MisuseError, foreign_code, why_of
from oauthbroker.core.lifecycle import Pass
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.plugin_resources import PluginResources
from oauthbroker.observability.held_locks import HeldLocks
from oauthbroker.observability.logging import Log
from oauthbroker.observability.repeats import Repeats
from oauthbroker.observability.transcript_scrubber import Scrubber
from oauthbroker.plugins.declaration import Plugin
from oauthbroker.plugins.discovery import audit_types_of, declared, named
from oauthbroker.plugins.running_plugin import Background, OpensPlugin, PluginFinding, RunningPlugin, problem_of

OPEN_SECONDS, RELOAD_SECONDS, CLOSE_SECONDS = 30.0, 10.0, 5.0  # the last for all plug-ins together
CANCEL_SECONDS = 2.0
MOST_FINDINGS = 16
_SEE = "Look at the log of the broker and at the documentation of the plug-in."
_ENDED = PluginFinding(code="ended", text="The plug-in has ended by itself.", hint=f"Restart the broker. {_SEE}")
_BEHIND = PluginFinding(
    code="reloadFailed", text="The plug-in has not taken the new configuration.", hint=f"Reload. {_SEE}"
)
_BROKEN = PluginFinding(code="findingsFailed", text="The plug-in's own check fails.", hint=_SEE)


class PluginTask:
    """One plug-in. It is opened and closed in one task of its own, as task groups demand."""

    def __init__(self, name: str, log: Log, clock: Clock) -> None:
        self.name = name
        self.opened = RunningPlugin()
        self._log = log.bind(plugin=name)
        self._held_locks, self._repeats = HeldLocks(clock, self._log), Repeats(clock)
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_behind = False

    async def open(self, opens: OpensPlugin, broker: object, resources: PluginResources) -> None:
        """Open the plug-in. Raises a code, with a note that names the plug-in and holds no text of a foreign
        exception."""
        ready: asyncio.Future[RunningPlugin] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._stay(opens, broker, resources, ready))
        self._task.add_done_callback(partial(self._note_end, ready))
        either: set[asyncio.Future[Any]] = {self._task, ready}
        await asyncio.wait(either, timeout=OPEN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            self._task.cancel()
            raise self._refused(self._task)
        self.opened = ready.result()

    def begin_close(self) -> set[asyncio.Task[None]]:
        """Tell the plug-in to close. Return its task, if it has one."""
        self._closing.set()
        return set() if self._task is None else {self._task}

    def note_not_closed(self) -> None:
        """Log that the plug-in has not closed."""
        self._log.error("a plug-in does not close")

    async def follow(self, resources: PluginResources) -> None:
        """Tell the plug-in of a new configuration."""
        if (follow := self.opened.on_reload) is not None:
            task = asyncio.create_task(_problem(lambda: follow(resources)))
            late = await _still_running({task}, RELOAD_SECONDS)
            problem = "TimeoutError" if late or task.cancelled() else task.result()
            self._is_behind = problem is not None
            if problem is not None:
                self._log.error("a plug-in has not taken the new configuration", error=problem)

    def findings(self, scrubber: Scrubber) -> list[PluginFinding]:
        """Return the findings of the plug-in, and whether it works at all. They are without any token that the broker
        handed out."""
        found = [_BEHIND] if self._is_behind else []
        if self._task is not None and self._task.done():
            found.append(_ENDED)
        try:
            with foreign_code("findings"):
                findings = [] if self.opened.findings is None else [*self.opened.findings()]
                return [*found, *(_scrubbed(each, scrubber) for each in findings[:MOST_FINDINGS])]
        except (ForeignFault, BrokerError) as error:
            why = why_of(error)
        if self._repeats.is_new("findings", why):
            self._log.error("the findings of a plug-in fail", error=why)
        return [*found, _BROKEN]

    async def repeat(self, background: Background) -> None:
        """Do background work until this task is cancelled, also where a pass ignores that. A pass does not wait long
        for a lock of the store."""
        while not _is_cancelled():
            with Pass().lock_budget():
                problem = await _problem(partial(self._pass, background))
            if problem is not None and self._repeats.is_new(background.name, problem):
                self._log.error("background work of a plug-in failed", task=background.name, error=problem)
            await asyncio.sleep(background.seconds)

    async def _pass(self, background: Background) -> None:
        try:
            await background.work()
        except BrokerError as error:
            if not self._held_locks.met(background.name, error):
                raise
        else:
            self._held_locks.worked(background.name)

    async def _stay(
        self, opens: OpensPlugin, broker: object, resources: PluginResources, ready: asyncio.Future[RunningPlugin]
    ) -> None:
        with foreign_code(self.name):
            async with opens(broker, resources) as opened:
                if (problem := problem_of(opened)) is not None:
                    raise BrokerError(Code.CONFIG_INVALID, note=problem)
                ready.set_result(opened)
                await self._closing.wait()

    def _note_end(self, ready: asyncio.Future[RunningPlugin], task: asyncio.Task[None]) -> None:
        """Log the end of a plug-in that was open, and retrieve its exception, which asyncio would print with its
        text."""
        error = None if task.cancelled() else task.exception()
        if ready.done() and (error is not None or not self._closing.is_set()):
            event = "a plug-in fails to close" if self._closing.is_set() else "a plug-in has ended"
            self._log.error(event, error=None if error is None else why_of(error))

    def _refused(self, task: asyncio.Task[None]) -> BrokerError:
        error = task.exception() if task.done() and not task.cancelled() else None
        why, code = f"not within {OPEN_SECONDS:g} s", Code.CONFIG_INVALID
        if isinstance(error, BrokerError):
            why, code = error.note or error.sentence or error.code.value, error.code
        elif task.done():
            why = "cancelled" if error is None else why_of(error)
        what = f"the plug-in {self.name} does not open: {why}"
        return ConfigCauseError(what) if code is Code.CONFIG_INVALID else BrokerError(code, note=what)


@dataclass(slots=True, kw_only=True)
class RunningPlugins:
    """The plug-ins of one broker."""

    config: CurrentConfig
    scrubber: Scrubber
    log: Log
    clock: Clock
    audit_log: AuditWriter
    types: PluginAuditTypes = field(init=False)
    _plugin_tasks: list[PluginTask] = field(default_factory=list)
    _tasks: dict[asyncio.Task[None], tuple[PluginTask, Background]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.types = PluginAuditTypes(self._audit_types)

    def audit(self, entry: PluginAuditEntry) -> None:
        """Write an entry of a plug-in to the audit log, as `Broker.audit`."""
        self.types.check(entry)
        self.audit_log.write(entry, self.clock.now())

    async def open(self, broker: object) -> Mapping[str, RunningPlugin]:
        """Open the plug-ins in their order. Return what each adds. Raises a code with a note that names the plug-in."""
        for plugin in map(declared, self.config.bundle.settings.plugins):
            self.types.register(plugin.name)
            if plugin.open:
                await self._open(plugin, broker)
        return {plugin_task.name: plugin_task.opened for plugin_task in self._plugin_tasks}

    def begin(self) -> None:
        """Begin the background work."""
        self._tasks = {
            asyncio.create_task(plugin_task.repeat(each)): (plugin_task, each)
            for plugin_task in self._plugin_tasks
            for each in plugin_task.opened.background
        }

    def findings(self) -> dict[str, PluginFinding]:
        """Return the findings of all plug-ins by `<plugin>.<code>`."""
        return {
            f"{plugin_task.name}.{each.code}": each
            for plugin_task in self._plugin_tasks
            for each in plugin_task.findings(self.scrubber)
        }

    async def reload(self) -> None:
        """Tell the plug-ins of the configuration that is now in use. Never raises: health and log name a plug-in that
        failed."""
        for plugin_task in self._plugin_tasks:
            await plugin_task.follow(self._resources(plugin_task.name))

    async def close(self) -> None:
        """End the background work, then the plug-ins, the last one first. Together they are waited for as long as
        one."""
        for task in self._tasks:
            task.cancel()
        for task in await _still_running(self._tasks.keys(), CANCEL_SECONDS):
            plugin_task, work = self._tasks[task]
            self.log.error("background work of a plug-in does not end", plugin=plugin_task.name, task=work.name)
        closing, deadline = dict[asyncio.Task[None], PluginTask](), asyncio.get_running_loop().time() + CLOSE_SECONDS
        for plugin_task in reversed(self._plugin_tasks):
            tasks = plugin_task.begin_close()
            closing |= dict.fromkeys(tasks, plugin_task)
            await _wait(tasks, max(0.0, deadline - asyncio.get_running_loop().time()))
        for task in await _still_running(closing.keys(), CANCEL_SECONDS):
            closing[task].note_not_closed()

    def _audit_types(self, name: str) -> object:
        """Return the audit entries that a plug-in of the configuration declares; none for another one."""
        plugin = declared(name) if name in self.config.bundle.settings.plugins else None
        return audit_types_of(plugin) if plugin is not None else ()

    async def _open(self, plugin: Plugin, broker: object) -> None:
        plugin_task = PluginTask(plugin.name, self.log, self.clock)
        self._plugin_tasks.append(plugin_task)
        await plugin_task.open(named(plugin, plugin.open), broker, self._resources(plugin.name))

    def _resources(self, plugin: str) -> PluginResources:
        return self.config.bundle.plugins.get(plugin, PluginResources())


def _scrubbed(found: object, scrubber: Scrubber) -> PluginFinding:
    if not isinstance(found, PluginFinding):
        raise MisuseError(f"an object of the type {type(found).__name__} is no PluginFinding")
    return replace(found, text=scrubber.text(found.text), hint=scrubber.text(found.hint))


async def _still_running(tasks: Collection[asyncio.Task[Any]], patience: float) -> set[asyncio.Task[Any]]:
    """Wait for all tasks at once, then cancel them. Return those that have not ended: a plug-in may ignore both."""
    try:
        await _wait(tasks, patience)
    finally:
        for task in tasks:
            task.cancel()
    await _wait(tasks, CANCEL_SECONDS)
    return {task for task in tasks if not task.done()}


async def _wait(tasks: Collection[asyncio.Task[Any]], patience: float | None = None) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=patience)


async def _problem(work: Callable[[], Awaitable[object]]) -> str | None:
    """Run code of a plug-in. Return what went wrong: a code, or the type of an exception with its line, never its
    text."""
    try:
        with foreign_code("work"):
            await work()
    except BrokerError as error:
        return error.code.value
    except ForeignFault as fault:
        return fault.why
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        return "CancelledError"
    return None


def _is_cancelled() -> bool:
    """Tell whether the current task was cancelled. Code of a plug-in may raise CancelledError itself, or catch ours."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
