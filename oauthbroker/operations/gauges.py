"""The current values: open circuits, waiting authorizations, queues, problems. Computed for each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.version import VERSION
from oauthbroker.events.port import Queues
from oauthbroker.model.apps import OAuthApp
from oauthbroker.observability.metrics import Gauge, Now
from oauthbroker.operations.health import HealthCheck
from oauthbroker.refresh.circuit import Circuits
from oauthbroker.repository.session_limits import OpenSessions

ROW = "device code "  # authorization/device.py keeps a circuit of this name for an app's codes
LOOK_SECONDS = 30.0  # how old the figures of the queues may be: looking reads every agent's index


@dataclass(slots=True)
class Gauges:
    """One broker's. `circuits` are all that it has; `health` is asked for its problems."""

    apps: Mapping[str, OAuthApp]
    circuits: Sequence[Circuits]
    open_sessions: OpenSessions
    health: HealthCheck
    queues: Queues
    clock: Clock
    _looked: tuple[float, Now] | None = field(default=None, init=False)

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
        return now

    async def of_store(self) -> Now:
        """Return the figures of the store, the same in every process. A store that cannot be read has none."""
        now: Now = {(Gauge.BUILD, (VERSION,)): 1.0}
        at = self.clock.monotonic()
        if self._looked is None or at - self._looked[0] >= LOOK_SECONDS:
            self._looked = (at, await self._look())
        return now | self._looked[1]

    async def _look(self) -> Now:
        try:
            depth = await self.queues.depth()
        except BrokerError:
            return {}
        oldest = 0.0
        if depth.oldest is not None:
            oldest = max(0.0, (self.clock.now() - depth.oldest).total_seconds())
        return {
            (Gauge.QUEUE_EVENTS, ("waiting",)): float(depth.waiting),
            (Gauge.QUEUE_EVENTS, ("dead",)): float(depth.dead),
            (Gauge.QUEUE_OLDEST, ()): oldest,
        }
