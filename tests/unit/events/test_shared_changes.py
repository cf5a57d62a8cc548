"""Changes that wait for a lock at the same time share one opening and one write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.events.shared_changes import SharedChanges


class World:
    """A state behind a lock, and each write of it."""

    def __init__(self) -> None:
        self.lock, self.written = asyncio.Lock(), list[list[str]]()
        self.changes = SharedChanges[list[str]]()
        self.fails: BrokerError | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[list[str]]:
        async with self.lock:
            if self.fails is not None:
                raise self.fails
            yield (state := list[str]())
            await asyncio.sleep(0)
            self.written.append(state)

    async def add(self, word: str, key: str = "key") -> None:
        async with self.changes.change(key, self.opened) as state:
            state.append(word)
            if word == "bad":
                raise ValueError(word)


async def test_changes_that_wait_are_written_once_in_the_order_in_which_they_came():
    world = World()
    await asyncio.gather(*map(world.add, "abcd"))
    assert world.written == [["a"], ["b", "c", "d"]], "the first one came alone"


async def test_a_change_that_comes_after_the_lock_was_taken_is_of_the_next_write():
    world = World()
    async with world.changes.change("key", world.opened) as state:
        later = asyncio.create_task(world.add("b"))
        await asyncio.sleep(0)
        state.append("a")
    await later
    assert world.written == [["a"], ["b"]]


async def test_changes_of_other_keys_share_nothing():
    world = World()
    await asyncio.gather(world.add("a", "one"), world.add("b", "other"))
    assert world.written == [["a"], ["b"]]


async def test_a_body_that_raises_raises_to_its_own_caller_after_the_lock_is_free():
    world = World()
    outcomes = await asyncio.gather(*map(world.add, ["a", "b", "bad", "c"]), return_exceptions=True)
    assert [type(each) for each in outcomes] == [type(None), type(None), ValueError, type(None)]
    assert world.written == [["a"], ["b", "bad", "c"]]
    with pytest.raises(ValueError, match="bad"):
        await world.add("bad")
    assert not world.lock.locked()


async def test_a_lock_that_is_not_had_is_told_to_every_caller_and_the_next_one_tries_again():
    world = World()
    world.fails = BrokerError(Code.STORE_LOCKED)
    outcomes = await asyncio.gather(*map(world.add, "abc"), return_exceptions=True)
    assert outcomes == [world.fails] * 3
    world.fails = None
    await world.add("d")
    assert world.written == [["d"]]


async def test_a_cancelled_caller_leaves_at_once_while_the_others_go_on_waiting():
    world = World()
    async with world.lock:
        alone, first, second = (asyncio.create_task(world.add(word)) for word in ("alone", "a", "b"))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.wait([first])
        assert not alone.done()
        assert not second.done()
    await second
    assert world.written == [["alone"], ["b"]]


async def test_the_last_caller_that_is_cancelled_ends_the_wait_and_the_next_one_begins_anew():
    world = World()
    async with world.lock:
        waits = [asyncio.create_task(world.add(word)) for word in ("alone", "a", "b")]
        await asyncio.sleep(0.01)
        for each in waits:
            each.cancel()
        await asyncio.wait(waits)
        later = asyncio.create_task(world.add("c"))
        await asyncio.sleep(0.01)
    await later
    assert world.written == [["c"]]


async def test_a_caller_that_is_cancelled_after_its_change_waits_for_the_write():
    world, changed = World(), asyncio.Event()

    async def add() -> None:
        async with world.changes.change("key", world.opened) as state:
            state.append("a")
            changed.set()

    async with world.lock:
        alone, task = asyncio.create_task(world.add("alone")), asyncio.create_task(add())
        await asyncio.sleep(0.01)
    await changed.wait()
    task.cancel()
    await asyncio.wait([alone, task])
    assert task.cancelled()
    assert world.written == [["alone"], ["a"]]
