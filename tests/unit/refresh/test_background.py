"""Refresh in the background: which grants each pass takes, which it leaves to others, and that one delays no other."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.observability.logging import json_log
from oauthbroker.records import Grant, RefreshState, Token
from oauthbroker.records.refresh_state import Intent
from oauthbroker.refresh.background import AT_ONCE, BREATH, REPAIR_REST, REPAIR_SECONDS, BackgroundRefresh
from oauthbroker.refresh.job import RefreshJob
from oauthbroker.refresh.writeback import Refreshed
from oauthbroker.repository.repository import KINDS, LEASES, Repository, Versioned
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.kit.samples import NOW, app_with, grant_with, token_with

APP = app_with(refresh_ahead_seconds=100)
GRANT = grant_with(token=token_with(3600, refresh_token=Secret("rt-1")), registration=APP.registration)
LEFT_OPEN = RefreshState(intent=Intent("of a dead process", NOW))


class Clock(TestClock):
    """Its jitter is the most that is allowed, and is noted."""

    def __init__(self) -> None:
        super().__init__(NOW)
        self.jitters = list[tuple[float, float]]()

    def jitter(self, low: float, high: float) -> float:
        self.jitters.append((low, high))
        return high


class World:
    """The background of one process, with a scripted transaction."""

    def __init__(self) -> None:
        self.clock, self.text, self.apps = Clock(), io.StringIO(), {"mail": APP}
        self.log = json_log(self.text, self.clock)
        self.repository = Repository(MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=self.clock))
        self.jobs, self.fails = list[RefreshJob](), False
        self.at_once = self.most_at_once = 0
        others: Any = self
        self.background = BackgroundRefresh(
            repository=self.repository, refresh=others, apps=self.apps, clock=self.clock
        )

    async def refresh(self, job: RefreshJob) -> Refreshed:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        for _ in range(3):
            await asyncio.sleep(0)
        self.at_once -= 1
        self.jobs.append(job)
        seen = job.seen.record if job.seen is not None else None
        return Refreshed(seen, BrokerError(Code.PROVIDER_UNREACHABLE) if self.fails else None)

    async def put(self, grant: Grant = GRANT) -> Versioned[Grant]:
        there = await self.repository.grant(grant.key)
        return await self.repository.save_grant(grant, expect=there.generation if there is not None else 0)

    async def after(self, seconds: float) -> int:
        self.clock.advance(seconds)
        return await self.background.ahead()

    def subjects(self) -> list[str]:
        return [job.key.subject for job in self.jobs]


@pytest.fixture
def world() -> World:
    return World()


def of_user(number: int, **changes: Any) -> Grant:
    return replace(GRANT, subject=f"acme:user:{number}", **changes)


def token_of(grant: Grant) -> Token:
    assert grant.token is not None
    return grant.token


# Ahead of its end


async def test_a_token_that_was_handed_out_is_refreshed_before_it_ends_and_once(world: World) -> None:
    seen = await world.put()
    world.background.watch(APP, GRANT)
    assert [(50, 100)] == world.clock.jitters, "each at a moment of its own"
    assert (0, 1, 0) == (await world.after(3499.9), await world.after(0.1), await world.after(1000))
    (job,) = world.jobs
    assert (APP, GRANT.key, seen) == (job.app, job.key, job.seen)
    assert not job.forced


async def test_a_short_token_is_refreshed_in_the_second_half_of_its_life(world: World) -> None:
    grant = replace(GRANT, token=token_with(60, 60, refresh_token=Secret("rt-1")))
    await world.put(grant)
    world.background.watch(APP, grant)
    assert [(15, 30)] == world.clock.jitters


async def test_a_token_whose_lifetime_is_unknown_counts_as_one_of_the_apps_lead(world: World) -> None:
    grant = replace(GRANT, token=token_with(60, None, refresh_token=Secret("rt-1")))
    world.background.watch(APP, grant)
    assert [(25, 50)] == world.clock.jitters


@pytest.mark.parametrize("token", [None, token_with(None)], ids=["no token", "one that does not end"])
async def test_a_grant_whose_token_has_no_end_is_not_watched(world: World, token: Token | None) -> None:
    world.background.watch(APP, replace(GRANT, token=token))
    assert [] == world.clock.jitters


@pytest.mark.parametrize(
    ("token", "times"),
    [
        (token_of(GRANT), 1),
        (replace(token_of(GRANT), expires_at=NOW + timedelta(seconds=60)), 2),
        (replace(token_of(GRANT), access_token=Secret("another")), 2),
    ],
    ids=["the same", "another end", "another token"],
)
async def test_a_moment_is_drawn_once_for_each_token(world: World, token: Token, times: int) -> None:
    world.background.watch(APP, GRANT)
    world.background.watch(APP, replace(GRANT, token=token))
    assert times == len(world.clock.jitters)


CHANGED: dict[str, tuple[Grant | None, bool]] = {
    "as it was seen": (GRANT, True),
    "a new refresh token beside it": (
        replace(GRANT, token=replace(token_of(GRANT), refresh_token=Secret("rt-2"))), True,
    ),
    "refreshed by another process": (replace(GRANT, token=replace(token_of(GRANT), access_token=Secret("x"))), False),
    "revoked": (GRANT.tombstoned(NOW), False),
    "without a refresh token": (replace(GRANT, token=replace(token_of(GRANT), refresh_token=None)), False),
    "of client credentials": (
        replace(GRANT, flow="client_credentials", token=replace(token_of(GRANT), refresh_token=None)), True,
    ),
    "without a token": (replace(GRANT, token=None), False),
    "gone": (None, False),
    "of another client": (replace(GRANT, registration="another"), False),
    "of an app that is gone": (replace(GRANT, app="files"), False),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
async def test_a_grant_that_has_changed_since_is_left_alone(world: World, name: str) -> None:
    grant, is_refreshed = CHANGED[name]
    if grant is not None:
        await world.put(grant)
    world.background.watch(APP, GRANT if name != "of an app that is gone" else replace(GRANT, app="files"))
    assert int(is_refreshed) == await world.after(3500)


async def test_a_refresh_that_failed_is_not_counted(world: World) -> None:
    await world.put()
    world.background.watch(APP, GRANT)
    world.fails = True
    assert (0, 1) == (await world.after(3500), len(world.jobs))


async def test_a_pass_leaves_places_for_calls(world: World) -> None:
    for number in range(32):
        await world.put(of_user(number))
        world.background.watch(APP, of_user(number))
    assert (32, AT_ONCE) == (await world.after(3500), world.most_at_once)


@pytest.mark.parametrize("held", ["lease", "pair"])
async def test_a_grant_that_another_process_holds_is_left_and_looked_at_again(world: World, held: str) -> None:
    await world.put(of_user(1))
    await world.put(of_user(2))
    for number in (1, 2):
        world.background.watch(APP, of_user(number))
    holding = world.repository.provider_lease if held == "lease" else world.repository.pair
    async with holding(GrantKey("mail", "acme:user:1")):
        assert (1, ["acme:user:2"]) == (await world.after(3500), world.subjects())
    assert (1, ["acme:user:2", "acme:user:1"]) == (await world.after(0), world.subjects())


async def test_a_grant_that_is_watched_already_keeps_its_moment_when_it_is_held(world: World) -> None:
    seen = await world.put(replace(GRANT, refresh_state=LEFT_OPEN))
    world.background.watch(APP, seen.record)
    world.clock.advance(10)
    async with world.repository.provider_lease(GRANT.key):
        assert 0 == await world.background.recover()
    assert (0, 1) == (await world.after(3489.9), await world.after(0.1))


async def test_a_store_that_is_away_ends_the_pass_with_its_code(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def away(*_: Any, **__: Any) -> Any:
        raise BrokerError(Code.STORE_UNAVAILABLE)
        yield

    await world.put()
    world.background.watch(APP, GRANT)
    monkeypatch.setattr(world.repository, "provider_lease", away)
    with pytest.raises(BrokerError) as raised:
        await world.after(3500)
    assert Code.STORE_UNAVAILABLE is raised.value.code


# What a crash left open


async def test_an_intent_that_a_dead_process_left_is_settled_once_its_pause_is_over(world: World) -> None:
    await world.put(replace(GRANT, refresh_state=LEFT_OPEN))
    world.clock.advance(0.9)
    assert 0 == await world.background.recover()
    world.clock.advance(0.1)
    assert (1, [GRANT.subject]) == (await world.background.recover(), world.subjects())


async def test_a_grant_with_other_pending_work_is_not_refreshed(world: World) -> None:
    await world.put(GRANT.tombstoned(NOW))
    world.clock.advance(10)
    assert (0, []) == (await world.background.recover(), world.jobs)


async def test_a_record_that_cannot_be_read_delays_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        await world.put(of_user(number, refresh_state=LEFT_OPEN))
    read, damaged = world.repository.due_grant, world.repository.grant_place(GrantKey("mail", "acme:user:1"))

    async def due_grant(due: Any) -> Any:
        if due.key == damaged:
            raise BrokerError(Code.RECORD_CORRUPT)
        return await read(due)

    monkeypatch.setattr(world.repository, "due_grant", due_grant)
    world.clock.advance(10)
    assert (2, {"acme:user:0", "acme:user:2"}) == (await world.background.recover(), set(world.subjects()))


async def test_many_records_let_others_run_in_between(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Due:
        key = None

    async def due(*_: Any) -> list[Any]:
        return [Due()] * 200

    async def none(_: Any) -> None:
        return None

    monkeypatch.setattr(world.repository, "due", due)
    monkeypatch.setattr(world.repository, "due_grant", none)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    await world.background.recover()
    task.cancel()
    assert 200 // BREATH == turns


# Versions that the store has lost


async def test_a_grant_of_which_the_store_has_lost_the_newest_version_is_stored_again_and_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(_: Repository) -> list[Grant]:
        return [GRANT]

    monkeypatch.setattr("oauthbroker.refresh.background.restore", lost)
    assert 1 == await world.background.restore()
    assert 1 == world.text.getvalue().count("a grant that the store had lost is stored again")
    assert GRANT.id[:15] in world.text.getvalue()


# Repairs


class Repairs:
    """Repairs that take a second each, and of which some fail."""

    def __init__(self, world: World, outcomes: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.outcomes, self.looks = world, outcomes, 0
        monkeypatch.setattr("oauthbroker.refresh.background.repairs", self.all)

    async def all(self, _: Repository) -> Any:
        self.looks += 1
        for each in self.outcomes:
            yield self.of(each)

    def of(self, outcome: Any) -> Any:
        async def repair() -> int:
            self.world.clock.advance(1)
            if isinstance(outcome, BaseException):
                raise outcome
            return int(outcome)

        return repair


async def test_repairs_are_counted_and_come_again_after_ten_minutes_and_fifty_times_their_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    repairs = Repairs(world, [1, 0, 2], monkeypatch)
    assert (3, 0) == (await world.background.repair(), await world.background.repair())
    world.clock.advance(REPAIR_SECONDS + REPAIR_REST * 3 - 0.1)
    assert (0, 1) == (await world.background.repair(), repairs.looks)
    world.clock.advance(0.1)
    assert (3, 2) == (await world.background.repair(), repairs.looks)


async def test_a_record_that_cannot_be_repaired_delays_no_other_and_the_next_look_comes_sooner(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    repairs = Repairs(world, [BrokerError(Code.STORE_UNAVAILABLE), 1], monkeypatch)
    with pytest.raises(BrokerError) as raised:
        await world.background.repair()
    assert Code.STORE_UNAVAILABLE is raised.value.code
    repairs.outcomes = [1]
    world.clock.advance(REPAIR_REST * 2 - 0.1)
    assert 0 == await world.background.repair()
    world.clock.advance(0.1)
    assert 1 == await world.background.repair()


async def test_a_look_that_was_broken_off_comes_again_after_ten_minutes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    repairs = Repairs(world, [RuntimeError()], monkeypatch)
    with pytest.raises(RuntimeError):
        await world.background.repair()
    repairs.outcomes = [1]
    world.clock.advance(REPAIR_SECONDS - 1.1)
    assert 0 == await world.background.repair()
    world.clock.advance(0.1)
    assert 1 == await world.background.repair()
