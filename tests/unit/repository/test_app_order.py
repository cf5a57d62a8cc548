"""Pages of an app with very many grants cost what a page of all costs, and hold each of its grants once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from oauthbroker.grants.grant_pages import GrantFilter, GrantPages
from oauthbroker.grants.grants import GrantList
from oauthbroker.repository import app_order
from oauthbroker.repository.app_order import FEW, FITTING, LOOK, SOME, has_very_many
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.file.tags import TagFiles
from oauthbroker.testing import TestClock
from oauthbroker.testing.stores import open_file_store
from tests.unit.records import kit

HALF, TENTH, RARE, ALL = 2, 10, 100, 1


class Places:
    """The first places of a store with `count` grants, of which one in `every` is the app's."""

    def __init__(self, count: int, every: int) -> None:
        self.count, self.every, self.looked = count, every, 0

    async def first(self) -> AsyncIterator[tuple[str, bool]]:
        for number in range(min(LOOK, self.count)):
            self.looked += 1
            yield f"{(number + 1) * (2**128 // (self.count + 1)):032x}.{number:064x}", number % self.every == 0


STORES: dict[str, tuple[int, int, bool, int]] = {
    "no grants": (0, ALL, False, 0),
    "a few": (SOME - 1, ALL, False, SOME - 1),
    "a thousand": (1_000, ALL, False, SOME),
    "fewer than a page may read": (FEW - 1_000, ALL, False, SOME),
    "a million, all of the app": (1_000_000, ALL, True, SOME),
    "a million, half of them": (1_000_000, HALF, True, SOME),
    "a million, a tenth of them": (1_000_000, TENTH, True, (FITTING - 1) * TENTH + 1),
    "a million, the app is rare": (1_000_000, RARE, False, LOOK),
    "a hundred thousand, a tenth of them": (100_000, TENTH, False, LOOK),
}


@pytest.mark.parametrize(("count", "every", "many", "most"), STORES.values(), ids=STORES)
async def test_few_places_tell_whether_an_app_has_very_many_grants(
    count: int, every: int, many: bool, most: int
) -> None:
    places = Places(count, every)
    assert many == await has_very_many(places.first())
    assert places.looked <= most


async def test_an_app_with_very_many_is_read_page_by_page_without_all_its_tags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_file_store(tmp_path, kinds=KINDS, lease_kinds=LEASES)
    repository, clock = Repository(store), TestClock()
    for number in range(60):
        saved = replace(kit.grant(), subject=f"s-{sha256(bytes([number])).hexdigest()}")
        await repository.save_grant(replace(saved, app=("mail", "chat")[number % 2]), expect=0)
    pages, labels = GrantPages(GrantList(repository, clock), clock), list[str]()
    read = TagFiles.places

    def noted(self: TagFiles, kind: str, label: str, after: str, most: int) -> list[str]:
        labels.append(label)
        return read(self, kind, label, after, most)

    async def subjects_of(after: str | None) -> list[str]:
        found = list[str]()
        while True:
            page, after = await pages.page(GrantFilter(app="mail", after=after), 7)
            found += [each.subject for each in page]
            if after is None:
                return found

    own = await subjects_of(None)
    _, begun = await pages.page(GrantFilter(app="mail"), 7)
    monkeypatch.setattr(app_order, "FEW", 20)
    monkeypatch.setattr(TagFiles, "places", noted)
    many = await subjects_of(None)
    assert {"who"} == set(labels)
    assert sorted(own) == sorted(many)
    assert 30 == len(set(many))
    labels.clear()
    assert own[7:] == await subjects_of(begun), "a page that began in the app's own order goes on in it"
    assert {"app"} == set(labels)
    await store.close()
