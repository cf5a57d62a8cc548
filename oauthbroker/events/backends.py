"""Choose the queues of a store: in its entries, or in rows of its database."""

from __future__ import annotations

from oauthbroker.core.clock import Clock
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.events.port import Queues
from oauthbroker.events.queue import StoreQueues
from oauthbroker.model.settings import Limits
from oauthbroker.observability.metrics import Metrics
from oauthbroker.repository.repository import Repository


def queues_of(
    repository: Repository,
    *,
    clock: Clock,
    limits: Limits,
    metrics: Metrics | None = None,
    notifier: Notifier | None = None,
) -> Queues:
    """Return the queues of the repository's store. `notifier` notifies when anything has changed in this process."""
    metrics = metrics or Metrics()
    if repository.shared is None:
        return StoreQueues(repository=repository, clock=clock, limits=limits, metrics=metrics, notifier=notifier)
    from oauthbroker.events.postgres_queues import PostgresQueues  # its driver is an extra

    return PostgresQueues(repository=repository, clock=clock, limits=limits, metrics=metrics, notifier=notifier)
