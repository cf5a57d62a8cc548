"""The grants page by page, and by their ids. An id is a digest of app and subject, so both take reading all grants:
that is done once for all the pages of one listing, and for all ids that are looked for meanwhile."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import islice

from oauthbroker.clock import Clock
from oauthbroker.grant_summary import GrantSummary
from oauthbroker.snapshot import Snapshot

BREATH = 64  # records that are opened before others may run


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which grants, and from where on: `after` is the id that the page before ended with. None stands for all."""

    app: str | None = None
    subject: str | None = None
    state: str | None = None
    after: str | None = None

    def fits(self, grant: GrantSummary) -> bool:
        return (
            self.app in {None, grant.app}
            and self.subject in {None, grant.subject}
            and self.state in {None, grant.state}
        )


class GrantPages:
    """`read` gives every grant in no order."""

    def __init__(self, read: Callable[[], AsyncIterator[GrantSummary]], clock: Clock) -> None:
        self._read = read
        self._all: Snapshot[list[GrantSummary]] = Snapshot(self._read_all, clock)

    async def page(self, wanted: Wanted, limit: int) -> tuple[list[GrantSummary], bool]:
        """In the order of ids, and whether there are more. The first page is as of now, one that follows is as of
        some seconds ago at the most."""
        grants = await (self._all.fresh() if wanted.after is None else self._all.recent())
        start = bisect_right(grants, wanted.after or "", key=_id_of)
        fitting = (grants[place] for place in range(start, len(grants)) if wanted.fits(grants[place]))
        found = list(islice(fitting, limit + 1))
        return found[:limit], len(found) > limit

    async def find(self, grant_id: str) -> GrantSummary | None:
        """As of some seconds ago where it was there then, else as of now; an id of no grant is waited for, so that
        many of them are looked for together."""
        found = _found(await self._all.recent(), grant_id)
        return found if found is not None else _found(await self._all.fresh_unhurried(), grant_id)

    async def _read_all(self) -> list[GrantSummary]:
        """Sorted by id. Token calls go on meanwhile."""
        found: list[GrantSummary] = []
        async for summary in self._read():
            found.append(summary)
            if len(found) % BREATH == 0:
                await asyncio.sleep(0)
        return sorted(found, key=_id_of)


def _id_of(grant: GrantSummary) -> str:
    return grant.grantId


def _found(grants: list[GrantSummary], grant_id: str) -> GrantSummary | None:
    place = bisect_left(grants, grant_id, key=_id_of)
    return grants[place] if place < len(grants) and grants[place].grantId == grant_id else None
