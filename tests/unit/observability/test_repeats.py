"""An outage of the store is two lines of the log, and the same failure of background work at most one a minute."""

from __future__ import annotations

import io
import json

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.observability.logging import json_log
from oauthbroker.observability.repeats import REPEAT_SECONDS, Repeats, StoreOutage
from oauthbroker.testing import TestClock

AWAY = BrokerError(Code.STORE_UNAVAILABLE, note="database: away")


@pytest.fixture
def outage(clock: TestClock, stream: io.StringIO) -> StoreOutage:
    return StoreOutage(clock, json_log(stream, clock))


def events(stream: io.StringIO) -> list[tuple[str, str]]:
    return [(it["level"], it["event"]) for it in map(json.loads, stream.getvalue().splitlines())]


def test_the_same_failure_is_new_once_a_minute_and_another_one_at_once(clock: TestClock) -> None:
    repeats = Repeats(clock)
    assert [True, False] == [repeats.is_new("relay", "storeUnavailable") for _ in range(2)]
    assert repeats.is_new("sweep", "storeUnavailable")
    clock.advance(REPEAT_SECONDS - 1)
    assert not repeats.is_new("relay", "storeUnavailable")
    clock.advance(1)
    assert [True, False] == [repeats.is_new("relay", "storeUnavailable") for _ in range(2)]


def test_an_outage_is_a_line_at_its_begin_with_its_cause_and_one_at_its_end(
    outage: StoreOutage, stream: io.StringIO, clock: TestClock
) -> None:
    for _ in range(10):
        for task in ("relay", "sweep"):
            outage.failed(task, AWAY, clock.monotonic())
        outage.worked("a task that needs no store")
        clock.advance(30)
    assert [("warning", "the store is away")] == events(stream)
    assert '"note": "database: away"' in stream.getvalue()
    outage.worked("sweep")
    outage.worked("relay")
    assert [("warning", "the store is away"), ("info", "the store is back")] == events(stream)
    assert '"seconds": 300' in stream.getvalue()


def test_a_pass_that_began_in_the_outage_does_not_begin_another_one(
    outage: StoreOutage, stream: io.StringIO, clock: TestClock
) -> None:
    began = clock.monotonic()
    outage.failed("relay", AWAY, began)
    clock.advance(5)
    outage.worked("relay")
    outage.failed("sweep", AWAY, began)
    assert 2 == len(events(stream))
    clock.advance(5)
    outage.failed("sweep", AWAY, clock.monotonic())
    assert ("warning", "the store is away") == events(stream)[-1]
    assert 3 == len(events(stream))


def test_another_failure_says_nothing_of_the_store(outage: StoreOutage, stream: io.StringIO, clock: TestClock) -> None:
    outage.failed("relay", BrokerError(Code.STORE_LOCKED), clock.monotonic())
    assert [] == events(stream)


async def answers() -> None:
    """A probe of a store that is there."""


async def is_away() -> None:
    raise AWAY


async def test_a_pass_that_alone_finds_the_store_away_again_and_again_keeps_the_outage_until_it_works(
    outage: StoreOutage, stream: io.StringIO, clock: TestClock
) -> None:
    for _ in range(10):
        clock.advance(1)
        outage.failed("checkpoint", AWAY, clock.monotonic())
        await outage.look(answers)
    assert outage.lasts
    assert 3 == len(events(stream)), "away, back as the probe believes, and away"
    outage.worked("checkpoint")
    assert not outage.lasts


async def test_an_outage_that_probes_meet_too_is_over_for_all_as_soon_as_one_is_answered(
    outage: StoreOutage, clock: TestClock
) -> None:
    for _ in range(3):
        clock.advance(1)
        outage.failed("a pass of every ten minutes", AWAY, clock.monotonic())
        with pytest.raises(BrokerError):
            await outage.look(is_away)
        assert outage.lasts
        await outage.look(answers)
        assert not outage.lasts
