"""The only copy of a refreshed token is kept as long as its process lives."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.observability.logging import json_log
from oauthbroker.observability.metrics import Metrics
from oauthbroker.records import Grant
from oauthbroker.refresh.retry_store import LONGEST_PAUSE, RetryStore
from oauthbroker.repository.repository import Key, Reservation
from oauthbroker.testing import TestClock
from tests.kit.samples import grant_with
from tests.kit.waiting import until

GRANT = grant_with()
HOURS = 10


class Store:
    """Refuses until it is told to take the token."""

    def __init__(self) -> None:
        self.tries, self.takes = 0, False

    async def write(self, _: Reservation | None) -> Grant | None:
        self.tries += 1
        if not self.takes:
            raise BrokerError(Code.STORE_UNAVAILABLE)
        return GRANT


class Sleeping(TestClock):
    """Counts the sleeps, and ends them at once while it `runs`."""

    def __init__(self) -> None:
        super().__init__()
        self.slept, self.runs = list[float](), True

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await (asyncio.sleep(0) if self.runs else asyncio.Event().wait())


@pytest.fixture
def clock() -> Sleeping:
    return Sleeping()


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def retry_store(clock: Sleeping, log: io.StringIO) -> RetryStore:
    return RetryStore(back=Notifier(), clock=clock, metrics=Metrics(), log=json_log(log, clock))


def kept(retry_store: RetryStore, store: Store) -> asyncio.Task[Any]:
    reservation = Reservation(Key("grants", "0" * 64))
    return asyncio.create_task(retry_store.keep_grant(GRANT, reservation, store.write, lambda _: None))


async def test_a_token_is_tried_again_for_hours_with_bounded_pauses_and_bounded_words(
    retry_store: RetryStore, clock: Sleeping, log: io.StringIO
) -> None:
    store, tries = Store(), int(HOURS * 3600 / LONGEST_PAUSE)
    keeping = kept(retry_store, store)
    await until(lambda: store.tries > tries, pause=0)
    assert (1, LONGEST_PAUSE) == (retry_store.unstored, max(clock.slept))
    assert len(log.getvalue().splitlines()) < HOURS * 60 + 10, "a line a minute"
    store.takes = True
    assert (GRANT, None) == await keeping
    assert 0 == retry_store.unstored


async def test_a_store_that_is_back_is_tried_at_once_also_if_it_came_back_during_a_try(
    retry_store: RetryStore, clock: Sleeping
) -> None:
    clock.runs, store = False, Store()
    keeping = kept(retry_store, store)
    for tries in range(1, 5):
        while (store.tries, len(clock.slept)) != (tries, tries):
            await asyncio.sleep(0)
        store.takes = tries == 4
        retry_store.back.notify()
    assert (GRANT, None) == await keeping


async def test_closing_tries_once_more_and_then_names_the_lost_token_loudly(
    retry_store: RetryStore, clock: Sleeping, log: io.StringIO
) -> None:
    clock.runs, store = False, Store()
    keeping = kept(retry_store, store)
    await until(lambda: len(clock.slept) == 1)
    retry_store.close()
    assert (GRANT, Code.STORE_UNAVAILABLE) == await keeping
    last = log.getvalue().splitlines()[-1]
    assert (2, True, True) == (store.tries, '"error"' in last, "never stored" in last)
