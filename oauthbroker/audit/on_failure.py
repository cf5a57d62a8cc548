"""`audit.onFailure: continue`: the broker goes on while the log cannot be written, and then logs the number of
missing entries."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from oauthbroker.audit import AuditEntry, AuditGap
from oauthbroker.audit.formatting import Naming
from oauthbroker.audit.lines import AuditTrail
from oauthbroker.audit.port import AuditWriter
from oauthbroker.audit.slot import Tell
from oauthbroker.core.clock import Clock, to_iso
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.observability.metrics import Metric, Metrics

TELL_EVERY = 60.0


class AuditAnyway(AuditWriter):
    """A writer that never refuses. It counts missing entries, and writes an `AuditGap` as soon as the log works
    again."""

    def __init__(self, *, kept: AuditWriter, clock: Clock, metrics: Metrics, tell: Tell) -> None:
        self.kept = kept
        self._clock, self._metrics, self._tell = clock, metrics, tell
        self._missing, self._since = 0, ""
        self._logged_at: float | None = None

    @property
    def failure(self) -> Code | None:
        return Code.AUDIT_UNAVAILABLE if self._missing else self.kept.failure

    def write(self, entry: AuditEntry, at: datetime) -> None:
        try:
            if self._missing:
                self._tell_of_gap(at)
            self.kept.write(entry, at)
        except BrokerError as error:
            if error.code is Code.REQUEST_INVALID:
                raise
            self._miss(at, error.code)

    async def try_again(self) -> None:
        await self.kept.try_again()
        self._fill_gap()

    def settle(self) -> None:
        self._fill_gap()
        if self._missing:
            self._tell("the audit log lacks entries for ever", missing=self._missing, since=self._since)

    def close(self) -> None:
        self.settle()
        self.kept.close()

    async def keep_checkpoint(self) -> None:
        await self.kept.keep_checkpoint()

    def trail(self, name: Naming) -> AuditTrail:
        return self.kept.trail(name)

    def _fill_gap(self) -> None:
        """Write the entry about missing ones, if the log takes it."""
        with suppress(BrokerError):
            if self._missing:
                self._tell_of_gap(self._clock.now())

    def _tell_of_gap(self, at: datetime) -> None:
        self.kept.write(AuditGap(missing=self._missing, since=self._since), at)
        self._tell("the audit log takes entries again", missing=self._missing, since=self._since)
        self._missing, self._logged_at = 0, None

    def _miss(self, at: datetime, code: Code) -> None:
        self._missing, self._since = self._missing + 1, self._since if self._missing else to_iso(at)
        self._metrics.add(Metric.AUDIT_ENTRIES_MISSING)
        now = self._clock.monotonic()
        if self._logged_at is None or now - self._logged_at >= TELL_EVERY:
            self._logged_at = now
            self._tell("the audit log takes no entries", missing=self._missing, code=code.value)
