"""What a plug-in keeps: JSON by key, apart from other plug-ins, found by their plug-in, removed with its subjects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.plugin_services.pinned_texts import PinnedTexts
from oauthbroker.plugin_services.plugin_state import MOST_KEY, PluginState
from oauthbroker.repository.plugin_values import KIND, MOST_BYTES
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.format.port import Conflict, Entry, Store
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing.stores import open_file_store
from tests.kit.hostile_values import nested

ALICE, BOB = "slack:user:T1:U1", "slack:user:T1:U2"


@pytest.fixture(params=["files", "memory"])
async def repository(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Repository]:
    store: Store = (
        open_file_store(tmp_path)
        if request.param == "files"
        else MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=SystemClock())
    )
    yield Repository(store, on_damage=lambda place, code: None)
    await store.close()


@pytest.fixture
def state(repository: Repository) -> PluginState:
    return PluginState(repository.plugin_values, "library")


async def everything(state: PluginState) -> dict[str, Any]:
    return {key: value async for key, value in state.all()}


async def test_a_value_is_read_back_as_it_was_by_another_process_too(
    repository: Repository, state: PluginState
) -> None:
    value = {"list": [1, 2.5, None, True], "text": "책 \x00", "": {}}
    assert value == await state.change("loans", lambda _: value)
    assert value == await state.get("loans")
    again = PluginState(Repository(repository.plugin_values.store).plugin_values, "library")
    assert value == await again.get("loans")


async def test_change_gets_the_newest_value_and_none_removes_it(state: PluginState) -> None:
    assert await state.get("count") is None
    for expected in (1, 2, 3):
        assert expected == await state.change("count", lambda there: (there or 0) + 1)
    assert await state.change("count", lambda _: None) is None
    assert await state.get("count") is None
    assert await state.change("count", lambda _: None) is None
    assert {} == await everything(state)


@pytest.mark.parametrize("value", [0, False, "", [], {}])
async def test_an_empty_value_is_a_value(state: PluginState, value: object) -> None:
    await state.change("empty", lambda _: value)
    assert {"empty": value} == await everything(state)


async def test_no_change_of_concurrent_writers_is_lost(state: PluginState) -> None:
    await asyncio.gather(*(state.change("n", lambda there: [*(there or []), 1]) for _ in range(100)))
    assert [1] * 100 == await state.get("n")


async def test_a_change_that_others_overtake_for_ever_is_refused(
    repository: Repository, state: PluginState, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def overtaken(*_: object, **__: object) -> Entry:
        raise Conflict

    monkeypatch.setattr(repository.plugin_values.store, "put", overtaken)
    with pytest.raises(BrokerError) as refused:
        await state.change("n", lambda _: 1)
    assert Code.STORE_LOCKED is refused.value.code


async def test_plugins_do_not_see_each_others_values(repository: Repository, state: PluginState) -> None:
    other = PluginState(repository.plugin_values, "kitchen")
    await state.change("key", lambda _: "ours")
    await other.change("key", lambda _: "theirs")
    assert ("ours", {"key": "ours"}) == (await state.get("key"), await everything(state))
    assert await other.remove("key")
    assert ({"key": "ours"}, {}) == (await everything(state), await everything(other))


async def test_remove_says_whether_there_was_a_value(state: PluginState) -> None:
    await state.change("key", lambda _: 1)
    assert [True, False] == [await state.remove("key"), await state.remove("key")]


@pytest.mark.parametrize(
    "removed", [lambda it: it.remove("key"), lambda it: it.change("key", lambda _: None)], ids=["remove", "change"]
)
async def test_a_value_whose_removal_fails_is_still_found_with_the_others(
    repository: Repository, state: PluginState, monkeypatch: pytest.MonkeyPatch, removed: Any
) -> None:
    async def full(*_: object, **__: object) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    await state.change("key", lambda _: 1)
    with monkeypatch.context() as patch:
        patch.setattr(repository.plugin_values.store, "delete", full)
        with pytest.raises(BrokerError):
            await removed(state)
    assert {"key": 1} == await everything(state)


async def test_a_value_that_another_call_has_removed_is_gone_durably_before_remove_says_so(
    repository: Repository, state: PluginState, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(kind: str) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE, note=kind)

    await state.change("key", lambda _: 1)
    assert await state.remove("key")
    monkeypatch.setattr(repository.plugin_values.store, "sync", failing)
    with pytest.raises(BrokerError) as refused:
        await state.remove("key")
    assert KIND == refused.value.note


@pytest.mark.parametrize(
    "value",
    [object(), {1: "a"}, (1, 2), float("nan"), float("inf"), "\ud800", {"\ud800": 1}, b"bytes", "x" * MOST_BYTES],
    ids=["an object", "a number as a key", "a tuple", "NaN", "infinity", "half a pair", "half a pair as a key", "bytes", "too large"],
)  # fmt: skip
async def test_a_value_that_would_not_come_back_as_it_was_is_refused(state: PluginState, value: object) -> None:
    await state.change("key", lambda _: "before")
    with pytest.raises(BrokerError) as refused:
        await state.change("key", lambda _: value)
    assert Code.REQUEST_INVALID is refused.value.code
    assert "before" == await state.get("key")


@pytest.mark.parametrize("levels", [1, 128, 129, 199, 200, 600])
async def test_a_value_that_is_written_is_read_again(state: PluginState, levels: int) -> None:
    value = nested(levels)
    if levels <= 128:
        await state.change("deep", lambda _: value)
        assert value == await state.get("deep")
        return
    with pytest.raises(BrokerError, match="more than 128 levels: put the inner ones into a text"):
        await state.change("deep", lambda _: value)
    assert await state.get("deep") is None


async def test_a_value_that_is_nested_without_end_is_refused(state: PluginState) -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(BrokerError) as refused:
        await state.change("key", lambda _: deep)
    assert Code.REQUEST_INVALID is refused.value.code


@pytest.mark.parametrize("key", ["", "x" * (MOST_KEY + 1), 7, None])
async def test_a_key_is_a_text_of_bounded_length(state: PluginState, key: Any) -> None:
    for call in (state.get(key), state.change(key, lambda _: 1), state.remove(key)):
        with pytest.raises(BrokerError) as refused:
            await call
        assert Code.REQUEST_INVALID is refused.value.code


async def test_subjects_stay_with_a_value_until_they_are_given_anew(repository: Repository, state: PluginState) -> None:
    async def about(subject: str) -> list[str]:
        return [found.key async for found in repository.plugin_values.about(subject)]

    await state.change("loan", lambda _: 1, subjects=lambda _: [ALICE])
    await state.change("loan", lambda _: 2)
    assert (["loan"], []) == (await about(ALICE), await about(BOB))
    await state.change("loan", lambda _: 3, subjects=lambda _: [BOB])
    assert ([], ["loan"]) == (await about(ALICE), await about(BOB))
    with pytest.raises(BrokerError) as refused:
        await state.change("loan", lambda _: 4, subjects=lambda _: [""])
    assert Code.REQUEST_INVALID is refused.value.code


async def test_a_damaged_value_is_an_error_and_no_missing_value_and_can_be_removed(tmp_path: Path) -> None:
    store = open_file_store(tmp_path)
    state = PluginState(Repository(store, on_damage=lambda place, code: None).plugin_values, "library")
    await state.change("broken", lambda _: 1)
    await state.change("sound", lambda _: 2)
    file = tmp_path / "store" / "data" / KIND / store.key(KIND, "library", "broken").name
    file.write_bytes(file.read_bytes()[:-1])
    for call in (state.get("broken"), state.change("broken", lambda _: 3)):
        with pytest.raises(BrokerError) as refused:
            await call
        assert Code.RECORD_CORRUPT is refused.value.code
    assert {"sound": 2} == await everything(state)
    assert await state.remove("broken")
    assert 4 == await state.change("broken", lambda _: 4)
    await store.close()


async def test_a_lease_keeps_out_others_of_the_plugin_and_no_other_plugin(
    repository: Repository, state: PluginState
) -> None:
    other = PluginState(repository.plugin_values, "kitchen")
    async with state.lease("send", wait=1) as lease, other.lease("send", wait=1):
        assert not lease.lost
        with pytest.raises(BrokerError) as busy:
            async with state.lease("send", wait=0.01):
                pass
        assert Code.STORE_LOCKED is busy.value.code
        assert 1 == await state.change("key", lambda _: 1), "it blocks no write"


@pytest.mark.parametrize("found", [ALICE, None, 7])
async def test_subjects_that_are_no_list_are_refused_and_nothing_is_stored(state: PluginState, found: Any) -> None:
    with pytest.raises(BrokerError, match="returned no list"):
        await state.change("loan", lambda _: 1, subjects=lambda _: found)
    assert await state.get("loan") is None


async def test_a_group_of_pinned_texts_that_looks_like_a_place_is_refused(state: PluginState) -> None:
    with pytest.raises(ValueError, match="no `/`"):
        await PinnedTexts(state).compare("https://x.example/feed", {"t": "old"})


async def test_neither_values_nor_subjects_are_readable_in_the_store(tmp_path: Path) -> None:
    store = open_file_store(tmp_path)
    state = PluginState(Repository(store).plugin_values, "library")
    await state.change("the key", lambda _: "the value", subjects=lambda _: [ALICE])
    await store.close()
    for file in tmp_path.rglob("*"):
        for text in ("the key", "the value", ALICE, "library"):
            assert text not in str(file.relative_to(tmp_path))
            assert not file.is_file() or text.encode() not in file.read_bytes()
