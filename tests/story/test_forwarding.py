"""Events that are forwarded to a webhook: signed, in order, again and again until they are taken, and not polled."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.events.forwarding import agent_forwarder
from oauthbroker.events.port import BACKOFF_SECONDS, Depth, EventLease
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.forwarders import Forwarder, Webhook
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.observability.metrics import Metric
from oauthbroker.testing import Authority, IdentityProvider, TestClock
from oauthbroker.testing.webhooks import Answer, WebhookReceiver
from tests.kit.running_broker import BASE, Harness, file_store, running, user_app
from tests.kit.waiting import until
from tests.story.api.kit import Callers
from tests.story.forwarding_kit import (
    AGENT,
    enqueue,
    first_numbers,
    in_order,
    signing_secret,
    to_webhook,
)


@asynccontextmanager
async def forwarding(idp: IdentityProvider, *forwarders: Forwarder, **more: Any) -> AsyncIterator[Harness]:
    async with running(idp, [user_app(idp)], forwarders=forwarders, **more) as harness:
        yield harness


@pytest.fixture
async def receiver() -> AsyncIterator[WebhookReceiver]:
    async with WebhookReceiver(signing_secret()) as receiver:
        yield receiver


def counted(harness: Harness, outcome: str) -> int:
    return harness.broker.metrics.value(Metric.EVENTS_FORWARDED, "hook", outcome)


async def test_a_grant_wakes_the_agent_by_a_signed_webhook(
    identity_provider: IdentityProvider, receiver: WebhookReceiver
):
    async with forwarding(identity_provider, to_webhook(receiver)) as harness:
        asked = await harness.ask_link()
        await harness.connect(asked)
        assert [f"evt-{asked.auth_session_id}-auth.granted"] == await receiver.until(1)
        (came,) = receiver.received
        assert (True,) == came.verified
        assert ("auth.granted", asked.auth_session_id) == (came.event["type"], came.event["payload"]["authSessionId"])
        assert "application/json" == came.headers["content-type"]
        await until(lambda: is_empty(harness))
        assert 1 == counted(harness, "taken")


async def is_empty(harness: Harness) -> bool:
    depth = Depth.of(await harness.parts.queues.depths())
    return depth.waiting == 0


async def test_the_events_of_each_instance_come_once_and_in_order(
    identity_provider: IdentityProvider, receiver: WebhookReceiver
):
    async with forwarding(identity_provider, to_webhook(receiver)) as harness:
        ids = await enqueue(harness.broker, range(30), instances=5)
        assert sorted(ids) == sorted(await receiver.until(30))
        assert in_order(range(30), instances=5) == first_numbers(each.event for each in receiver.received)


REFUSALS: list[Answer] = [500, 400, 401, (302, {"Location": "https://elsewhere.example/"}), 503, "drop"]


@pytest.mark.parametrize("answer", REFUSALS, ids=str)
async def test_what_the_receiver_does_not_take_is_sent_again_with_the_same_id(
    identity_provider: IdentityProvider, receiver: WebhookReceiver, answer: Answer
):
    receiver.answers.append(answer)
    clock = TestClock()
    async with forwarding(identity_provider, to_webhook(receiver), clock=clock) as harness:
        first, *_ = await enqueue(harness.broker, [0, 3, 1])
        await receiver.until_asked(2)  # the other instance does not wait for it
        assert [False, True] == [each.taken for each in receiver.received]
        await until(lambda: leased(harness, 0))
        assert 2 == len(receiver.received), "the next event of its instance waits"
        clock.advance(BACKOFF_SECONDS[0] * 1.3)
        await receiver.until(3)
        assert in_order([0, 3, 1]) == first_numbers(each.event for each in receiver.received)
        assert [first, first] == [each.id for each in receiver.received if each.event["payload"]["n"] == 0]
        assert 1 == counted(harness, "refused")


async def leased(harness: Harness, count: int) -> bool:
    return sum(each.leased for each in await harness.parts.queues.depths()) == count


async def test_a_receiver_that_never_takes_an_event_gets_a_bounded_number_of_attempts_and_an_operator_a_dead_letter(
    identity_provider: IdentityProvider, receiver: WebhookReceiver
):
    clock, limits = TestClock(), Limits(queue_attempts=3)
    receiver.always = 500
    async with forwarding(identity_provider, to_webhook(receiver), clock=clock, limits=limits) as harness:
        (event_id, later) = await enqueue(harness.broker, [0, 3])
        for attempt, pause in enumerate(BACKOFF_SECONDS[:3], start=1):
            await receiver.until_asked(attempt)
            if attempt == 3:
                receiver.always = None
            await until(lambda: leased(harness, 0))
            clock.advance(pause * 1.3)
        assert [event_id] * 3 == [each.id for each in receiver.received[:3]]
        assert [later] == await receiver.until(1), "the instance goes on without it"
        (letter,) = await harness.parts.dead_letters.dead(AGENT)
        assert (event_id, 3) == (letter.id, letter.attempts)
        assert await harness.parts.dead_letters.retry(AGENT, event_id)
        assert [later, event_id] == await receiver.until(2)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_receiver_that_asks_for_a_pause_gets_it_and_no_attempt_is_counted(
    identity_provider: IdentityProvider, receiver: WebhookReceiver, status: int
):
    clock, limits = TestClock(), Limits(queue_attempts=1)
    receiver.answers.append((status, {"Retry-After": "60"}))
    async with forwarding(identity_provider, to_webhook(receiver), clock=clock, limits=limits) as harness:
        await enqueue(harness.broker, [0])
        await receiver.until_asked(1)
        await until(lambda: leased(harness, 0))
        await enqueue(harness.broker, [1, 2])
        clock.advance(45)  # the pause has a jitter of a fifth
        await asyncio.sleep(1.2)
        assert 1 == len(receiver.received), "no instance is served meanwhile"
        clock.advance(60)
        assert 3 == len(await receiver.until(3))


async def test_an_outage_of_the_receiver_costs_no_attempt_and_no_order(
    identity_provider: IdentityProvider, receiver: WebhookReceiver
):
    clock, limits = TestClock(), Limits(queue_attempts=1)
    gone = WebhookReceiver(*receiver.secrets)
    async with gone:
        forwarder = to_webhook(gone)
    async with forwarding(identity_provider, forwarder, clock=clock, limits=limits) as harness:
        await enqueue(harness.broker, range(9))
        await until(lambda: later(clock, counted(harness, "away") > 6))
        assert "the receiver is away" in harness.log.getvalue()
        assert 1 == harness.log.getvalue().count("the receiver is away"), "an outage is logged once"
        async with gone:
            await until(lambda: later(clock, len(gone.taken) >= 9))
        assert in_order(range(9)) == first_numbers(each.event for each in gone.received)


async def later(clock: TestClock, holds: bool) -> bool:
    """Let a little time pass, so that pauses end. Much would be no fit for the signatures' own times."""
    clock.advance(0.2)
    return holds


