"""A broker on a store of the test's choice, started by the test, and its parts."""

from __future__ import annotations

import io
from typing import TextIO

from oauthbroker.audit.memory import AuditList
from oauthbroker.audit.port import AuditWriter
from oauthbroker.broker import Broker
from oauthbroker.core.clock import Clock
from oauthbroker.model.bundle import Bundle
from oauthbroker.observability.logging import json_log
from oauthbroker.repository.repository import Repository
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.wiring.parts import Parts
from oauthbroker.wiring.running import Running


class HasRunning:
    """Gives the broker and the parts of `running`."""

    running: Running

    @property
    def broker(self) -> Broker:
        return self.running.broker

    @property
    def parts(self) -> Parts:
        """Return the parts that `Broker` does not publish."""
        return self.running.parts


def running_on(
    store: FileStore, bundle: Bundle, clock: Clock, *, audit: AuditWriter | None = None, log: TextIO | None = None
) -> Running:
    """Build a broker whose background tasks are not started."""
    return Running(
        Parts(
            bundle=bundle,
            repository=Repository(store),
            mac=store.mac,
            clock=clock,
            audit_log=audit or AuditList(),
            log=json_log(log or io.StringIO(), clock),
        )
    )
