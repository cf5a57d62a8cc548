"""One piece of work for each key, for any number of waiters, also when some of them leave."""

from __future__ import annotations

import asyncio

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.single_flight import InFlightCall, SingleFlight


def nothing() -> str:
    return "nothing"


async def test_all_waiters_get_the_result_of_one_run() -> None:
    single_flight, runs = SingleFlight[str](), 0

    async def work(_: InFlightCall[str]) -> str:
        nonlocal runs
        runs += 1
        await asyncio.sleep(0.01)
        return f"run {runs}"

    assert {"run 1"} == set(await asyncio.gather(*(single_flight.join("a", work, nothing) for _ in range(50))))
    assert "run 2" == await single_flight.join("a", work, nothing)


async def test_keys_do_not_wait_for_each_other() -> None:
    single_flight, hold = SingleFlight[str](), asyncio.Event()

    async def held(_: InFlightCall[str]) -> str:
        await hold.wait()
        return "held"

    async def free(_: InFlightCall[str]) -> str:
        return "free"

    waiting = asyncio.create_task(single_flight.join("a", held, nothing))
    await asyncio.sleep(0)
    assert "free" == await single_flight.join("b", free, nothing)
    hold.set()
    assert "held" == await waiting


@pytest.mark.case("50")
async def test_who_leaves_cancels_nothing() -> None:
    single_flight, hold, done = SingleFlight[str](), asyncio.Event(), asyncio.Event()

    async def work(_: InFlightCall[str]) -> str:
        await hold.wait()
        done.set()
        return "done"

    first = asyncio.create_task(single_flight.join("a", work, nothing))
    second = asyncio.create_task(single_flight.join("a", work, nothing))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    hold.set()
    assert "done" == await second
    assert done.is_set()


async def test_work_that_lands_early_answers_while_it_goes_on() -> None:
    single_flight, hold = SingleFlight[str](), asyncio.Event()

    async def work(in_flight: InFlightCall[str]) -> str:
        in_flight.finish("early")
        await hold.wait()
        return "late"

    assert "early" == await single_flight.join("a", work, nothing)
    assert "early" == await single_flight.join("a", work, nothing), "who comes while it goes on gets the same"
    hold.set()
    await single_flight.close()


async def test_close_waits_for_work_under_way() -> None:
    single_flight, ended = SingleFlight[str](), False

    async def work(_: InFlightCall[str]) -> str:
        nonlocal ended
        await asyncio.sleep(0.05)
        ended = True
        return "done"

    waiting = asyncio.create_task(single_flight.join("a", work, nothing))
    await asyncio.sleep(0)
    await single_flight.close()
    assert ended
    assert "done" == await waiting


@pytest.mark.case("50")
async def test_while_it_closes_no_work_begins_and_late_callers_get_the_work_under_way() -> None:
    single_flight, hold = SingleFlight[str](), asyncio.Event()

    async def work(_: InFlightCall[str]) -> str:
        await hold.wait()
        return "done"

    first = asyncio.create_task(single_flight.join("a", work, nothing))
    await asyncio.sleep(0)
    closing = asyncio.create_task(single_flight.close())
    await asyncio.sleep(0)
    late = asyncio.create_task(single_flight.join("a", work, nothing))
    for _ in range(2):
        with pytest.raises(BrokerError) as refused:
            await single_flight.join("b", work, nothing)
        assert (Code.BROKER_UNREACHABLE, True) == (refused.value.code, refused.value.retryable)
    assert not closing.done()
    hold.set()
    await closing
    assert ("done", "done") == (await first, await late)


async def test_who_stops_waiting_for_the_end_cancels_nothing() -> None:
    single_flight, hold = SingleFlight[str](), asyncio.Event()

    async def work(_: InFlightCall[str]) -> str:
        await hold.wait()
        return "done"

    waiting = asyncio.create_task(single_flight.join("a", work, nothing))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(single_flight.close(), timeout=0.01)
    hold.set()
    assert "done" == await waiting


async def test_failed_work_leaves_no_waiter() -> None:
    single_flight = SingleFlight[str]()

    async def work(_: InFlightCall[str]) -> str:
        raise RuntimeError("a defect")

    assert "nothing" == await single_flight.join("a", work, nothing)
    await single_flight.close()
