"""The audit log in memory, for embedding without a disk and for tests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Unpack

from oauthbroker.audit import AuditEntry
from oauthbroker.audit.chain import members
from oauthbroker.audit.formatting import Naming, rest_of
from oauthbroker.audit.lines import AuditLine, AuditTrail, Which, line_from, parsed
from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.clock import to_iso


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
        found, sought = [], parsed(which)
        for at, entry in reversed(self.written.lines):
            line = line_from(members(f'{{"at":"{to_iso(at)}",{rest_of(entry, self.name)}}}'.encode()), genuine=True)
            if line is not None and line.fits(sought):
                found.append(line)
            if len(found) >= n:
                break
        return found[:n][::-1]
