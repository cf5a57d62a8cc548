"""The current values: open circuits, waiting authorizations, queues, problems. Computed for each scrape."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.version import VERSION
from oauthbroker.diagnostics.health import HealthCheck
from oauthbroker.events.port import Depth, Queues
from oauthbroker.model.apps import App
from oauthbroker.observability.metrics import Gauge, Now
from oauthbroker.refresh.circuit import Circuits
from oauthbroker.repository.repository import SharedStore
from oauthbroker.repository.session_limits import OpenSessions

ROW = "device code "  # authorization/device_codes.py keeps a circuit of this name for an app's codes
PATIENCE_SECONDS = 2.0  # for the store: Prometheus gives a scrape ten seconds, and is to see that the store is away
LOOK_SECONDS = 30.0  # how old the figures of the queues may be: looking reads every agent's index


@dataclass(slots=True, kw_only=True)
class KeyFigures:
    """The epoch of the store's keyring, 0 without one, and how many old seeds have records or wait for `retire`."""

    epoch: int = 0
    to_reseal: int = 0
    to_retire: int = 0


@dataclass(slots=True, kw_only=True)
class Gauges:
    """One broker's. `circuits` are all that it has; `health` is asked for its problems; `shared` is the store if hosts
    share it."""

    apps: Mapping[str, App]
    circuits: Sequence[Circuits]
    open_sessions: OpenSessions
    health: HealthCheck
    queues: Queues
    keys: KeyFigures
    shared: SharedStore | None = None
    clock: Clock
    _looked_at: float = field(default=0.0, init=False)
    _looking: asyncio.Task[Now] | None = field(default=None, init=False)

    def of_process(self) -> Now:
        """Return this process's gauges, to be added to those of others. Every configured app has one."""
        closed = Counter(app.removeprefix(ROW) for circuits in self.circuits for app in circuits.open_for())
        waiting = self.open_sessions.waiting(self.clock.now())
        now: Now = {(Gauge.WORKERS, ()): 1.0}
        for app in self.apps:
            now[Gauge.CIRCUITS_OPEN, (app,)] = float(closed[app])
            now[Gauge.SESSIONS_WAITING, (app,)] = float(waiting[app])
        for code in self.health.now().problems:
            now[Gauge.HEALTH_PROBLEMS, (code,)] = 1.0
        if self.shared is not None:
            now[Gauge.STORE_FEEDS, (self.shared.feed.state,)] = 1.0
            now[Gauge.STORE_DEGRADED, ()] = float(self.shared.degraded)
        return now

    async def of_store(self) -> Now:
        """Return the figures of the store, the same in every process. A store that cannot be read has none, nor one
        that does not answer soon, which is asked once and not by each scrape."""
        now: Now = {(Gauge.BUILD, (VERSION,)): 1.0}
        if self.keys.epoch:
            now[Gauge.KEY_EPOCH, ()] = float(self.keys.epoch)
            now[Gauge.OLD_SEEDS, ("reseal",)] = float(self.keys.to_reseal)
            now[Gauge.OLD_SEEDS, ("retire",)] = float(self.keys.to_retire)
        at = self.clock.monotonic()
        if self._looking is None or (self._looking.done() and at - self._looked_at >= LOOK_SECONDS):
            self._looked_at, self._looking = at, asyncio.create_task(self._figures())
        await asyncio.wait([self._looking], timeout=PATIENCE_SECONDS)
        return now | (self._looking.result() if self._looking.done() else {})

    async def _figures(self) -> Now:
        try:
            depth = Depth.of(await self.queues.depths())
            leases = await self.shared.leases() if self.shared is not None else None
        except BrokerError:
            return {}
        oldest = 0.0
        if depth.oldest is not None:
            oldest = max(0.0, (self.clock.now() - depth.oldest).total_seconds())
        shared = {} if leases is None else {"held": leases.held, "lapsed": leases.lapsed}
        return {
            **{(Gauge.STORE_LEASES, (state,)): float(count) for state, count in shared.items()},
            (Gauge.QUEUE_EVENTS, ("waiting",)): float(depth.waiting),
            (Gauge.QUEUE_EVENTS, ("dead",)): float(depth.dead),
            (Gauge.QUEUE_OLDEST, ()): oldest,
        }
