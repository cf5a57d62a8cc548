"""Background work: one record that cannot be read, written or removed keeps no other one waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.records.use import GrantUse
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.format.port import Entry, Key
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from oauthbroker.testing.stores import open_keyring
from tests.kit.broker_process import Process
from tests.kit.running_broker import turn

Spoil = Callable[[Path, Path], None]


def flipped(path: Path, _: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])


def emptied(path: Path, _: Path) -> None:
    path.write_bytes(b"")


def misplaced(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def a_folder(path: Path, _: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


SPOILS: list[Spoil] = [flipped, emptied, misplaced, a_folder]
EACH_SPOIL = pytest.mark.parametrize("spoil", SPOILS, ids=lambda each: each.__name__)


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    process = Process.start(tmp_path / "store", open_keyring(tmp_path), [])
    yield process
    await process.die()


async def spoilt(process: Process, tmp_path: Path, kind: str, spoil: Spoil, locators: list[str]) -> None:
    """The first of two records, made to look like the other one where that is the damage."""
    await asyncio.sleep(0.03)
    one, other = (tmp_path / "store" / "data" / kind / process.store.key(kind, each).name for each in locators)
    spoil(one, other)


@pytest.mark.case("65", "67")
@EACH_SPOIL
async def test_a_damaged_use_keeps_no_other_from_being_written_and_no_browser_session_from_being_swept(
    process, tmp_path, spoil
):
    parts, clock = process.parts, process.clock
    for grant in ("a", "b"):
        parts.uses.note(grant, "planner", None, clock.now())
    await parts.uses.write()
    await spoilt(process, tmp_path, "uses", spoil, ["a", "b"])
    await parts.browser_sessions.enter("ops", "")
    clock.advance(3600)
    for grant in ("a", "b"):
        parts.uses.note(grant, "writer", None, clock.now())
    await process.running._tend()
    assert 0 == await process.store.count("browsersessions")
    seen: dict[str, GrantUse] = {use.grant: use async for use in parts.uses.all()}
    assert "writer" == seen["b"].agent
    assert ("a" in seen) is (spoil is not a_folder), "an unreadable record is replaced, a planted folder is not touched"


@pytest.mark.case("65")
@pytest.mark.parametrize("spoil", [flipped, emptied], ids=lambda each: each.__name__)
async def test_a_damaged_use_can_be_forgotten(process, tmp_path, spoil):
    uses = process.parts.uses
    for grant in ("a", "b"):
        uses.note(grant, "planner", None, process.clock.now())
    await uses.write()
    await spoilt(process, tmp_path, "uses", spoil, ["a", "b"])
    await uses.forget("a")
    assert 1 == await process.store.count("uses")


class Stubborn(MemoryStore):
    """Does not let go of one record, and does not take it."""

    stuck: Key | None = None

    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        self._refuse(key)
        return await super().put(key, body, **more)

    async def delete(self, key: Key, *, expect: int) -> None:
        self._refuse(key)
        await super().delete(key, expect=expect)

    def _refuse(self, key: Key) -> None:
        if key == self.stuck:
            raise BrokerError(Code.STORE_UNAVAILABLE)


@pytest.mark.parametrize("kind", ["turns", "browsersessions", "tombstones", "uses"])
async def test_a_record_that_the_store_keeps_refusing_stops_no_other(kind):
    """In any order: each of three is the stubborn one once."""
    for number in range(3):
        clock = TestClock()
        store: Any = Stubborn(kinds=KINDS, lease_kinds=LEASES, clock=clock)
        process = Process.on(store, [], clock)
        await three_of(process, kind)
        clock.advance(7 * 24 * 3600)
        entries = sorted([entry.key.name async for entry in store.scan(kind)])
        store.stuck = Key(kind, entries[number])
        await process.running._tend()
        if kind == "uses":
            assert 2 == sum([use.agent == "writer" async for use in process.parts.uses.all()])
        else:
            assert 1 == await store.count(kind)
        await process.die()


async def three_of(process: Process, kind: str) -> None:
    broker = process.broker
    for number in range(3):
        if kind in {"turns", "tombstones"}:
            begun = await broker.turns.begin(turn())
            if kind == "tombstones":
                await broker.turns.end(begun.turn_id)
        elif kind == "browsersessions":
            await process.parts.browser_sessions.enter("ops", "")
        else:
            process.parts.uses.note(str(number), "planner", None, process.clock.now())
    if kind == "uses":
        await process.parts.uses.write()
        process.clock.advance(3600)
        for number in range(3):
            process.parts.uses.note(str(number), "writer", None, process.clock.now())
