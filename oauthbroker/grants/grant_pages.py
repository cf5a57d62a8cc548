"""The grants page by page, and by their ids. An id is a digest of app and subject, so both take reading all grants:
that is done once for all the pages of one listing, and for all ids that are looked for meanwhile."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import islice

from oauthbroker.core.clock import Clock
from oauthbroker.grants.cached_scan import Snapshot
from oauthbroker.model.token_request import is_named
from oauthbroker.records.grant_view import GrantView

PAGE = 50
BREATH = 64  # records that are opened before others may run


Read = Callable[[str | None, str | None], AsyncIterator[GrantView]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantFilter:
    """Which grants to list; an empty member stands for all. `app` is `name` or `name@account`; `text` is part of
    a subject or of an account's name, or the start of a grantId.

    `after` is the id that the page before ended with, for pages in the order of ids; `page` is the number of a page.
    """

    app: str | None = None
    subject: str | None = None
    state: str | None = None
    after: str | None = None
    health: str = ""
    text: str = ""
    page: int = 1

    def fits(self, grant: GrantView) -> bool:
        text = self.text.strip().casefold()
        return (
            is_named(self.app, grant.app, grant.account)
            and (not self.subject or self.subject == grant.subject)
            and (not self.state or self.state == ("revoked" if grant.revoked else "live"))
            and (not self.health or self.health == grant.health)
            and (not text or text in f"{grant.subject}\n{grant.account_name}".casefold() or grant.id.startswith(text))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One numbered page of grants, the latest changed first."""

    rows: tuple[GrantView, ...]
    count: int
    page: int
    pages: int


class GrantPages:
    """`read` gives the grants of an app, of a subject, or all, in no order."""

    def __init__(self, read: Read, clock: Clock) -> None:
        self._read = read
        self._all: Snapshot[list[GrantView]] = Snapshot(self._read_all, clock)

    def forget(self) -> None:
        """Read anew at the next look, because something was changed here."""
        self._all.forget()

    async def recent(self) -> list[GrantView]:
        """Return every grant by id, as of a few seconds ago; read once, however many look at once."""
        return await self._all.recent()

    async def numbered(self, wanted: GrantFilter) -> Found:
        """Return the page of that number, or the last one, as of a few seconds ago."""
        fitting = [grant for grant in await self.recent() if wanted.fits(grant)]
        fitting.sort(key=lambda grant: (grant.updated_at, grant.id), reverse=True)
        pages = max(1, -(-len(fitting) // PAGE))
        page = min(max(1, wanted.page), pages)
        return Found(rows=tuple(fitting[(page - 1) * PAGE : page * PAGE]), count=len(fitting), page=page, pages=pages)

    async def page(self, wanted: GrantFilter, limit: int) -> tuple[list[GrantView], bool]:
        """Return a page in the order of ids, and whether there are more. The first page, and all of one subject, are as
        of now; one that follows is as of some seconds ago at the most."""
        if wanted.subject:
            grants = await self._sorted(self._read(wanted.app, wanted.subject))
        else:
            grants = await (self._all.fresh() if wanted.after is None else self._all.recent())
        start = bisect_right(grants, wanted.after or "", key=_id_of)
        fitting = (grants[place] for place in range(start, len(grants)) if wanted.fits(grants[place]))
        found = list(islice(fitting, limit + 1))
        return found[:limit], len(found) > limit

    async def find(self, grant_id: str) -> GrantView | None:
        """Return a grant, as of some seconds ago if it was there then, else as of now. An id of no grant is waited for,
        so that many of them are looked for together."""
        found = _found(await self._all.recent(), grant_id)
        return found if found is not None else _found(await self._all.fresh_after_pause(), grant_id)

    async def _read_all(self) -> list[GrantView]:
        return await self._sorted(self._read(None, None))

    @staticmethod
    async def _sorted(views: AsyncIterator[GrantView]) -> list[GrantView]:
        """Return the grants sorted by id. Token calls go on meanwhile."""
        found: list[GrantView] = []
        async for view in views:
            found.append(view)
            if len(found) % BREATH == 0:
                await asyncio.sleep(0)
        return sorted(found, key=_id_of)


def _id_of(grant: GrantView) -> str:
    return grant.id


def _found(grants: list[GrantView], grant_id: str) -> GrantView | None:
    place = bisect_left(grants, grant_id, key=_id_of)
    return grants[place] if place < len(grants) and grants[place].id == grant_id else None
