"""The port of the audit log: what every backend that keeps entries does.

`tests/contract/test_audit_writer.py` is the contract; a backend is supported when it is green for it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from oauthbroker.audit import AuditEntry
from oauthbroker.audit.formatting import Naming
from oauthbroker.audit.lines import AuditTrail, NoTrail
from oauthbroker.core.errors import Code

RepeatedWrite = Callable[[datetime], None]
"""Keeps one entry, each time with another moment."""


class AuditWriter(Protocol):
    """Keeps audit entries. A backend defines `write` and `close`; the others have a default for subclasses.

    A writer belongs to one process and one event loop, and never blocks that loop for another process.
    """

    def write(self, entry: AuditEntry, at: datetime) -> None:
        """Keep an entry; it is kept when this returns. Raises `storeUnavailable`: then the action must not happen."""
        ...

    def repeated(self, entry: AuditEntry) -> RepeatedWrite:
        """Return a function that does `write` with this entry, each time it is called. May raise as `write` does."""
        return lambda at: self.write(entry, at)

    def close(self) -> None:
        """Release the log. Later entries are refused."""
        ...

    @property
    def failure(self) -> Code | None:
        """Return the code of the current failure, which an operator must fix; else None."""
        return None

    def settle(self) -> None:
        """Write entries that are still due, before the end."""
        return

    async def try_again(self) -> None:
        """Look whether a log without room takes entries again, and set `failure`. Call it each second. Raises
        nothing."""
        return

    async def keep_checkpoint(self) -> None:
        """Make the entries durable, and their loss noticeable. Call it every few seconds. Raises `storeUnavailable`."""
        return

    def trail(self, name: Naming) -> AuditTrail:
        """Return the readable log; `name` makes pseudonyms for a log that holds none."""
        return NoTrail(name)
