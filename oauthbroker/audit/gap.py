"""`audit.onFailure: continue`: the house goes on while the log takes no lines; afterwards it says what it lacks."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Literal

from oauthbroker.audit.entries import AuditGap, AuditWriter, Entry
from oauthbroker.audit.file import AuditFile, Tell
from oauthbroker.clock import Clock, to_iso
from oauthbroker.errors import BrokerError, Code
from oauthbroker.metrics import Metric, Metrics

TELL_EVERY = 60.0


class AuditAnyway:
    """An `AuditWriter` that never refuses. Missing entries are counted, and told of by an `AuditGap` as soon as the
    log takes lines again."""

    def __init__(self, kept: AuditWriter, clock: Clock, metrics: Metrics, tell: Tell) -> None:
        self.kept = kept
        self._clock, self._metrics, self._tell = clock, metrics, tell
        self._missing, self._since = 0, ""
        self._told: float | None = None

    @property
    def trouble(self) -> Code | None:
        return Code.AUDIT_UNAVAILABLE if self._missing else None

    def write(self, entry: Entry, at: datetime) -> None:
        try:
            if self._missing:
                self._tell_of_gap(at)
            self.kept.write(entry, at)
        except BrokerError as error:
            if error.code is Code.REQUEST_INVALID:
                raise
            code = error.code
        else:
            return
        self._miss(at, code)

    def settle(self) -> None:
        """The last chance to tell of a gap."""
        with suppress(BrokerError):
            if self._missing:
                self._tell_of_gap(self._clock.now())
        if self._missing:
            self._tell("the audit log lacks entries for ever", missing=self._missing, since=self._since)

    def close(self) -> None:
        self.settle()
        self.kept.close()

    def _tell_of_gap(self, at: datetime) -> None:
        self.kept.write(AuditGap(self._missing, self._since), at)
        self._tell("the audit log takes entries again", missing=self._missing, since=self._since)
        self._missing, self._told = 0, None

    def _miss(self, at: datetime, code: Code) -> None:
        self._missing, self._since = self._missing + 1, self._since if self._missing else to_iso(at)
        self._metrics.add(Metric.AUDIT_ENTRIES_MISSING)
        now = self._clock.monotonic()
        if self._told is None or now - self._told >= TELL_EVERY:
            self._told = now
            self._tell("the audit log takes no entries", missing=self._missing, code=code.value)


def on_failure(
    setting: Literal["refuse", "continue"], writer: AuditWriter, clock: Clock, metrics: Metrics, tell: Tell
) -> AuditWriter:
    """The writer, as `audit.onFailure` wants it."""
    return AuditAnyway(writer, clock, metrics, tell) if setting == "continue" else writer


def settle(writer: AuditWriter) -> None:
    if isinstance(writer, AuditAnyway):
        writer.settle()


def trouble_of(writer: AuditWriter) -> Code | None:
    """Why an operator is needed: the log takes no lines."""
    return writer.trouble if isinstance(writer, AuditAnyway | AuditFile) else None


async def keep_anchor(writer: AuditWriter) -> None:
    """To be called every few seconds. Raises `storeUnavailable`."""
    kept = writer.kept if isinstance(writer, AuditAnyway) else writer
    if isinstance(kept, AuditFile):
        await kept.keep_anchor()
