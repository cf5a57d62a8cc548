"""Runtimes in other processes that cannot use their events (case 94): one bad event delays its own conversation, is set
aside after a few tries, and all other conversations go on."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from oauthbroker.model.settings import Limits
from oauthbroker.observability.metrics import Metric
from oauthbroker.testing import IdentityProvider
from tests.kit.running_broker import Harness, running, turn, user_app
from tests.story.api.kit import Callers

EVENTS = "/v1/agents/planner/events"
WAITING = 100


async def settle(api: Callers, found: dict[str, Any], how: str) -> int:
    path = f"{EVENTS}/{found['event']['eventId']}/{how}"
    return (await api.runtime.post(path, {"lease": found["lease"]})).status


async def consume(harness: Harness, api: Callers, hours: float = 1.0, bad: str = "") -> tuple[list[str], Counter[str]]:
    """A runtime that refuses every event of one instance: the instances whose events it took, and how often it was
    handed each. An hour is longer than all pauses."""
    taken, tries, until = list[str](), Counter[str](), harness.clock.monotonic() + hours * 3600
    while harness.clock.monotonic() < until:
        answer = await api.runtime.get(EVENTS)
        if answer.status == 204:
            harness.clock.advance(30)
            continue
        found = answer.json()
        instance = found["event"]["instanceKey"]
        tries[instance] += 1
        assert tries[instance] == found["attempt"]
        assert 204 == await settle(api, found, "nack" if instance == bad else "ack")
        taken += [] if instance == bad else [instance]
    return taken, tries


@pytest.mark.case("94")
async def test_an_event_that_a_runtime_refuses_is_set_aside_and_the_others_flow(harness: Harness, api: Callers) -> None:
    """An unknown turn or instance is just that: the runtime cannot resume it. Its token is ready all the same."""
    waiting = [turn(instance=instance) for instance in ("before", "gone", "after")]
    links = [await harness.ask_link("files", of=each) for each in waiting]
    assert 200 == (await harness.connect(links[0])).status
    taken, tries = await consume(harness, api, bad="gone")
    assert ["after", "before"] == sorted(taken)
    assert {"before": 1, "after": 1, "gone": Limits().queue_attempts} == tries
    dead = await harness.broker.events.dead("planner")
    assert ["gone"] == [event["instanceKey"] for event in dead]
    assert 1 == harness.broker.metrics.value(Metric.EVENTS_DEAD)
    late = await api.turn(instance="gone")
    answer = await late.post("/v1/tokens", {"oauthAppRef": "OAuthApp/files"}, allow=["access token"])
    assert "ready" == answer.json()["status"]


@pytest.mark.case("94")
async def test_a_poisoned_event_does_not_wait_in_front_of_another_conversation(harness: Harness, api: Callers) -> None:
    for instance in ("bad", "good"):
        await harness.ask_link("mail", of=turn(instance=instance))
    await harness.connect(await harness.ask_link("mail"))
    first = (await api.runtime.get(f"{EVENTS}?wait=5")).json()
    assert 204 == await settle(api, first, "nack")
    others = [(await api.runtime.get(f"{EVENTS}?wait=5")).json() for _ in range(2)]
    assert first["event"]["eventId"] not in {each["event"]["eventId"] for each in others}
    assert 204 == (await api.runtime.get(EVENTS)).status, "the refused one backs off"


@pytest.mark.slow
@pytest.mark.case("94")
async def test_a_hundred_turns_that_wait_for_one_grant_are_each_resumed_once(
    identity_provider: IdentityProvider,
) -> None:
    """By several consumers of one runtime at once; a turn that comes later finds the token ready."""
    limits = Limits(sessions_per_subject=WAITING + 10)
    async with running(identity_provider, [user_app(identity_provider)], limits=limits) as harness:
        api = await Callers.of(harness)
        waiting = [await harness.ask_link(of=turn(instance=f"thread {number}")) for number in range(WAITING)]
        await harness.connect(waiting[WAITING // 3])
        resumed = Counter[str]()

        async def consumer() -> None:
            while resumed.total() < WAITING:
                answer = await api.runtime.get(EVENTS)
                if answer.status == 200:
                    found = answer.json()
                    resumed[found["event"]["instanceKey"]] += 1
                    assert 204 == await settle(api, found, "ack")
                await asyncio.sleep(0.001)

        await asyncio.wait_for(asyncio.gather(*(consumer() for _ in range(8))), 60)
        assert 204 == (await api.runtime.get(EVENTS)).status
        assert {f"thread {number}": 1 for number in range(WAITING)} == resumed
        late = await api.turn(instance="a late turn", tools={})
        answer = await late.post("/v1/tokens", {"oauthAppRef": "OAuthApp/mail"}, allow=["access token"])
        assert "ready" == answer.json()["status"]
