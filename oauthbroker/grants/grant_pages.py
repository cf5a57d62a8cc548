"""The grants page by page, in an order that the store keeps: a page costs the same among ten grants and a million.

The order is that of keyed hashes, so the first grants are a fair sample of all, from which counts are estimated. An id
is a digest of app and subject: a grant that no page has shown lately is looked for in the whole store.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Protocol, TypeVar

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError
from oauthbroker.grants.cached_scan import Snapshot
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_request import is_named
from oauthbroker.records.grant_head import GrantHead
from oauthbroker.records.grant_view import GrantView
from oauthbroker.repository.repository import Versioned
from oauthbroker.repository.versioned import readable

T = TypeVar("T", Versioned[GrantHead], GrantView)
PAGE = 50
WINDOW = 500  # grants that are sorted by their last change, to be shown in numbered pages
LOOKED = 2000  # grants that one page or window looks at, and of which a sample is
KNOWN = 10_000  # grants whose ids are remembered
BREATH = 64  # grants in memory that are looked at before others may run; the store gives way when it reads
_VALUES = 2**128  # of the keyed hash that a place begins with
PLACE = re.compile(r"^[0-9a-f]{32}\.[0-9a-f]{64}$")  # where a page begins: two keyed hashes
_ID = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantFilter:
    """Which grants to list; an empty member stands for all. `app` is `name` or `name@account`; `text` is part of
    a subject, of an account's name or of `name@account`, or the start of a grantId.

    `after` is the place after which a page or a window begins; `page` is the number of a page in a window.
    """

    app: str | None = None
    subject: str | None = None
    state: str | None = None
    after: str | None = None
    health: str = ""
    text: str = ""
    page: int = 1

    @property
    def reads_heads(self) -> bool:
        """Tell whether heads are enough to say which grants fit."""
        return not (self.health or self.text.strip())

    def fits(self, grant: GrantHead | GrantView) -> bool:
        key = grant.key
        return (
            is_named(self.app, key.app, key.account)
            and (not self.subject or self.subject == key.subject)
            and (not self.state or self.state == ("revoked" if grant.revoked else "live"))
            and (isinstance(grant, GrantHead) or self._fits_view(grant))
        )

    def _fits_view(self, grant: GrantView) -> bool:
        text = self.text.strip().casefold()
        account = f"{grant.app}@{grant.account}" if grant.account else ""
        return (not self.health or self.health == grant.health) and (
            not text
            or text in f"{grant.subject}\n{grant.account_name}\n{account}".casefold()
            or grant.id.startswith(text)
        )


class GrantSource(Protocol):
    """Where pages read grants. `in_order` gives at most `limit` of a filter's app or subject after their places, with
    None for a place to pass over, and may give grants of other apps; `views` gives all, in no order, and `heads` too;
    `in_memory` gives those that were read lately."""

    def in_order(self, wanted: GrantFilter, limit: int) -> AsyncIterator[tuple[str, GrantView | None]]: ...

    def heads_in_order(
        self, wanted: GrantFilter, limit: int
    ) -> AsyncIterator[tuple[str, Versioned[GrantHead] | None]]: ...

    def opened(self, head: Versioned[GrantHead]) -> GrantView: ...

    def views(self) -> AsyncIterator[GrantView]: ...

    def heads(self) -> AsyncIterator[GrantHead]: ...

    def in_memory(self) -> Iterable[GrantView]: ...

    async def view(self, key: GrantKey) -> GrantView | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One numbered page of a window, the latest changed first. `goes_on` is the place after which the next window
    begins; None after the last."""

    rows: tuple[GrantView, ...]
    count: int
    page: int
    pages: int
    goes_on: str | None


@dataclass(frozen=True, slots=True)
class Sample:
    """The first grants in the store's order. There are about `times` as many; exactly these where it is 1."""

    rows: tuple[GrantView, ...]
    times: float


