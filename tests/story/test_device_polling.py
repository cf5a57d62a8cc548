"""Polling for a device code (RFC 8628 section 3.5): how often, and by whom."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from oauthbroker.authorization.device_polling import LONGEST_BACKOFF
from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.broker_process import ask, outcome
from tests.kit.running_broker import device_app
from tests.story.device_kit import (
    INTERVAL,
    POLLS,
    World,
    ask_for_code,
    device_of,
    events,
    prompt_of,
    seconds_pass,
    session_of,
    world,
)

ANSWER = Limits().provider_seconds


@pytest.fixture
def here(identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path) -> World:
    return world(identity_provider, test_clock, tmp_path)


def gaps(here: World, asked: AuthorizationRequired) -> list[float]:
    """Seconds between the polls that the provider saw."""
    times = [poll.at for poll in here.story(prompt_of(asked)).polls]
    return [(later - earlier).total_seconds() for earlier, later in pairwise(times)]


# --- how often


async def test_no_poll_comes_before_the_interval_is_over(here: World):
    here.idp.change("client-tv", device_interval=7)
    asked = await ask_for_code(here.start())
    await seconds_pass(here, 6)
    assert [] == here.polls(prompt_of(asked))
    await seconds_pass(here, 29)
    assert ([7.0] * 4, ["authorization_pending"] * 5) == (gaps(here, asked), here.polls(prompt_of(asked)))


async def test_slow_down_adds_five_seconds_for_good_and_is_remembered_by_the_next_process(here: World):
    first = here.start()
    asked = await ask_for_code(first)
    here.idp.script.poll.refuse("slow_down")
    await here.poll()
    assert INTERVAL + 5 == (await device_of(first, asked)).interval
    assert INTERVAL + 5 == prompt_of(await ask_for_code(first)).interval
    await first.die()
    here.brokers.remove(first)
    second = here.start()
    await second.tend()
    await seconds_pass(here, 35)
    assert [10.0, 10.0] == gaps(here, asked)


async def test_eight_brokers_on_one_store_poll_like_one(here: World):
    """The provider counts: a poll that comes too early is told to slow down."""
    brokers = [here.start() for _ in range(8)]
    asked = await ask_for_code(brokers[0])
    for broker in brokers:
        await broker.parts.sweep.once()
    for _ in range(60):
        here.clock.advance(1)
        await asyncio.gather(*(broker.parts.polling.once() for broker in brokers))
    assert {"authorization_pending"} == set(here.polls(prompt_of(asked)))
    assert 9 <= len(here.polls(prompt_of(asked))) <= 12
    here.idp.device_approve(prompt_of(asked).user_code)
    here.clock.advance(INTERVAL + 1)
    await asyncio.gather(*(broker.parts.polling.once() for broker in brokers))
    assert ("completed", None) == await outcome(brokers[7], asked)
    heard = [await events(broker) for broker in brokers]
    assert [["auth.granted"]] == [each for each in heard if each]
    assert "slow_down" not in here.polls(prompt_of(asked))


async def test_a_provider_that_does_not_answer_is_asked_half_as_often_every_time(here: World):
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.script.poll.close_after_accept(times=4)
    times = []
    for _ in range(300):
        before = here.idp.count(POLLS)
        await here.poll(after=1)
        times += [here.clock.monotonic()] * (here.idp.count(POLLS) - before)
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert [10.0, 20.0, 40.0, LONGEST_BACKOFF, 5.0, 5.0] == waits[:6]
    assert ("pending", None) == await outcome(broker, asked)


@pytest.mark.parametrize(
    ("said", "wait"), [((503, ""), 10), ((503, "33"), 33), ((429, "120"), 120), ((500, ""), 10)], ids=str
)
async def test_a_provider_in_trouble_is_given_the_time_it_asks_for(here: World, said: tuple[int, str], wait: int):
    broker = here.start()
    asked = await ask_for_code(broker)
    status, retry_after = said
    headers = {"Retry-After": retry_after} if retry_after else {}
    here.idp.script.poll.answer(status, {"error": "temporarily_unavailable"}, headers)
    await here.poll()
    here.idp.device_approve(prompt_of(asked).user_code)
    await here.poll(after=wait - 1)
    assert ("pending", None) == await outcome(broker, asked)
    await here.poll(after=1)
    assert ("completed", None) == await outcome(broker, asked)


async def test_a_pause_that_was_asked_for_outlives_the_process(here: World):
    first = here.start()
    asked = await ask_for_code(first)
    here.idp.script.poll.busy("90")
    await here.poll()
    here.idp.device_approve(prompt_of(asked).user_code)
    second = here.start()
    await second.tend()
    await here.poll(second, after=89)
    assert ("pending", None) == await outcome(second, asked)
    await here.poll(second, after=1)
    assert ("completed", None) == await outcome(second, asked)


async def test_the_next_poll_is_written_down_before_it_leaves(here: World):
    broker = here.start()
    asked = await ask_for_code(broker)
    opened = here.clock.now()
    assert opened + timedelta(seconds=INTERVAL) == (await device_of(broker, asked)).next_poll_at
    hold = here.idp.script.poll.hang()
    polling = asyncio.create_task(here.poll())
    await hold.arrived()
    device = await device_of(broker, asked)
    assert (opened + timedelta(seconds=2 * INTERVAL + ANSWER), True) == (device.next_poll_at, device.unsure)
    hold.release()
    await polling
    session = await session_of(broker, asked)
    assert session.open


async def test_a_slow_provider_holds_up_no_other_code(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
):
    here = world(
        identity_provider, test_clock, tmp_path, device_app(identity_provider), device_app(identity_provider, "radio")
    )
    broker = here.start()
    slow, quick = await ask_for_code(broker, "tv"), await ask_for_code(broker, "radio")
    hold = identity_provider.script.client("client-tv").poll.hang()
    identity_provider.device_approve(prompt_of(quick).user_code)
    polling = asyncio.create_task(here.poll())
    await hold.arrived()
    async with asyncio.timeout(60):
        while (await outcome(broker, quick))[0] == "pending":
            await asyncio.sleep(0.005)
    assert ("pending", None) == await outcome(broker, slow)
    assert isinstance(await ask(broker, "radio"), Ready)
    hold.release()
    await polling


# --- by whom


async def test_a_code_opened_by_a_process_that_died_is_polled_by_the_next_one(here: World):
    first = here.start()
    asked = await ask_for_code(first)
    await here.poll()
    await first.die()
    here.brokers.remove(first)
    second = here.start()
    await second.tend()
    here.idp.device_approve(prompt_of(asked).user_code)
    await here.poll(second)
    assert ["authorization_pending"] == here.polls(prompt_of(asked))  # its answer might still be under way
    await here.poll(second, after=ANSWER)
    assert ("completed", None) == await outcome(second, asked)
    assert ["auth.granted"] == await events(second)


async def test_a_process_without_that_app_leaves_the_code_to_others(here: World):
    first, other = here.start(), here.start(apps=[])
    asked = await ask_for_code(first)
    await other.tend()
    await here.poll(other)
    assert [] == here.polls(prompt_of(asked))
    await here.poll(first, after=0)
    assert ["authorization_pending"] == here.polls(prompt_of(asked))


@pytest.mark.case("98")
async def test_a_code_of_an_app_that_was_configured_anew_is_not_redeemed(here: World):
    first = here.start()
    asked = await ask_for_code(first)
    here.idp.device_approve(prompt_of(asked).user_code)
    changed = here.start(apps=[device_app(here.idp, scopes=("read",))])
    await changed.tend()
    await here.poll(changed)
    assert (("expired", None), []) == (await outcome(changed, asked), here.polls(prompt_of(asked)))


async def test_closing_waits_for_a_poll_and_its_tokens(here: World):
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.device_approve(prompt_of(asked).user_code)
    hold = here.idp.script.poll.hang(after_work=True)
    polling = asyncio.create_task(here.poll())
    await hold.arrived()
    closing = asyncio.create_task(broker.parts.polling.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    hold.release()
    await closing
    assert ("completed", None) == await outcome(broker, asked)
    await polling
    await ask_for_code(broker, switch_account=True)
    await here.poll()
    assert 1 == here.idp.count(POLLS)


async def test_a_poll_goes_on_when_the_waiting_call_has_left(here: World):
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.device_approve(prompt_of(asked).user_code)
    hold = here.idp.script.poll.hang(after_work=True)
    polling = asyncio.create_task(here.poll())
    await hold.arrived()
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    hold.release()
    await broker.parts.polling.close()
    assert ("completed", None) == await outcome(broker, asked)


async def test_a_clock_that_is_set_back_does_not_stop_the_polling(here: World):
    """A polling broker counts seconds; one that takes over has only the time of day."""
    broker = here.start()
    asked = await ask_for_code(broker)
    await here.poll()
    here.clock.set(here.clock.now() - timedelta(hours=3))
    before = here.idp.count(POLLS)
    here.idp.script.poll.refuse(
        "authorization_pending"
    )  # its own clock is the same one, and may not be asked too early
    await here.poll(broker)
    assert before + 1 == here.idp.count(POLLS)
    assert ("pending", None) == await outcome(broker, asked)


@pytest.mark.case("59")
@pytest.mark.parametrize("step", [-1, 1])
async def test_who_takes_over_after_a_step_of_the_clock_polls_soon(here: World, step: int):
    """The one that polled died: only the time of day that it wrote down is left."""
    first = here.start()
    asked = await ask_for_code(first)
    await here.poll()
    here.clock.set(here.clock.now() + timedelta(minutes=5 if step > 0 else -24 * 60))
    second, before = here.start(), here.idp.count(POLLS)
    await second.parts.sweep.once()
    here.idp.script.poll.refuse("authorization_pending")
    await here.poll(second)
    assert before + 1 == here.idp.count(POLLS)
    await here.poll(second, after=1)
    assert before + 1 == here.idp.count(POLLS), "no sooner than the provider allows"
    assert ("pending", None) == await outcome(second, asked)
