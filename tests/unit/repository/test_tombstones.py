"""Ended turns, removed keys and visits that are over: a copy of their record that is put back does not count."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.access.api_keys import ApiKeys
from oauthbroker.access.browser_sessions import BROWSER_SESSION_SECONDS, BrowserSessions
from oauthbroker.access.turns import Turns
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.settings import Settings
from oauthbroker.records.api_key import ApiKey
from oauthbroker.records.browser_session import BrowserSession
from oauthbroker.records.tombstone import Tombstone
from oauthbroker.records.turn_record import TurnRecord
from oauthbroker.repository.repository import KINDS, Repository
from oauthbroker.repository.tombstones import SWEEP_SECONDS
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.testing import TestClock
from oauthbroker.testing.stores import open_file_store
from tests.kit.samples import turn_with

ALICE = turn_with(user="acme:user:alice")


@dataclass
class Worker:
    """One process of a store, with caches of its own."""

    store: FileStore
    repository: Repository
    turns: Turns
    keys: ApiKeys
    browser_sessions: BrowserSessions

    @classmethod
    def on(cls, folder: Path, clock: TestClock, kinds: tuple[str, ...] = KINDS) -> Worker:
        store = open_file_store(folder, clock=clock, kinds=kinds)
        repository, audit, bundle = Repository(store, kinds=kinds), AuditList(), Bundle(Settings(), {})
        return cls(
            store,
            repository,
            Turns(
                records=repository.records("turns", TurnRecord.from_plaintext),
                config=CurrentConfig(bundle),
                clock=clock,
                audit=audit,
            ),
            ApiKeys(records=repository.records("apikeys", ApiKey.from_plaintext), clock=clock, audit=audit),
            BrowserSessions(records=repository.records("browsersessions", BrowserSession.from_plaintext), clock=clock),
        )

    async def sweep(self, clock: TestClock) -> int:
        assert self.repository.tombstones is not None
        return await self.repository.tombstones.sweep(clock)


@dataclass
class Right:
    """Something that is good until it is ended: whether it is good in a worker, and how it ends."""

    kind: str
    is_good: Callable[[Worker], Awaitable[bool]]
    end: Callable[[Worker], Awaitable[object]]


def refusing(ask: Callable[[Worker], Awaitable[object]]) -> Callable[[Worker], Awaitable[bool]]:
    async def is_good(worker: Worker) -> bool:
        try:
            return bool(await ask(worker))
        except BrokerError as error:
            if error.code not in {Code.TURN_ENDED, Code.UNAUTHENTICATED}:
                raise
            return False

    return is_good


async def a_turn(worker: Worker, _: TestClock) -> Right:
    begun = await worker.turns.begin(ALICE, ttl_seconds=900)
    text = begun.token.reveal()
    return Right("turns", refusing(lambda w: w.turns.admit(text)), lambda w: w.turns.end(begun.turn_id))


async def a_removed_key(worker: Worker, _: TestClock) -> Right:
    key, text = await worker.keys.create("runtime", ["runtime"])
    return Right("apikeys", refusing(lambda w: w.keys.check(text.reveal())), lambda w: w.keys.remove(key.id))


async def a_rotated_key(worker: Worker, clock: TestClock) -> Right:
    _, text = await worker.keys.create("runtime", ["runtime"])

    async def rotate(by: Worker) -> None:
        await by.keys.rotate("runtime", overlap_seconds=60)
        clock.advance(60)

    return Right("apikeys", refusing(lambda w: w.keys.check(text.reveal())), rotate)


async def a_browser_session(worker: Worker, _: TestClock) -> Right:
    arrival = await worker.browser_sessions.enter("operator", "key-1")
    cookie = arrival.cookie.reveal()
    return Right(
        "browsersessions",
        lambda w: _is(w.browser_sessions.admit(cookie, "admin")),
        lambda w: w.browser_sessions.end(arrival.browser_session),
    )


async def _is(found: Awaitable[BrowserSession | None]) -> bool:
    return await found is not None


RIGHTS = pytest.mark.parametrize("right", [a_turn, a_removed_key, a_rotated_key, a_browser_session])
Making = Callable[[Worker, TestClock], Awaitable[Right]]


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


def copied(folder: Path, kind: str) -> Path:
    """A copy of all records of a kind, as a backup or an attacker takes it."""
    copy = folder / f"copy-of-{kind}"
    shutil.copytree(folder / "store" / "data" / kind, copy)
    return copy


def put_back(folder: Path, kind: str) -> None:
    """Put deleted and changed records back from the copy. Nothing else is touched."""
    there = folder / "store" / "data" / kind
    for each in (folder / f"copy-of-{kind}").iterdir():
        fresh = there / f"{each.name}.new"
        shutil.copy2(each, fresh)
        fresh.replace(there / each.name)


@pytest.mark.case("68", "79")
@RIGHTS
async def test_a_record_that_is_put_back_after_its_end_is_no_good_in_any_process(
    tmp_path: Path, clock: TestClock, right: Making
) -> None:
    ours, other = Worker.on(tmp_path, clock), Worker.on(tmp_path, clock)
    given = await right(ours, clock)
    assert [True, True] == [await given.is_good(ours), await given.is_good(other)]
    copied(tmp_path, given.kind)
    await given.end(ours)
    put_back(tmp_path, given.kind)
    for worker in (ours, other, Worker.on(tmp_path, clock)):
        assert not await given.is_good(worker)
        assert not await given.is_good(worker), "the second look comes from the cache"


@pytest.mark.case("68")
@RIGHTS
async def test_an_end_that_was_cut_off_before_the_record_went_is_an_end(
    tmp_path: Path, clock: TestClock, right: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Worker.on(tmp_path, clock)
    given = await right(ours, clock)
    copied(tmp_path, given.kind)

    async def full(*_: object, **__: object) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    with monkeypatch.context() as patch:
        for records in (ours.turns.records, ours.keys.records, ours.browser_sessions.records):
            patch.setattr(records, "remove", full)
            patch.setattr(records, "change", full)
        with pytest.raises(BrokerError):
            await given.end(ours)
    clock.advance(60)
    assert not await given.is_good(Worker.on(tmp_path, clock))


@pytest.mark.case("68")
async def test_a_removed_key_that_is_put_back_is_listed_as_expired_and_can_be_removed_again(
    tmp_path: Path, clock: TestClock
) -> None:
    worker = Worker.on(tmp_path, clock)
    key, _ = await worker.keys.create("runtime", ["runtime"])
    copied(tmp_path, "apikeys")
    assert await worker.keys.remove(key.id)
    assert [] == await worker.keys.list()
    put_back(tmp_path, "apikeys")
    [back] = await worker.keys.list()
    assert (key.id, False) == (back.id, back.alive_at(clock.now()))
    assert await worker.keys.remove(key.id)
    assert [] == await worker.keys.list()


@pytest.mark.case("68")
async def test_a_tombstone_goes_when_its_record_would_have_ended_by_itself(tmp_path: Path, clock: TestClock) -> None:
    worker = Worker.on(tmp_path, clock)
    turn, browser_session = await a_turn(worker, clock), await a_browser_session(worker, clock)
    lasting, rotated = await a_removed_key(worker, clock), await a_rotated_key(worker, clock)
    for each in (turn, browser_session, lasting):
        copied(tmp_path, each.kind)
        await each.end(worker)
    await rotated.end(worker)
    assert 0 == await worker.sweep(clock)
    clock.advance(840)
    assert 1 == await worker.sweep(clock), "the turn's, 900 seconds after it began"
    clock.advance(BROWSER_SESSION_SECONDS)
    assert 1 == await worker.sweep(clock)
    clock.advance(10 * 365 * 24 * 3600)
    assert 0 == await worker.sweep(clock), "a key without an end would work for ever"
    for each in (turn, browser_session, lasting):
        put_back(tmp_path, each.kind)
        assert not await each.is_good(Worker.on(tmp_path, clock))
    clock.advance(1)
    assert 0 == await worker.sweep(clock), f"there is no second look within {SWEEP_SECONDS} seconds"


DAY = timedelta(days=1)
STEPS = {"back": [-DAY], "forward": [DAY], "forward and back": [DAY, -DAY], "back and forward": [-DAY, DAY]}


@pytest.mark.case("59", "68")
@RIGHTS
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
async def test_no_step_of_the_clock_brings_back_an_ended_record(
    tmp_path: Path, clock: TestClock, right: Making, steps: list[timedelta]
) -> None:
    """Its tombstone neither waits for the time of day at which it was made, nor goes before that time has passed."""
    ours = Worker.on(tmp_path, clock)
    given = await right(ours, clock)
    copied(tmp_path, given.kind)
    await ours.sweep(clock)
    await given.end(ours)
    for step in steps:
        clock.set(clock.now() + step)
        clock.advance(SWEEP_SECONDS)
        await ours.sweep(clock)
    put_back(tmp_path, given.kind)
    assert [False, False] == [await given.is_good(ours), await given.is_good(Worker.on(tmp_path, clock))]


@pytest.mark.case("59", "68")
async def test_a_key_that_was_rotated_without_an_overlap_stays_over_when_the_clock_goes_back_a_little(
    tmp_path: Path, clock: TestClock
) -> None:
    worker = Worker.on(tmp_path, clock)
    _, text = await worker.keys.create("runtime", ["runtime"])
    clock.advance(600)
    await worker.keys.rotate("runtime", overlap_seconds=0)
    clock.set(clock.now() - timedelta(minutes=4))
    for each in (worker, Worker.on(tmp_path, clock)):
        with pytest.raises(BrokerError):
            await each.keys.check(text.reveal())


@pytest.mark.case("59", "68")
async def test_an_overlap_that_began_before_the_clock_was_set_back_is_over(tmp_path: Path, clock: TestClock) -> None:
    worker = Worker.on(tmp_path, clock)
    _, text = await worker.keys.create("runtime", ["runtime"])
    clock.advance(DAY.total_seconds() * 2)
    copied(tmp_path, "apikeys")
    await worker.keys.rotate("runtime", overlap_seconds=600)
    await worker.keys.check(text.reveal())
    clock.set(clock.now() - DAY)
    for put in (False, True):
        if put:
            put_back(tmp_path, "apikeys")
        for each in (worker, Worker.on(tmp_path, clock)):
            with pytest.raises(BrokerError):
                await each.keys.check(text.reveal())


@pytest.mark.case("59", "68")
@pytest.mark.parametrize("steps", [[-DAY, DAY], [timedelta(hours=1), -timedelta(hours=1)]], ids=["back", "forward"])
async def test_an_overlap_that_is_over_never_begins_again(
    tmp_path: Path, clock: TestClock, steps: list[timedelta]
) -> None:
    """Neither when a clock that was set back has caught up, nor when one goes back to before its end."""
    worker = Worker.on(tmp_path, clock)
    key, text = await worker.keys.create("runtime", ["runtime"])
    clock.advance(60)
    copied(tmp_path, "apikeys")
    new, _ = await worker.keys.rotate("runtime", overlap_seconds=600)
    assert 0 == await worker.keys.sweep()
    ends = {each.id: each.expires_at for each in await worker.keys.list()}
    for step in steps:
        clock.set(clock.now() + step)
        other = Worker.on(tmp_path, clock)
        await other.keys.sweep()
        assert 0 == await other.keys.sweep()
    for put in (False, True):
        if put:
            put_back(tmp_path, "apikeys")
        for each in (worker, Worker.on(tmp_path, clock)):
            with pytest.raises(BrokerError):
                await each.keys.check(text.reveal())
        if not put:
            assert ends == {each.id: each.expires_at for each in await worker.keys.list()}, "as it is shown"
    assert {key.id, new.id} == ends.keys()


@pytest.mark.case("59")
async def test_tombstones_do_not_pile_up_where_the_clock_is_set_back_again_and_again(
    tmp_path: Path, clock: TestClock
) -> None:
    worker, began, most = Worker.on(tmp_path, clock), clock.now(), 0
    for _ in range(12):
        begun = await worker.turns.begin(ALICE, ttl_seconds=900)
        assert await worker.turns.end(begun.turn_id)
        await worker.turns.begin(ALICE, ttl_seconds=900)
        clock.advance(1500)
        await worker.turns.sweep()
        await worker.sweep(clock)
        most = max(most, await worker.store.count("tombstones"), await worker.store.count("turns"))
        clock.set(began)
    assert most <= 2


@pytest.mark.case("66", "67")
@RIGHTS
async def test_a_tombstone_that_cannot_be_read_ends_its_record_all_the_same(
    tmp_path: Path, clock: TestClock, right: Making
) -> None:
    ours = Worker.on(tmp_path, clock)
    given = await right(ours, clock)
    copied(tmp_path, given.kind)
    await given.end(ours)
    put_back(tmp_path, given.kind)
    for file in (tmp_path / "store" / "data" / "tombstones").iterdir():
        file.write_bytes(file.read_bytes()[:-1] + b"\x00\x01")
    assert not await given.is_good(Worker.on(tmp_path, clock))
    clock.advance(10 * 365 * 24 * 3600)
    assert 0 == await ours.sweep(clock), "and it is not removed"


@pytest.mark.case("66")
async def test_a_damaged_tombstone_does_not_keep_a_turn_from_being_ended(tmp_path: Path, clock: TestClock) -> None:
    """A user who can write into the folder might plant one before."""
    ours, other = Worker.on(tmp_path, clock), Worker.on(tmp_path, clock)
    given = await a_turn(ours, clock)
    assert await given.is_good(other)
    [record] = (tmp_path / "store" / "data" / "turns").iterdir()
    planted = tmp_path / "store" / "data" / "tombstones" / record.name
    planted.touch(mode=0o600)
    planted.write_bytes(b"OAB1" + bytes(500))
    assert await given.end(ours)
    assert [False, False] == [await given.is_good(ours), await given.is_good(other)]
    clock.advance(900)
    assert 1 == await ours.sweep(clock), "it was replaced by a good one"


async def test_a_record_that_is_over_by_itself_leaves_no_tombstone(tmp_path: Path, clock: TestClock) -> None:
    worker = Worker.on(tmp_path, clock)
    await worker.turns.begin(ALICE, ttl_seconds=60)
    clock.advance(61)
    assert 1 == await worker.turns.sweep()
    assert not await worker.turns.end("turn-" + "A" * 22), "nor does the end of a turn that never was"
    assert 0 == await worker.store.count("tombstones")


async def test_keys_of_a_store_that_has_no_folder_for_tombstones_can_be_listed(
    tmp_path: Path, clock: TestClock
) -> None:
    """An older broker made it, and `doctor` only looks."""
    key, _ = await Worker.on(tmp_path, clock).keys.create("runtime", ["runtime"])
    older = Worker.on(tmp_path, clock, tuple(kind for kind in KINDS if kind != "tombstones"))
    assert [key.id] == [each.id for each in await older.keys.list()]


TIMES = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)).map(lambda at: at.replace(microsecond=0, tzinfo=UTC))  # noqa: DTZ001
STONES = st.builds(Tombstone, of=st.just("turns"), ends_at=TIMES, keep_until=st.none() | TIMES, since=st.none() | TIMES)


@given(one=STONES, other=STONES, at=TIMES)
def test_two_tombstones_of_one_record_end_it_as_soon_and_stay_as_long_as_either(
    one: Tombstone, other: Tombstone, at: datetime
) -> None:
    both = one.and_also(other)
    assert both == other.and_also(one)
    assert both.ends_at == min(one.ends_at, other.ends_at)
    assert both.is_over(at) == (one.is_over(at) and other.is_over(at))
    assert one == Tombstone.from_plaintext(one.to_plaintext())
    assert not Tombstone(of="turns", ends_at=at, keep_until=at + timedelta(seconds=1)).is_over(at)
