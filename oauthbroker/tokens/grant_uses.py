"""Note when a grant was used last, and by whom: shown to users and operators, never read by a token call.

A token call only leaves a note in memory. Notes are written now and then, at most once in five minutes for a grant, so
that thousands of calls a second cost a few writes; a killed process loses minutes of it, and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.lifecycle import Pass
from oauthbroker.records.use import GrantUse
from oauthbroker.repository.record_store import RecordStore
from oauthbroker.repository.repository import Conflict
from oauthbroker.repository.versioned import UNREADABLE

WRITE_SECONDS = 300
MOST_NOTED = 10_000
END_SECONDS = 3.0  # for the notes of a process that ends, then the others are lost as those of a killed one


class Uses:
    """The notes of one process, and what all processes of the store have written."""

    def __init__(self, records: RecordStore[GrantUse], clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._noted: dict[str, tuple[str, str | None, datetime]] = {}
        self._written: dict[str, float] = {}

    def note(self, grant: str, agent: str, tool: str | None, at: datetime) -> None:
        """Note that a token of this grant was handed out. Costs one entry in a dictionary."""
        if len(self._noted) < MOST_NOTED or grant in self._noted:
            self._noted[grant] = (agent, tool, at)

    async def last(self, grant: str) -> GrantUse | None:
        """Return the last use that any process has written by now."""
        kept, noted = await self._records.get(grant), self._noted_of(grant)
        if kept is None or noted is None:
            return kept or noted
        return kept.and_then(noted)

    def all(self) -> AsyncIterator[GrantUse]:
        """Yield every use that was written, in no order."""
        return self._records.all()

    async def forget(self, grant: str) -> None:
        """Remove the note and the record."""
        self._noted.pop(grant, None)
        await self._records.discard(grant)

    async def write(self, *, everything: bool = False) -> int:
        """Write the notes whose turn it is, or before a process ends as many of them all as it has time for. Return how
        many. One that cannot be written keeps no other one; then the store code is raised last."""
        now = self._clock.monotonic()
        recent = now - WRITE_SECONDS
        self._written = {grant: at for grant, at in self._written.items() if at > recent}
        chosen = [grant for grant in self._noted if everything or grant not in self._written]
        this_pass, count = Pass(), 0
        for grant in chosen:
            count += 1
            with this_pass.entry():
                await self._write(grant)
                self._written[grant] = now
            if everything and self._clock.monotonic() - now >= END_SECONDS:
                break
        this_pass.over()
        return count

    async def _write(self, grant: str) -> None:
        """Write the uses. One that the store does not take now is noted again by the next use."""
        use = self._noted_of(grant)
        if use is None:
            return
        self._noted.pop(grant, None)
        try:
            await self._keep(use)
        except Conflict:  # another process wrote the first one a moment ago
            return
        except BrokerError as error:
            if error.code.retryable:
                self._noted.setdefault(grant, (use.agent, use.tool, use.at))
            raise

    async def _keep(self, use: GrantUse) -> None:
        try:
            if await self._records.change(use.grant, lambda there: there.and_then(use)) is None:
                await self._records.add(use)
        except BrokerError as error:
            if error.code not in UNREADABLE:
                raise
        else:
            return
        await self._records.replace(use)

    def _noted_of(self, grant: str) -> GrantUse | None:
        noted = self._noted.get(grant)
        return None if noted is None else GrantUse.first(grant, *noted)
