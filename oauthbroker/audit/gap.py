"""`audit.onFailure: continue`: the broker goes on while the log cannot be written, and then logs the number of
missing entries."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Literal

from oauthbroker.audit import AuditEntry, AuditGap, AuditWriter
from oauthbroker.audit.file import PATIENCE_SECONDS, AuditFile, LogHeld, Tell
from oauthbroker.core.clock import Clock, to_iso
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.observability.metrics import Metric, Metrics

TELL_EVERY = 60.0


class AuditAnyway:
    """An `AuditWriter` that never refuses. It counts missing entries, and writes an `AuditGap` as soon as the log
    works again."""

    def __init__(self, kept: AuditWriter, clock: Clock, metrics: Metrics, tell: Tell) -> None:
        self.kept = kept
        self._clock, self._metrics, self._tell = clock, metrics, tell
        self._missing, self._since = 0, ""
        self._told: float | None = None

    @property
    def trouble(self) -> Code | None:
        return Code.AUDIT_UNAVAILABLE if self._missing else None

    def write(self, entry: AuditEntry, at: datetime) -> None:
        try:
            if self._missing:
                self._tell_of_gap(at)
            self.kept.write(entry, at)
        except LogHeld:
            raise
        except BrokerError as error:
            if error.code is Code.REQUEST_INVALID:
                raise
            code = error.code
        else:
            return
        self.miss(at, code)

    def settle(self) -> None:
        """Write a pending gap before the end."""
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

    def miss(self, at: datetime, code: Code) -> None:
        """Count one missing entry."""
        self._missing, self._since = self._missing + 1, self._since if self._missing else to_iso(at)
        self._metrics.add(Metric.AUDIT_ENTRIES_MISSING)
        now = self._clock.monotonic()
        if self._told is None or now - self._told >= TELL_EVERY:
            self._told = now
            self._tell("the audit log takes no entries", missing=self._missing, code=code.value)


def on_failure(
    setting: Literal["refuse", "continue"], writer: AuditWriter, clock: Clock, metrics: Metrics, tell: Tell
) -> AuditWriter:
    """Return the writer for `audit.onFailure`."""
    return AuditAnyway(writer, clock, metrics, tell) if setting == "continue" else writer


async def enter(writer: AuditWriter, entry: AuditEntry, at: datetime) -> bool:
    """Write an entry before an action. Raises what `write` raises; then the action must not happen.

    Returns True if another process held the log meanwhile, without blocking the event loop: then earlier decisions may
    be out of date.
    """
    try:
        writer.write(entry, at)
    except LogHeld as held:
        wait = held.wait
    else:
        return False
    until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        await wait(until)
        with suppress(LogHeld):  # another process was quicker
            writer.write(entry, at)
            return True


def enter_now(writer: AuditWriter, entry: AuditEntry, at: datetime) -> None:
    """Write an entry for a caller that cannot wait: a held log refuses it."""
    try:
        writer.write(entry, at)
    except LogHeld as held:
        if not isinstance(writer, AuditAnyway):
            raise
        writer.miss(at, held.code)


def settle(writer: AuditWriter) -> None:
    if isinstance(writer, AuditAnyway):
        writer.settle()


def trouble_of(writer: AuditWriter) -> Code | None:
    """Return the code of the writer's current failure, which an operator must fix; else None."""
    return writer.trouble if isinstance(writer, AuditAnyway | AuditFile) else None


async def keep_anchor(writer: AuditWriter) -> None:
    """Sync the log and write its anchor. Call it every few seconds. Raises `storeUnavailable`."""
    kept = writer.kept if isinstance(writer, AuditAnyway) else writer
    if isinstance(kept, AuditFile):
        await kept.keep_anchor()
