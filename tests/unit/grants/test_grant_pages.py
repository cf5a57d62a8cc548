"""The one pager of grants: each fitting grant once, page by page or by number, and a page reads a bounded number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.grants import grant_pages
from oauthbroker.grants.grant_pages import LOOKED, PAGE, PLACE, WINDOW, GrantFilter, GrantPages
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_request import split_ref
from oauthbroker.records.grant_head import GrantHead
from oauthbroker.records.grant_view import GrantHealth, GrantView
from oauthbroker.repository.repository import Versioned
from oauthbroker.store.format.port import Entry, Key
from oauthbroker.testing import TestClock
from tests.unit.records.kit import grant

NOW = datetime(2026, 1, 1, 9, tzinfo=UTC)
HEALTHS: tuple[GrantHealth, ...] = ("alive", "again", "ended")
VIEW = GrantView.of(grant(), None, NOW)
FILTERS: dict[str, tuple[GrantFilter, Callable[[GrantView], bool]]] = {
    "app": (GrantFilter(app="mail"), lambda it: it.app == "mail"),
    "subject": (GrantFilter(subject="s-1"), lambda it: it.subject == "s-1"),
    "state": (GrantFilter(state="revoked"), lambda it: it.revoked),
    "health": (GrantFilter(health="again"), lambda it: it.health == "again"),
    "text": (GrantFilter(text="S-1"), lambda it: "s-1" in it.subject),
    "id": (GrantFilter(text="sha256:0"), lambda it: it.id.startswith("sha256:0")),
    "all": (GrantFilter(), lambda _: True),
}


def view(number: int) -> GrantView:
    health = HEALTHS[number % 3]
    return replace(
        VIEW, app=("mail", "chat")[number % 2], subject=f"s-{number // 4}",
        account=f"a{number}",
        health=health, revoked=health == "ended", updated_at=NOW + timedelta(seconds=number % 5),
    )  # fmt: skip


class Store:
    """Grants in the order of the hashes of their subjects. `read` counts those that were read, `scans` the looks at
    all."""

    def __init__(self, count: int) -> None:
        self.damaged: GrantView | None = None
        self.grants, self.read, self.scans = [view(number) for number in range(count)], 0, 0
        self.placed = sorted((place_of(each), each) for each in self.grants)

    async def in_order(self, wanted: GrantFilter, limit: int) -> AsyncIterator[tuple[str, GrantView | None]]:
        app = None if not wanted.app else split_ref(wanted.app)[0]
        for place, each in self.placed:
            if app in {None, each.app} and wanted.subject in {None, each.subject} and place > (wanted.after or ""):
                if not limit:
                    return
                limit, self.read = limit - 1, self.read + 1
                yield place, each

    async def views(self) -> AsyncIterator[GrantView]:
        self.scans += 1
        for each in self.grants:
            self.read += 1
            yield each

    async def heads(self) -> AsyncIterator[GrantHead]:
        async for each in self.views():
            yield head_of(each)

    async def heads_in_order(
        self, wanted: GrantFilter, limit: int
    ) -> AsyncIterator[tuple[str, Versioned[GrantHead] | None]]:
        async for place, each in self.in_order(wanted, limit):
            yield (
                place,
                None if each is None else Versioned(head_of(each), Entry(Key("grants", ""), 1, b"", stamp=each)),
            )

    def opened(self, head: Versioned[GrantHead]) -> GrantView:
        view = head.entry.stamp
        assert isinstance(view, GrantView)
        if view is self.damaged:
            raise BrokerError(Code.RECORD_CORRUPT)
        return view

    def in_memory(self) -> list[GrantView]:
        return self.grants[-3:]

    async def view(self, key: GrantKey) -> GrantView | None:
        if self.damaged is not None and self.damaged.key == key:
            raise BrokerError(Code.RECORD_CORRUPT)
        return next((each for each in self.grants if each.key == key), None)


def head_of(view: GrantView) -> GrantHead:
    return GrantHead(view.created_at, view.key, view.updated_at, view.revoked, view.revocation_pending)


def place_of(grant: GrantView) -> str:
    digests = [sha256(text.encode()).hexdigest() for text in (grant.subject, grant.id)]
    return f"{digests[0][:32]}.{digests[1]}"


@settings(deadline=None)
@given(st.integers(0, 130), st.sampled_from(sorted(FILTERS)), st.integers(1, 60))
async def test_every_fitting_grant_is_on_one_page(count: int, name: str, limit: int) -> None:
    store, (wanted, fits) = Store(count), FILTERS[name]
    pages, fitting = GrantPages(store, TestClock()), [each for each in store.grants if fits(each)]
    in_order, after, goes_on = list[GrantView](), None, True
    while goes_on:
        found, after = await pages.page(replace(wanted, after=after), limit)
        assert len(found) <= limit
        assert len(in_order) <= len(fitting), "no grant comes twice"
        in_order, goes_on = in_order + found, after is not None
    assert sorted(fitting, key=place_of) == in_order
    first = await pages.numbered(wanted)
    numbered = [
        each for n in range(1, first.pages + 1) for each in (await pages.numbered(replace(wanted, page=n))).rows
    ]
    assert sorted(fitting, key=lambda it: (it.updated_at, it.key), reverse=True) == numbered
    assert (len(fitting), max(1, -(-len(fitting) // PAGE)), None) == (first.count, first.pages, first.goes_on)
    assert not store.scans


async def test_a_page_leaves_out_a_grant_whose_record_is_damaged_below_its_head() -> None:
    store = Store(PAGE)
    store.damaged = store.grants[7]
    rows = (await GrantPages(store, TestClock()).numbered(GrantFilter())).rows
    assert {each.key for each in store.grants if each is not store.damaged} == {each.key for each in rows}


async def test_a_page_beyond_the_last_is_the_last() -> None:
    pages = GrantPages(Store(PAGE + 1), TestClock())
    assert (2, 1) == ((last := await pages.numbered(GrantFilter(page=99))).page, len(last.rows))
    assert 1 == (await pages.numbered(GrantFilter(page=-3))).page


MANY = Store(3 * LOOKED)
LISTS: dict[str, tuple[GrantFilter, int]] = {
    "all": (GrantFilter(), WINDOW + 1),
    "an app": (GrantFilter(app="mail"), WINDOW + 1),
    "a subject": (GrantFilter(subject="s-7"), 4),
    "a state": (GrantFilter(health="again"), LOOKED + 1),
    "a text": (GrantFilter(text="S-77"), LOOKED + 1),
    "a subject as text": (GrantFilter(text="s-7"), LOOKED + 1 + 4),
    "nothing": (GrantFilter(health="ending"), LOOKED + 1),
}


@pytest.mark.parametrize(("wanted", "most"), LISTS.values(), ids=LISTS)
async def test_a_window_of_many_grants_opens_a_bounded_number_and_the_windows_hold_each_grant(
    wanted: GrantFilter, most: int
) -> None:
    pages, after, ids, count = GrantPages(MANY, TestClock()), None, set[str](), 0
    while True:
        MANY.read = 0
        window = await pages.numbered(replace(wanted, after=after))
        assert most >= MANY.read
        numbers = range(1, window.pages + 1)
        ids |= {it.id for n in numbers for it in (await pages.numbered(replace(wanted, after=after, page=n))).rows}
        count += 1
        if window.goes_on is None:
            break
        assert window.count <= WINDOW + 4
        after = window.goes_on
        assert PLACE.fullmatch(after)
    assert {it.id for it in MANY.grants if wanted.fits(it) and wanted.subject in {None, it.subject}} == ids
    assert not MANY.scans


@pytest.mark.parametrize("limit", [50, 100])
async def test_a_page_opens_no_more_than_its_rows_and_one(limit: int) -> None:
    pages, after = GrantPages(MANY, TestClock()), None
    for _ in range(3):
        MANY.read = 0
        found, after = await pages.page(GrantFilter(after=after), limit)
        assert (limit, limit + 1) == (len(found), MANY.read)


async def test_a_search_for_a_whole_subject_shows_it_in_the_first_window() -> None:
    last = MANY.placed[-1][1]
    [*found] = (await GrantPages(MANY, TestClock()).numbered(GrantFilter(text=f" {last.subject} "))).rows
    assert {it.id for it in MANY.grants if it.subject == last.subject} <= {it.id for it in found}


async def test_a_search_for_an_account_of_an_app_looks_through_the_first_grants_of_that_app() -> None:
    of_app = [it for _, it in MANY.placed if it.app == "chat"][:LOOKED]
    wanted = of_app[-1]
    found = await GrantPages(MANY, TestClock()).numbered(GrantFilter(text=f"chat@{wanted.account}"))
    assert MANY.placed.index((place_of(wanted), wanted)) > LOOKED
    assert wanted.id in {it.id for it in found.rows}
    other = GrantFilter(text=f"chat@{wanted.account}", app="mail")
    assert [] == [*(await GrantPages(MANY, TestClock()).numbered(other)).rows]


async def test_a_sample_is_all_of_a_few_and_an_estimate_of_many() -> None:
    few = await GrantPages(Store(99), TestClock()).sample()
    assert (99, 1.0) == (len(few.rows), few.times)
    MANY.read = 0
    many = await GrantPages(MANY, TestClock()).sample()
    assert (LOOKED, LOOKED + 1) == (len(many.rows), MANY.read)
    assert len(MANY.grants) * 0.9 < len(many.rows) * many.times < len(MANY.grants) * 1.1


async def test_some_grants_are_all_of_a_few_and_of_many_the_first_and_those_in_memory() -> None:
    few = Store(99)
    assert few.grants == [each async for each in GrantPages(few, TestClock()).some()]
    MANY.read = 0
    many = [each.id async for each in GrantPages(MANY, TestClock()).some()]
    assert (LOOKED + 3, LOOKED + 1, 0) == (len(many), MANY.read, MANY.scans)
    assert {each.id for each in MANY.in_memory()} <= {*many}


async def test_the_id_of_a_grant_that_a_page_has_shown_is_found_without_a_search() -> None:
    store = Store(3 * PAGE)
    pages = GrantPages(store, TestClock())
    shown, _ = await pages.page(GrantFilter(), PAGE)
    assert shown[7] == await pages.find(shown[7].id)
    before = store.scans
    hidden = next(it for it in store.grants if it not in shown)
    assert hidden == await pages.find(hidden.id)
    assert (0, 1) == (before, store.scans)
    store.grants.remove(shown[7])
    assert None is await pages.find(shown[7].id)


async def test_ids_that_are_looked_for_together_share_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grant_pages, "KNOWN", 0)
    store = Store(60)
    pages = GrantPages(store, TestClock())
    found = await asyncio.gather(*(pages.find(each.id) for each in store.grants), pages.find("sha256:none"))
    assert [*store.grants, None] == found
    assert 2 >= store.scans


async def test_a_search_goes_on_beyond_a_grant_whose_record_is_damaged_below_its_head() -> None:
    store = Store(3)
    store.damaged, sought = store.grants[0], store.grants[2]
    pages = GrantPages(store, TestClock())
    damaged, found = await asyncio.gather(pages.find(store.damaged.id), pages.find(sought.id))
    assert None is damaged
    assert sought == found
