"""A due marker is opened once: while its file is unchanged it is known to be there."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.repository.repository import Repository
from oauthbroker.store.format.port import Entry, Key
from oauthbroker.testing.stores import open_file_store
from tests.unit.records import kit


async def test_a_mark_that_is_there_is_not_opened_again_and_one_that_was_settled_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, opened = open_file_store(tmp_path), list[str]()
    get = store.get

    async def noting(key: Key) -> Entry | None:
        opened.append(key.kind)
        return await get(key)

    repository, unfinished = Repository(store), kit.grant(outbox=(kit.event(),))
    first = await repository.save_grant(unfinished, expect=0)
    monkeypatch.setattr(store, "get", noting)
    second = await repository.save_grant(unfinished, expect=first.generation)
    assert [] == opened
    other = Repository(store)
    (due,) = await other.due()
    await other.markers.settle(due)
    opened.clear()
    await repository.save_grant(unfinished, expect=second.generation)
    assert ["due"] == opened
    assert 1 == len(await other.due())
