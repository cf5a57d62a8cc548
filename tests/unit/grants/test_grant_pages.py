"""The one pager of grants: each fitting grant once, by id or by number, out of one reading of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.grants.grant_pages import PAGE, GrantFilter, GrantPages
from oauthbroker.records.grant_view import GrantHealth, GrantView
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
    "id": (GrantFilter(text="sha256:0000"), lambda it: it.id.startswith("sha256:0000")),
    "all": (GrantFilter(), lambda _: True),
}


def view(number: int) -> GrantView:
    health = HEALTHS[number % 3]
    return replace(
        VIEW, id=f"sha256:{number * 7919 % 10_000:04}", app=("mail", "chat")[number % 2], subject=f"s-{number // 4}",
        health=health, revoked=health == "ended", updated_at=NOW + timedelta(seconds=number % 5),
    )  # fmt: skip


class Store:
    def __init__(self, count: int) -> None:
        self.views, self.readings = [view(number) for number in range(count)], 0

    async def read(self, app: str | None, subject: str | None) -> AsyncIterator[GrantView]:
        """Those of one subject are found by their tags: that is no reading of all."""
        self.readings += app is None and subject is None
        for each in self.views:
            if app in {None, each.app} and subject in {None, each.subject}:
                yield each


@settings(deadline=None)
@given(st.integers(0, 130), st.sampled_from(sorted(FILTERS)), st.integers(1, 60))
async def test_every_fitting_grant_is_on_one_page(count: int, name: str, limit: int) -> None:
    store, (wanted, fits) = Store(count), FILTERS[name]
    pages, fitting = GrantPages(store.read, TestClock()), [each for each in store.views if fits(each)]
    by_id, goes_on, after = list[GrantView](), True, None
    while goes_on:
        found, goes_on = await pages.page(replace(wanted, after=after), limit)
        assert len(found) <= limit
        assert found or after is None, "a page that was promised has something on it"
        assert len(by_id) <= len(fitting), "no grant comes twice"
        by_id += found
        after = found[-1].id if found else None
    assert sorted(fitting, key=lambda it: it.id) == by_id
    first = await pages.numbered(wanted)
    numbered = [
        each for n in range(1, first.pages + 1) for each in (await pages.numbered(replace(wanted, page=n))).rows
    ]
    assert sorted(fitting, key=lambda it: (it.updated_at, it.id), reverse=True) == numbered
    assert (len(fitting), max(1, -(-len(fitting) // PAGE))) == (first.count, first.pages)
    assert 1 == store.readings, "lists of the API and of the pages share one reading"


async def test_a_page_beyond_the_last_is_the_last_and_a_change_is_read_anew() -> None:
    store = Store(PAGE + 1)
    pages = GrantPages(store.read, TestClock())
    assert (2, 1) == ((last := await pages.numbered(GrantFilter(page=99))).page, len(last.rows))
    pages.forget()
    assert 1 == (await pages.numbered(GrantFilter(page=-3))).page
    assert 2 == store.readings
