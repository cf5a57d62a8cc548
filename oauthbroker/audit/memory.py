"""The audit log in memory, for embedding without a disk and for tests."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Unpack

from oauthbroker.audit import AuditEntry
from oauthbroker.audit.chain import members
from oauthbroker.audit.formatting import Naming, line_of
from oauthbroker.audit.lines import AuditLine, AuditTrail, Which, line_from, parsed
from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.dataclasses import dataclass


class AuditList(AuditWriter):
    """Entries in a list."""

    def __init__(self) -> None:
        self.lines: list[tuple[datetime, AuditEntry]] = []

    @property
    def entries(self) -> list[AuditEntry]:
        return [entry for _, entry in self.lines]

    def write(self, entry: AuditEntry, at: datetime) -> None:
        self.lines.append((at, entry))

    def close(self) -> None:
        """Do nothing: the list stays readable."""

    def trail(self, name: Naming) -> AuditTrail:
        return ListTrail(self, name)


@dataclass(frozen=True, slots=True)
class ListTrail:
    """The trail of a log in memory."""

    written: AuditList
    name: Naming

    async def tail(self, n: int, **which: Unpack[Which]) -> list[AuditLine]:
        sought = parsed(n, which)
        newest_first = (members(line_of(entry, at, self.name).encode()) for at, entry in reversed(self.written.lines))
        lines = (line_from(each, genuine=True) for each in newest_first)
        return [*islice((line for line in lines if line is not None and line.fits(sought)), n)][::-1]