async def is_above(harness: Harness, count: int) -> bool:
    return counted(harness, "away") > count


async def test_a_receiver_may_take_longer_than_the_lease_of_the_event(
    identity_provider: IdentityProvider,
):
    class Late(WebhookReceiver):
        async def _take(self, request: Any) -> Any:
            answer = await super()._take(request)
            await asyncio.sleep(2.5)
            return answer

    async with Late(signing_secret()) as receiver:
        limits = Limits(queue_lease_seconds=1)
        async with forwarding(identity_provider, to_webhook(receiver), clock=SystemClock(), limits=limits) as harness:
            ids = await enqueue(harness.broker, [0, 1], instances=1)
            await until(lambda: is_empty(harness))
    assert ids == [each.id for each in receiver.received]


async def test_a_receiver_that_does_not_answer_is_left_after_its_seconds(
    identity_provider: IdentityProvider, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agent_forwarder, "SEND_SECONDS", 0.5)
    clock, limits = TestClock(), Limits(queue_lease_seconds=1)
    receiver.answers.append("hang")
    async with forwarding(identity_provider, to_webhook(receiver), clock=clock, limits=limits) as harness:
        await enqueue(harness.broker, [0])
        await until(lambda: refused(harness))
        assert "no answer in time" in harness.log.getvalue()
        clock.advance(BACKOFF_SECONDS[0] * 1.3)
        await receiver.until(1)