class GrantPages:
    """Reads pages, estimates counts, and finds grants by their ids."""

    def __init__(self, source: GrantSource, clock: Clock) -> None:
        self._source = source
        self._sample = Snapshot(self._read_sample, clock)
        self._known = Bounded[str, GrantKey](KNOWN)
        self._wanted = Counter[str]()
        self._search = Snapshot(self._read_wanted, clock)

    def forget(self) -> None:
        """Read the sample anew at the next look, because something was changed here."""
        self._sample.forget()

    async def sample(self) -> Sample:
        """Return a sample, as of a few seconds ago; read once, however many look at once."""
        return await self._sample.recent()

    async def everything(self) -> AsyncIterator[GrantView]:
        """Yield every grant, in no order. Reads the whole store; token calls go on meanwhile."""
        async for view in self._source.views():
            yield view

    async def some(self) -> AsyncIterator[GrantView]:
        """Yield every grant of a store that a page may read whole. Of a larger one, those that are in memory, as they
        were when they were last read, and the first ones of the store's order."""
        sample = await self.sample()
        if sample.times == 1:
            async for view in self.everything():
                yield view
            return
        for view in sample.rows:
            yield view
        for number, view in enumerate(self._source.in_memory()):
            yield view
            if number % BREATH == 0:
                await asyncio.sleep(0)

    async def numbered(self, wanted: GrantFilter) -> Found:
        """Return the page of that number in a window, or its last one. The first window begins with the grants whose
        subject or id is exactly the text."""
        fitting = list[Versioned[GrantHead] | GrantView]()
        if wanted.reads_heads:
            heads, goes_on = await self._walk(self._source.heads_in_order(wanted, LOOKED + 1), wanted, WINDOW)
            fitting += heads
        else:
            views, goes_on = await self._walk(self._source.in_order(wanted, LOOKED + 1), wanted, WINDOW)
            fitting += [*(await self._exact(wanted)), *views] if goes_on is not None and wanted.after is None else views
        by_key = {_head(it).key: it for it in fitting}
        rows = sorted(by_key.values(), key=lambda it: (_head(it).updated_at, _head(it).key), reverse=True)
        pages = max(1, -(-len(rows) // PAGE))
        page = min(max(1, wanted.page), pages)
        shown = tuple(it for each in rows[(page - 1) * PAGE : page * PAGE] if (it := self._opened(each)) is not None)
        return Found(rows=shown, count=len(rows), page=page, pages=pages, goes_on=goes_on)

    def _opened(self, found: Versioned[GrantHead] | GrantView) -> GrantView | None:
        """Return a grant, and remember its id. None if the rest of its record cannot be read."""
        with suppress(BrokerError):
            view = found if isinstance(found, GrantView) else self._source.opened(found)
            self._known.keep(view.id, view.key)
            return view
        return None

    async def page(self, wanted: GrantFilter, limit: int) -> tuple[list[GrantView], str | None]:
        """Return a page in the store's order, and the place after which the next one begins; None after the last. A
        page may be short, or empty, where few grants fit: it looks at `LOOKED`."""
        found, goes_on = await self._walk(self._source.in_order(wanted, LOOKED + 1), wanted, limit)
        for view in found:
            self._known.keep(view.id, view.key)
        return found, goes_on

    async def find(self, grant_id: str) -> GrantView | None:
        """Return a grant as it is now. One that is not known is looked for in the whole store, with a pause between two
        searches, so that many are looked for together."""
        key = self._known.get(grant_id)
        view = None if key is None else await self._source.view(key)
        if view is not None:
            return view
        self._wanted[grant_id] += 1
        try:
            return (await self._search.fresh_after_pause()).get(grant_id)
        finally:
            self._wanted -= Counter({grant_id: 1})

    @staticmethod
    async def _walk(
        read: AsyncIterator[tuple[str, T | None]], wanted: GrantFilter, most: int
    ) -> tuple[list[T], str | None]:
        """Return the first that fit of those that are read, and the place after which the others begin."""
        found, looked, last = list[T](), 0, wanted.after or ""
        async for place, each in read:
            fits = each is not None and wanted.fits(_head(each))
            if looked == LOOKED or (fits and len(found) == most):
                return found, last
            if each is not None and fits:
                found.append(each)
            looked, last = looked + 1, place
        return found, None

    async def _exact(self, wanted: GrantFilter) -> list[GrantView]:
        """Return the grants whose subject is the text, or the one whose id it is, and those of the first grants of an
        app that are of the account `name@account`."""
        text = wanted.text.strip()
        if _ID.fullmatch(text):
            grant = await self.find(text)
            return [grant] if grant is not None and wanted.fits(grant) else []
        found = (await self.page(replace(wanted, subject=text), WINDOW))[0] if text else []
        if "@" in text:
            found += [it for it in (await self.page(replace(wanted, app=text), WINDOW))[0] if wanted.fits(it)]
        return found

    async def _read_sample(self) -> Sample:
        rows, looked, last = list[GrantView](), 0, ""
        async for place, view in self._source.in_order(GrantFilter(), LOOKED + 1):
            if looked == LOOKED:
                return Sample(tuple(rows), _VALUES / (int(last.partition(".")[0], 16) + 1))
            rows += () if view is None else (view,)
            looked, last = looked + 1, place
        return Sample(tuple(rows), 1.0)

    async def _read_wanted(self) -> dict[str, GrantView]:
        """Look for the wanted ids, and remember the others that are passed, as far as there is space."""
        wanted, found = set(self._wanted), dict[str, GrantView]()
        async for head in self._source.heads():
            if (grant_id := head.id) in wanted and (view := await readable(self._source.view(head.key))) is not None:
                found[grant_id] = view
            if len(self._known) < KNOWN:
                self._known.keep(grant_id, head.key)
            if len(found) == len(wanted):
                break
        return found


def _head(found: Versioned[GrantHead] | GrantView) -> GrantHead | GrantView:
    return found if isinstance(found, GrantView) else found.record
