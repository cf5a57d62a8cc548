"""Endless callers (case 99) over the API: an unknown name costs one look for a missing file, takes no lock and writes
nothing, however often it comes; known ones are shared."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.access.api_keys import PREFIX as KEY
from oauthbroker.core.clock import random_text
from oauthbroker.model.settings import Limits
from oauthbroker.model.turn_token import PREFIX as TURN
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, Harness, running, tree, turn, user_app
from tests.story.api.kit import Answer, Caller, Callers
from tests.story.counted_store import WRITES, counted_store

MANY = 1_000
LIMITS = Limits(requests_per_minute=1_000_000)
Try = Callable[[Callers, TestClock], Awaitable[Answer]]


async def a_turn_token_of_nobody(api: Callers, clock: TestClock) -> Answer:
    return await api.holding(f"{TURN}.{random_text(clock, 128)}.{random_text(clock, 256)}").post("/v1/tokens", {})


async def an_api_key_of_nobody(api: Callers, clock: TestClock) -> Answer:
    return await api.holding(f"{KEY}.{random_text(clock, 128)}.{random_text(clock, 256)}").post("/v1/turns", {})


async def nobody_at_all(api: Callers, clock: TestClock) -> Answer:
    return await api.stranger.get("/metrics")


async def a_session_that_nobody_opened(api: Callers, clock: TestClock) -> Answer:
    return await api.runtime.get(f"/v1/auth-sessions/as-{random_text(clock, 128)}")


async def a_session_that_nobody_can_cancel(api: Callers, clock: TestClock) -> Answer:
    return await api.runtime.delete(f"/v1/auth-sessions/as-{random_text(clock, 128)}")


async def a_handle_that_nobody_got(api: Callers, clock: TestClock) -> Answer:
    handle = random_text(clock, 128) + random_text(clock, 256)
    return await api.runtime.post("/v1/auth-sessions/confirm", {"handle": handle, "subject": ALICE})


async def a_link_to_connections_that_nobody_made(api: Callers, clock: TestClock) -> Answer:
    return await api.stranger.get(f"/connections/open/{random_text(clock, 128)}{random_text(clock, 256)}")


async def a_page_of_connections_without_a_browser_session(api: Callers, clock: TestClock) -> Answer:
    cookie = f"oab-connections={random_text(clock, 128)}{random_text(clock, 256)}"
    return await api.stranger.get("/connections", headers={"cookie": cookie})


async def a_turn_that_has_ended(api: Callers, clock: TestClock) -> Answer:
    return await api.runtime.delete(f"/v1/turns/turn-{random_text(clock, 128)}")


async def a_lease_that_nobody_has(api: Callers, clock: TestClock) -> Answer:
    path = f"/v1/agents/nobody/events/evt-as-{random_text(clock, 128)}-auth.granted/ack"
    return await api.runtime.post(path, {"lease": random_text(clock, 128)})


TRIES: dict[Try, tuple[set[int], int]] = {
    # its answer, and the most files that are looked for
    a_turn_token_of_nobody: ({401}, 0),
    an_api_key_of_nobody: ({401}, 1),
    nobody_at_all: ({401}, 0),
    a_session_that_nobody_opened: ({200, 404}, 1),
    a_session_that_nobody_can_cancel: ({200, 404}, 1),
    a_handle_that_nobody_got: ({400}, 1),
    a_link_to_connections_that_nobody_made: ({400, 404, 410}, 1),
    a_page_of_connections_without_a_browser_session: ({401}, 1),
    a_turn_that_has_ended: ({204}, 1),
}


@pytest.mark.slow
@pytest.mark.case("99")
@pytest.mark.parametrize("attempt", TRIES, ids=lambda it: it.__name__)
async def test_an_unknown_name_costs_one_miss_at_the_most_and_no_lock(
    identity_provider: IdentityProvider, tmp_path: Path, attempt: Try
) -> None:
    """The law holds for ten as for a thousand: twice as many cost twice as much, and nothing is kept of any."""
    clock = TestClock()
    store, calls = counted_store(tmp_path, clock)
    statuses, misses = TRIES[attempt]
    apps = [user_app(identity_provider)]
    async with running(identity_provider, apps, clock=clock, store=store, limits=LIMITS, background=False) as harness:
        api = await Callers.of(harness)
        await attempt(api, clock)
        await asyncio.sleep(0.05)  # from then on the times of our own key's file are trusted
        await attempt(api, clock)
        before = tree(tmp_path)
        for count in (10, MANY):
            calls.clear()
            answers = Counter([(await attempt(api, clock)).status for _ in range(count)])
            heard = count - answers.pop(429, 0)  # strangers who come too often
            assert set(answers) <= statuses
            spent = Counter({name: n for name, n in calls.items() if name != "stat"})  # whether our own key still holds
            synced = spent.pop("fsync", 0)  # what an earlier call has removed is durable before it is acknowledged
            assert synced <= (2 if attempt is a_turn_that_has_ended else 0)
            assert spent.pop("fstat", 0) <= (count if attempt is a_turn_that_has_ended else 0)  # or nothing was removed
            assert set(spent) <= {"open_file"}, spent
            assert misses * heard <= spent["open_file"] <= misses * count
            assert calls["stat"] <= 2 * count
        assert before == tree(tmp_path)


@pytest.mark.slow
@pytest.mark.case("99")
async def test_an_unknown_lease_changes_nothing(identity_provider: IdentityProvider, tmp_path: Path) -> None:
    """It takes the queue's lock, which is that agent's own, and writes nothing. The settled state that it finds is durable."""
    clock = TestClock()
    store, calls = counted_store(tmp_path, clock)
    apps = [user_app(identity_provider)]
    async with running(identity_provider, apps, clock=clock, store=store, limits=LIMITS, background=False) as harness:
        api = await Callers.of(harness)
        await a_lease_that_nobody_has(api, clock)
        before = tree(tmp_path)
        calls.clear()
        assert {409} == {(await a_lease_that_nobody_has(api, clock)).status for _ in range(100)}
        assert not (WRITES - {"open_lock", "fsync"}) & set(calls)
        assert calls["fsync"] <= 100
        assert before == tree(tmp_path)


@pytest.mark.slow
@pytest.mark.case("99")
async def test_a_thousand_calls_of_a_thousand_turns_share_one_session(
    identity_provider: IdentityProvider, tmp_path: Path
) -> None:
    """All of one conversation, each with a turn token of its own: one link, and one request on disk."""
    clock = TestClock()
    store, _ = counted_store(tmp_path, clock)
    apps = [user_app(identity_provider)]
    async with running(identity_provider, apps, clock=clock, store=store, limits=LIMITS, background=False) as harness:
        links = set[str]()
        for _ in range(MANY):
            begun = await harness.broker.turns.begin(turn())
            answer = await Caller(harness, begun.token.reveal()).post(
                "/v1/tokens", {"oauthAppRef": "OAuthApp/mail"}, allow=["ticket"]
            )
            links.add(answer.json()["authSessionId"])
        assert 1 == len(links) == await store.count("sessions")


@pytest.mark.case("99")
async def test_a_caller_who_asks_too_often_is_told_when_to_come_again_and_no_other_caller_is(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    limits = Limits(requests_per_minute=60)
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, limits=limits) as harness:
        api = await Callers.of(harness)
        answers = [await api.runtime.get("/v1/apps") for _ in range(100)]
        assert {200, 429} == {each.status for each in answers}
        refused = next(each for each in answers if each.status == 429)
        assert "rateLimited" == refused.code
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert 200 == (await api.operator.get("/v1/apps")).status
        assert 200 == (await Caller(harness, (await begun(harness)).token.reveal()).get("/v1/apps")).status
        test_clock.advance(60)
        assert 200 == (await api.runtime.get("/v1/apps")).status


async def begun(harness: Harness) -> Any:
    return await harness.broker.turns.begin(turn())
