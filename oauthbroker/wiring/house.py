"""What lives and dies with a running broker: its background tasks, and who is waited for when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from oauthbroker.audit.gap import keep_anchor, settle
from oauthbroker.broker import Broker
from oauthbroker.errors import BrokerError
from oauthbroker.metrics_folder import Sharing
from oauthbroker.protocol.transport import Transport
from oauthbroker.repository import Repository
from oauthbroker.resume import Bell, Relay
from oauthbroker.upkeep import Upkeep
from oauthbroker.wiring.flows import Flows

UPKEEP_SECONDS = 5.0


@dataclass(slots=True)
class House:
    """The parts that live and die with the broker."""

    broker: Broker
    relay: Relay
    upkeep: Upkeep
    flows: Flows
    transport: Transport
    bell: Bell
    sharing: Sharing
    repository: Repository
    log: FilteringBoundLogger
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def start(self, *, background: bool) -> None:
        """Recovery first: what a dead process left half done is finished before anything new begins."""
        if background:
            await self._tend()
            await self._try("tidying", self.relay.tidy)
            self.tasks = [asyncio.create_task(self._relay_for_ever()), asyncio.create_task(self._sweep_for_ever())]
            self.tasks.append(asyncio.create_task(self._tell_providers_for_ever()))
            self.tasks.append(asyncio.create_task(self.flows.polling.run()))
            self.tasks.append(asyncio.create_task(self._keep_up_for_ever()))
            self.tasks.append(asyncio.create_task(self.sharing.run()))
            self.tasks.append(asyncio.create_task(self._anchor_for_ever()))
            self.tasks.append(asyncio.create_task(self._mend_for_ever()))

    async def hand_over(self) -> None:
        """Events that are due reach their queue, where running brokers see them at once."""
        with suppress(BrokerError):
            await self.relay.once()

    async def close(self) -> None:
        """Whoever waits long goes; what is asked of providers from here on is left to the next broker; commits under
        way finish and their events reach the queue; then the network goes."""
        self.broker.life.stop()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.flows.exchange.close()
        await self.flows.polling.close()
        await self.flows.refresh.close()
        await self._try("uses", self.broker.people.close)
        if self.tasks:
            await self.hand_over()
        await self.transport.close()
        settle(self.broker.audit)
        await self.sharing.close()

    async def _tend(self) -> None:
        for task, work in {
            "sweep": self.flows.sweep.once,
            "relay": self.relay.once,
            "turns": self.broker.turns.sweep,
            "visits": self.broker.people.visits.sweep,
            "uses": self.broker.people.uses.write,
            "tombstones": self._sweep_tombstones,
        }.items():
            await self._try(task, work)

    async def _sweep_tombstones(self) -> None:
        if self.repository.tombstones is not None:
            await self.repository.tombstones.sweep(self.broker.clock)

    async def _try(self, task: str, work: Callable[[], Awaitable[object]]) -> None:
        """Whatever goes wrong in one round, the next one comes: a relay that died would leave agents asleep."""
        try:
            await work()
        except BrokerError as error:
            self.log.error("tending failed", task=task, code=error.code.value, note=error.note)
        except Exception as error:  # noqa: BLE001  (its text may hold anything, so only its type is told)
            self.log.error("tending failed", task=task, error=type(error).__name__)

    async def _relay_for_ever(self) -> None:
        rung = self.bell.listen()
        while True:
            await self.bell.wait(self.broker.bundle.settings.limits.sweep_seconds, rung)
            rung = self.bell.listen()
            await self._try("relay", self.relay.once)

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.broker.bundle.settings.limits.sweep_seconds)
            await self._tend()

    async def _tell_providers_for_ever(self) -> None:
        """Apart from the others: a provider's slowness holds up nobody's events and no session's end."""
        while True:
            await self._try("revocations", self.relay.revocations)
            await asyncio.sleep(self.broker.bundle.settings.limits.sweep_seconds)

    async def _keep_up_for_ever(self) -> None:
        """Also first thing at start: a provider may forgive a refresh token that comes twice only for seconds."""
        while True:
            await self._try("renewals left open", self.upkeep.recover)
            await self._try("renewals ahead", self.upkeep.ahead)
            await asyncio.sleep(min(UPKEEP_SECONDS, self.broker.bundle.settings.limits.sweep_seconds))

    async def _mend_for_ever(self) -> None:
        """Apart from the others, because it reads every record."""
        while True:
            await asyncio.sleep(self.broker.bundle.settings.limits.sweep_seconds)
            await self._try("markers", self.upkeep.mend)

    async def _anchor_for_ever(self) -> None:
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            await self._try("anchor of the audit log", lambda: keep_anchor(self.broker.audit))