async def refused(harness: Harness) -> bool:
    return counted(harness, "refused") == 1


async def test_an_agent_that_is_forwarded_cannot_be_polled(
    identity_provider: IdentityProvider, receiver: WebhookReceiver
):
    async with forwarding(identity_provider, to_webhook(receiver)) as harness:

        async def never(_: EventLease) -> None:
            raise AssertionError

        api = await Callers.of(harness)
        with pytest.raises(BrokerError) as lease:
            await harness.broker.events.lease(AGENT)
        with pytest.raises(BrokerError) as consumer:
            async with harness.broker.on_granted(AGENT, never):
                pass
        answers = [
            await api.runtime.get(f"/v1/agents/{AGENT}/events", headers=headers)
            for headers in ({}, {"accept": "text/event-stream"})
        ]
        assert [Code.AGENT_FORWARDED] * 2 == [lease.value.code, consumer.value.code]
        assert [(409, "agentForwarded")] * 2 == [(answer.status, answer.code) for answer in answers]
        assert "forwarded" in lease.value.message()
        assert 204 == (await api.runtime.get("/v1/agents/writer/events")).status, "other agents are polled"


async def test_a_reload_ends_a_poll_that_waits_and_begins_to_forward_and_back(
    identity_provider: IdentityProvider, receiver: WebhookReceiver
):
    async with forwarding(identity_provider) as harness:
        polled = harness.broker.bundle
        poll = asyncio.create_task(harness.broker.events.lease(AGENT, wait=3600))
        await asyncio.sleep(0.05)
        await harness.broker.reload(replace(polled, forwarders=(to_webhook(receiver),)))
        with pytest.raises(BrokerError, match="agentForwarded"):
            await asyncio.wait_for(poll, 60)
        await enqueue(harness.broker, [0])
        await receiver.until(1)
        await harness.broker.reload(polled)
        await enqueue(harness.broker, [1])
        delivery = await harness.broker.events.lease(AGENT, wait=20)
        assert delivery is not None
        assert 1 == delivery.event.payload["n"]
        assert 1 == len(receiver.received)


async def test_two_secrets_sign_while_the_receiver_changes_from_one_to_the_other(
    identity_provider: IdentityProvider, receiver: WebhookReceiver
):
    old, new = signing_secret(b"old"), signing_secret(b"new")
    receiver.secrets = (old, new)
    stages = [(old,), (old, new), (new,)]
    async with forwarding(identity_provider) as harness:
        for number, secrets in enumerate(stages):
            to = Webhook(url=receiver.url, secrets=secrets)
            forwarder = replace(to_webhook(receiver), to=to)
            await harness.broker.reload(replace(harness.broker.bundle, forwarders=(forwarder,)))
            await enqueue(harness.broker, [number])
            await receiver.until(number + 1)
        assert [(True, False), (True, True), (False, True)] == [each.verified for each in receiver.received]


