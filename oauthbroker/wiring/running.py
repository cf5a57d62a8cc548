"""A running broker: its background tasks, and its orderly end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any

from oauthbroker.broker import Broker
from oauthbroker.config.reload import Read, Reload, Source
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.opened_here import CLOSED, NotUsableHere
from oauthbroker.diagnostics.own_brokers import is_own_broker
from oauthbroker.events.port import QueueFull
from oauthbroker.model.bundle import Bundle
from oauthbroker.observability.held_locks import HeldLocks
from oauthbroker.observability.repeats import Repeats
from oauthbroker.plugin_services.plugin_state import PluginState
from oauthbroker.repository.store_age import StoreAge
from oauthbroker.store.keys.rotation import KeyRotation
from oauthbroker.wiring.deferred_web import DeferredWeb
from oauthbroker.wiring.parts import Parts
from oauthbroker.wiring.store_keys import StoreKeys

UPKEEP_SECONDS = 5.0
HELD_SECONDS = 1.0  # until the relay comes back to a lock that was held: agents sleep meanwhile
AWAY_SECONDS = 1.0  # between two looks for a store that is away: health is green soon after its return
AGE_SECONDS = 300.0  # an older copy of the store than that is noticed
TIDY_SECONDS = 300.0
START_SECONDS = 1.0  # that a start waits for its recovery


async def as_given(given: Source) -> Bundle:
    """Return a bundle that was built in code. Raise `requestInvalid` for a broker that was opened without a folder."""
    if not isinstance(given, Bundle):
        raise BrokerError(Code.REQUEST_INVALID, note="nothing to read the configuration from")
    return given


class Running:
    """One broker with its background tasks."""

    def __init__(
        self, parts: Parts, read: Read = as_given, rotation: KeyRotation | None = None, *, age: StoreAge | None = None
    ) -> None:
        """`read` takes a configuration anew. `rotation` and `age` are those of a store that was opened here."""
        self.parts, self._age = parts, age
        self._keys: StoreKeys | None = None
        if rotation is not None:
            audit, clock, figures, metrics = parts.audit, parts.clock, parts.key_figures, parts.metrics
            self._keys = StoreKeys(rotation=rotation, audit=audit, clock=clock, figures=figures, metrics=metrics)
        self._held_locks, self._repeats = HeldLocks(parts.clock, parts.log), Repeats(parts.clock)
        self.tasks, self._lost = list[asyncio.Task[None]](), frozenset[tuple[str, str]]()
        self._web = DeferredWeb(parts)
        self.broker = Broker(
            services=parts.services,
            secrets=parts.secrets,
            metrics=parts.metrics,
            scrubber=parts.scrubber,
            audit_trail=parts.audit_trail,
            health_check=parts.health_check,
            web=self._web,
            reload=Reload(
                current=parts.config,
                read=read,
                follow=self._follow,
                settle=self._settle,
                log=parts.log,
                opened_here=parts.repository.opened_here,
            ),
            plugin_audit=parts.plugins.audit,
            plugin_state=partial(PluginState, parts.repository.plugin_values),
            serves=self._serve_beside,
            serves_at=partial(is_own_broker, parts.mac, parts.clock),
        )

    async def start(self, *, background: bool) -> None:
        """Recover the work of dead processes, then start the background tasks. A recovery that takes longer than a
        moment goes on in the background. No answer depends on it, since another process may die at any time: leases
        and claims guard the work that has to wait for it."""
        await self.parts.mcp_clients.sync()
        if background:
            # the first look at the store's history: versions that are learned later are compared with it
            await self._try("lost versions", self.parts.background_refresh.restore)
            recovered = asyncio.Event()
            self.tasks = [asyncio.create_task(self._sweep_for_ever(recovered))]
            await self._wait_for(recovered)
            loops = [self._relay_for_ever(), self.parts.polling.run(), self.parts.sharing.run(), *self._rounds()]
            self.tasks += [asyncio.create_task(loop) for loop in loops]
            self.parts.forwarding.begin()

    async def open_plugins(self) -> None:
        """Open the plug-ins of the configuration, and serve their routes. Raises a code with a note that names the
        plug-in."""
        self._web.open(await self.parts.plugins.open(self.broker))
        self.parts.plugins.begin()

    def _serve_beside(self, broker: Broker, host: str | None, port: int | None) -> AbstractAsyncContextManager[str]:
        from oauthbroker.serving.embedded import served_beside  # imported here: most embedded brokers serve nothing

        if self.parts.life.stopping:
            raise NotUsableHere(CLOSED)
        return served_beside(broker, self.parts.log, host, port)

    async def _wait_for(self, recovered: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                await recovered.wait()
        except TimeoutError:
            self.parts.log.warning("recovery goes on in the background")

    async def hand_over(self) -> None:
        """Move due events to their queues, where running brokers see them at once."""
        with suppress(BrokerError):
            await self.parts.relay.once()

    async def close(self) -> None:
        """End long waits and leave new provider requests to the next broker. Let commits under way finish and their
        events reach the queue. Then close the network."""
        self.parts.life.stop()
        await self.parts.plugins.close()
        await self.parts.forwarding.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.parts.exchange.close()
        await self.parts.polling.close()
        await self.parts.refresh.close()
        await self.parts.manager.rejections.close()
        await self._try("uses", partial(self.parts.uses.write, everything=True))
        if self.tasks:
            await self.hand_over()
        await self.parts.api_transport.close()
        await self.parts.transport.close()
        self.parts.audit.settle()
        await self.parts.sharing.close()

    def _follow(self, changed: Collection[str]) -> None:
        """Serve the callbacks of a new configuration, and ask its changed apps at once."""
        self._web.follow()
        self.parts.forwarding.follow()
        for app in changed:
            self.parts.close_circuits(app)

    async def _settle(self, lost: frozenset[tuple[str, str]]) -> None:
        self._lost |= lost
        await self.parts.plugins.reload()  # before what needs the store
        await self.parts.mcp_clients.sync()
        await self._end_outdated()

    async def _end_outdated(self) -> None:
        """End open requests of the apps that a reload took from this process, unless a later one brought them back."""
        lost = self._lost - self.parts.config.digests
        await self.parts.sweep.end_outdated(lost)
        self._lost -= lost

    async def _tend(self) -> None:
        for task, work in {
            "MCP clients": self.parts.mcp_clients.sync,
            "sweep": self.parts.sweep.once,
            "requests of before": self._end_outdated,
            "relay": self.parts.relay.once,
            "turns": self.parts.turns.sweep,
            "API keys": self.parts.api_keys.sweep,
            "browsersessions": self.parts.browser_sessions.sweep,
            "uses": self.parts.uses.write,
            "tombstones": self._sweep_tombstones,
        }.items():
            await self._try(task, work)

    async def _sweep_tombstones(self) -> None:
        if self.parts.repository.tombstones is not None:
            await self.parts.repository.tombstones.sweep(self.parts.clock)

    async def _try(self, task: str, work: Callable[[], Awaitable[object]]) -> bool:
        """Run one pass, and tell whether it met no held lock. Log its fault, so that the next pass comes: a relay that
        died would leave agents asleep."""
        began = self.parts.clock.monotonic()
        try:
            await work()
            self._held_locks.worked(task)
            self.parts.outage.worked(task)
        except BrokerError as error:
            if self._held_locks.met(task, error):
                return False
            self._note_fault(task, error, began)
        except Exception as error:  # noqa: BLE001  (its text may hold anything, so only its type is logged)
            if self._repeats.is_new(task, type(error).__name__):
                self.parts.log.error("tending failed", task=task, error=type(error).__name__)
        return True

    def _note_fault(self, task: str, error: BrokerError, began: float) -> None:
        """Log a fault at most once a minute. An outage of the store is one fault of all tasks."""
        is_outage = error.code is Code.STORE_UNAVAILABLE and not isinstance(error, QueueFull)
        if is_outage:
            self.parts.outage.failed(task, error, began)
        if self._repeats.is_new("" if is_outage else task, error.code.value, error.note):
            self.parts.log.error("tending failed", task=task, code=error.code.value, note=error.note)

    async def _relay_for_ever(self) -> None:
        signal, pause = self.parts.outbox.listen(), self.parts.limits.sweep_seconds
        while True:
            await self.parts.outbox.wait(pause, signal)
            signal = self.parts.outbox.listen()
            is_through = await self._try("relay", self.parts.relay.once)
            pause = self.parts.limits.sweep_seconds if is_through else HELD_SECONDS

    async def _sweep_for_ever(self, recovered: asyncio.Event) -> None:
        await self._tend()
        await self._try("tidying", self.parts.queues.tidy)
        recovered.set()
        while True:
            await asyncio.sleep(self.parts.limits.sweep_seconds)
            await self._tend()

    def _rounds(self) -> list[Coroutine[Any, Any, None]]:
        """Return the loops that only wait between their passes. Each is apart, so that a slow one delays no other: a
        provider may be slow to take a revocation, and repairing reads every record."""
        parts, seconds = self.parts, self.parts.limits.sweep_seconds
        refresh = parts.background_refresh
        ahead = {
            "lost versions": refresh.restore,
            "refreshes left open": refresh.recover,
            "refreshes ahead": refresh.ahead,
            "facts left open": parts.late_facts.run_pass,
        }
        soon = min(UPKEEP_SECONDS, seconds)  # a provider may forgive a second use for seconds only
        loops = [
            self._repeat(0, seconds, {"revocations": parts.bulk_revocation.run_pass}),
            self._repeat(0, soon, ahead),
            self._repeat(0, seconds, {"notices of ends": parts.expiring.run_pass}),
            self._repeat(seconds, seconds, {"markers": refresh.repair}),
            self._repeat(seconds, seconds, {"store": self._probe}),
            self._repeat(AWAY_SECONDS, AWAY_SECONDS, {"return of the store": self._look_if_away}),
            self._repeat(AWAY_SECONDS, AWAY_SECONDS, {"return of the audit log": parts.audit.try_again}),
            self._repeat(UPKEEP_SECONDS, UPKEEP_SECONDS, {"checkpoint of the audit log": parts.audit.keep_checkpoint}),
        ]
        if self._keys is not None:
            loops.append(self._repeat(0, UPKEEP_SECONDS, {"keyring": self._keys.follow}))
            loops.append(self._repeat(UPKEEP_SECONDS, seconds, {"reseal": self._keys.reseal_gently}))
        if self._age is not None:
            loops.append(self._repeat(0, AGE_SECONDS, {"age of the store": self._age.grow}))
            loops.append(self._repeat(TIDY_SECONDS, TIDY_SECONDS, {"unused locks": parts.repository.tidy}))
        return loops

    async def _probe(self) -> None:
        await self.parts.outage.look(self.parts.repository.probe)

    async def _look_if_away(self) -> None:
        if self.parts.outage.lasts:
            await self._probe()

    async def _repeat(self, first: float, pause: float, works: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
        await asyncio.sleep(first)
        while True:
            for task, work in works.items():
                await self._try(task, work)
            await asyncio.sleep(pause)