def held_back(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Hold back all questions to the store for an event. Return the mark of the first, and the one that lets them go on."""
    lease, asks, goes_on = harness.parts.queues.lease, asyncio.Event(), asyncio.Event()

    async def slow(agent: str) -> EventLease | None:
        asks.set()
        await goes_on.wait()
        return await lease(agent)

    monkeypatch.setattr(harness.parts.queues, "lease", slow)
    return asks, goes_on


async def test_an_event_that_comes_to_a_poll_after_its_agent_is_forwarded_is_forwarded(
    identity_provider: IdentityProvider, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
):
    async with forwarding(identity_provider) as harness:
        asks, goes_on = held_back(harness, monkeypatch)
        poll = asyncio.create_task(harness.broker.events.lease(AGENT, wait=20))
        await asks.wait()
        await harness.broker.reload(replace(harness.broker.bundle, forwarders=(to_webhook(receiver),)))
        await enqueue(harness.broker, [0])
        goes_on.set()
        with pytest.raises(BrokerError, match="agentForwarded"):
            await poll
        await receiver.until(1)


async def test_an_event_that_comes_to_a_replaced_forwarder_is_sent_by_the_new_one(
    identity_provider: IdentityProvider, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
):
    old, new = signing_secret(b"old"), signing_secret(b"new")
    receiver.secrets = (old, new)
    async with forwarding(identity_provider) as harness:
        asks, goes_on = held_back(harness, monkeypatch)
        for secret in (old, new):
            forwarder = replace(to_webhook(receiver), to=Webhook(url=receiver.url, secrets=(secret,)))
            await harness.broker.reload(replace(harness.broker.bundle, forwarders=(forwarder,)))
            await asks.wait()
        await enqueue(harness.broker, [0])
        goes_on.set()
        await receiver.until(1)
        assert [(False, True)] == [each.verified for each in receiver.received]


async def test_a_signature_of_another_secret_is_not_taken(
    identity_provider: IdentityProvider, receiver: WebhookReceiver
):
    to = Webhook(url=receiver.url, secrets=(Secret(f"whsec_{b64encode(b'x' * 32).decode()}"),))
    async with forwarding(identity_provider, replace(to_webhook(receiver), to=to)) as harness:
        await enqueue(harness.broker, [0])
        await receiver.until_asked(1)
        assert [] == receiver.taken


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_an_address_inside_the_own_network_is_not_dialed_unless_it_is_listed(
    identity_provider: IdentityProvider, tmp_path: Path, host: str
):
    authority = Authority(tmp_path)
    settings = Settings(public_base_url=BASE)
    async with WebhookReceiver(signing_secret(), certificate=authority.issue(host_name="localhost")) as receiver:
        ca, url = authority.file.read_text(), f"https://{host}:{receiver.port}/"
        to = Webhook(url=url, secrets=tuple(receiver.secrets))
        clock = TestClock()
        forwarder = replace(to_webhook(receiver, ca=ca), to=to)
        async with forwarding(identity_provider, forwarder, settings=settings, clock=clock) as harness:
            await enqueue(harness.broker, [0])
            await until(lambda: "its address is not public" in harness.log.getvalue())
            assert [] == receiver.received
            listed = replace(forwarder, networks=("127.0.0.0/8", "::1"))
            await harness.broker.reload(replace(harness.broker.bundle, forwarders=(listed,)))
            if host == "localhost":
                await receiver.until(1)
                return
            await until(lambda: "it is for another host" in harness.log.getvalue())  # the certificate is verified


async def test_a_broker_that_ends_gives_an_event_under_way_to_the_next_one_at_once(
    identity_provider: IdentityProvider, receiver: WebhookReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("oauthbroker.events.forwarding.running.DRAIN_SECONDS", 0.2)
    receiver.answers.append("hang")
    forwarder = to_webhook(receiver)
    async with forwarding(identity_provider, forwarder, store=file_store(tmp_path)) as harness:
        (event_id,) = await enqueue(harness.broker, [0])
        await receiver.until_asked(1)
    async with forwarding(identity_provider, forwarder, store=file_store(tmp_path)) as harness:
        assert [event_id] == await receiver.until(1)
        assert 2 == len(receiver.received)


async def test_the_store_may_fail_and_nothing_is_lost(
    identity_provider: IdentityProvider, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
):
    clock = TestClock()
    async with forwarding(identity_provider, to_webhook(receiver), clock=clock) as harness:
        queues = harness.parts.queues
        acks, real = iter([True, False]), queues.ack

        async def ack(agent: str, event_id: str, lease: str) -> bool:
            if next(acks, False):
                raise BrokerError(Code.STORE_UNAVAILABLE)
            return await real(agent, event_id, lease)

        monkeypatch.setattr(queues, "ack", ack)
        ids = await enqueue(harness.broker, [0, 3])
        await receiver.until(1)
        clock.advance(harness.parts.limits.queue_lease_seconds + 1)
        assert [ids[0], ids[0], ids[1]] == await receiver.until(3)
        assert "will be sent again" in harness.log.getvalue()


def test_a_bundle_of_code_says_which_agents_it_forwards():
    bundle = Bundle(Settings(), {}, forwarders=(Forwarder(name="a", agents=("x",), to=Webhook(url="https://a")),))
    assert (True, False) == (bundle.forwards("x"), bundle.forwards("y"))
