"""After a person agreed, or did not: who is woken, by what, how often, and how an agent without a queue hears of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import Turn
from oauthbroker.authorization.finish import Finish
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.events.port import EventLease, Queues
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.repository.repository import Conflict
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from tests.kit.broker_process import granted_event_ids
from tests.kit.running_broker import ALICE, BASE, BOB, Harness, file_store, running, turn, user_app
from tests.kit.waiting import until

WAITING = 100
SOON = 15.0
"""Real seconds on a busy machine. What should wake a waiting call and does not leaves it waiting for half a minute or longer."""


async def within(seconds: float, work: Awaitable[Any]) -> Any:
    """What `work` gives, in so many real seconds at the most."""
    return await asyncio.wait_for(work, seconds)


@pytest.mark.slow
@pytest.mark.case("94")
@pytest.mark.rule("12.5.6-7")
async def test_one_grant_resumes_every_turn_that_it_satisfies_exactly_once(identity_provider: IdentityProvider) -> None:
    limits = Limits(sessions_per_subject=WAITING + 10)
    async with running(identity_provider, [user_app(identity_provider)], limits=limits) as harness:
        waiting = [turn(instance=f"thread {number}") for number in range(WAITING)]
        links = [await harness.ask_link(scopes=["read"], of=each) for each in waiting]
        wider = await harness.ask_link(scopes=["read", "write"], of=turn(instance="wider"))
        switching = await harness.ask("mail", ["read"], turn(instance="switching"), switch_account=True)
        bobs = await harness.ask_link(scopes=["read"], of=turn(BOB, instance="bob's own thread"))
        page = await harness.connect(links[WAITING // 2])
        assert 200 == page.status
        events = await harness.events(count=WAITING)
        assert sorted(each.instance_key for each in waiting) == sorted(event["instanceKey"] for event in events)
        assert {link.auth_session_id for link in links} == {event["payload"]["authSessionId"] for event in events}
        assert WAITING == len({event["eventId"] for event in events})
        assert {"auth.granted"} == {event["type"] for event in events}
        for still in (wider, switching, bobs):
            assert "pending" == (await harness.broker.wait(still.auth_session_id, timeout=0)).status
        assert isinstance(await harness.ask(scopes=["read"], of=turn(instance="a late turn")), Ready)


async def test_a_grant_with_fewer_scopes_names_the_missing_ones_and_wakes_the_turns_it_suffices(
    harness: Harness,
) -> None:
    first = await harness.ask_link(scopes=["read", "write"])
    modest = await harness.ask_link(scopes=["read"], of=turn(instance="modest"))
    demanding = await harness.ask_link(scopes=["admin"], of=turn(instance="demanding"))
    await harness.connect(first, scopes=["openid", "read"])
    events = {event["payload"]["authSessionId"]: event for event in await harness.events(count=2)}
    assert {first.auth_session_id, modest.auth_session_id} == set(events)
    assert ["write"] == events[first.auth_session_id]["payload"]["scopesMissing"]
    assert "scopesMissing" not in events[modest.auth_session_id]["payload"]
    assert "pending" == (await harness.broker.wait(demanding.auth_session_id, timeout=0)).status


@pytest.mark.rule("12.5.6-7", "12.5.3-2")
async def test_the_event_says_all_that_the_agent_needs_and_nothing_secret(harness: Harness) -> None:
    asked = await harness.ask_link()
    await harness.connect(asked)
    (event,) = await harness.events()
    grant = await harness.grant()
    assert grant is not None
    assert {
        "eventId": f"evt-{asked.auth_session_id}-auth.granted",
        "type": "auth.granted",
        **turn().resume_target.to_json(),
        "createdAt": event["createdAt"],
        "payload": {
            "oauthAppRef": {"kind": "OAuthApp", "name": "mail"},
            "provider": "oidc",
            "subject": ALICE,
            "authSessionId": asked.auth_session_id,
            "grantId": grant.id,
            "scopesGranted": list(grant.scopes),
        },
    } == event


async def says_no_at_the_provider(harness: Harness, asked: AuthorizationRequired) -> Page:
    return await harness.connect(asked, deny=True)


async def is_somebody_else(harness: Harness, asked: AuthorizationRequired) -> Page:
    return await harness.connect(asked, "bob")


Unhappy = Callable[[Harness, AuthorizationRequired], Awaitable[Page]]


@pytest.mark.parametrize(
    ("ending", "kind", "code"),
    [
        (says_no_at_the_provider, "auth.denied", Code.PROVIDER_DENIED),
        (is_somebody_else, "auth.failed", Code.SUBJECT_MISMATCH),
    ],
    ids=["denied", "failed"],
)
async def test_the_agent_hears_of_an_unhappy_end_too(harness: Harness, ending: Unhappy, kind: str, code: Code) -> None:
    asked = await harness.ask_link()
    bystander = await harness.ask_link(of=turn(instance="bystander"))
    page = await ending(harness, asked)
    assert page.status >= 400
    (event,) = await harness.events()
    assert (kind, f"evt-{asked.auth_session_id}-{kind}") == (event["type"], event["eventId"])
    assert {"code": code.value, "authSessionId": asked.auth_session_id}.items() <= event["payload"].items()
    outcome = await harness.broker.wait(asked.auth_session_id, timeout=0)
    assert ("failed", code) == (outcome.status, outcome.code)
    assert "pending" == (await harness.broker.wait(bystander.auth_session_id, timeout=0)).status


async def test_a_revoked_grant_tells_whom_it_was_given_for(harness: Harness) -> None:
    await harness.connected(of=turn(instance="who asked"))
    assert "auth.granted" == (await harness.events())[0]["type"]
    assert await harness.broker.revoke("mail", subject=ALICE)
    (event,) = await harness.events()
    assert ("auth.revoked", "who asked") == (event["type"], event["instanceKey"])
    assert not await harness.broker.revoke("mail", subject=ALICE)
    assert [] == await harness.events(count=0)


@pytest.mark.rule("12.5.5")
@pytest.mark.parametrize("asked_for", [False, True], ids=["off unless asked for", "asked for"])
async def test_expired_sessions_go_silently_unless_an_agent_wants_to_know(
    identity_provider: IdentityProvider, tmp_path: Path, asked_for: bool
) -> None:
    clock = TestClock()
    settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), expired_events=asked_for)

    def harness_() -> Any:
        apps, store = [user_app(identity_provider)], file_store(tmp_path, clock)
        return running(identity_provider, apps, clock=clock, store=store, settings=settings)

    async with harness_() as harness:
        asked = await harness.ask_link()
    clock.advance(601)
    async with harness_() as harness:  # a broker that starts sweeps first
        assert "expired" == (await harness.session(asked)).status
        events = await harness.events(count=1 if asked_for else 0)
        assert ["auth.expired"] * asked_for == [event["type"] for event in events]
    clock.advance(3601)
    async with harness_() as harness:
        assert 0 == await harness.store.count("sessions")
        assert [] == await harness.events(count=0)


async def test_broker_wait_returns_when_the_person_is_back(harness: Harness) -> None:
    asked = await harness.ask_link()
    waiting = asyncio.create_task(harness.broker.wait(asked.auth_session_id, timeout=600))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await harness.connect(asked)
    outcome = await within(SOON, waiting)
    assert ("completed", None) == (outcome.status, outcome.code)


async def test_broker_wait_is_pending_when_its_time_is_over(harness: Harness) -> None:
    asked = await harness.ask_link()
    waiting = asyncio.create_task(harness.broker.wait(asked.auth_session_id, timeout=60))
    await asyncio.sleep(0.05)
    harness.clock.advance(61)
    assert "pending" == (await within(SOON, waiting)).status


async def test_broker_wait_tells_of_an_expired_or_unknown_session(harness: Harness) -> None:
    asked = await harness.ask_link()
    harness.clock.advance(601)
    assert "expired" == (await harness.broker.wait(asked.auth_session_id)).status
    assert "expired" == (await harness.broker.wait("as-" + "A" * 22)).status


@pytest.mark.parametrize("name", ["", "as-", "as-short", "as-" + "A" * 23, "../grants/x", "as-" + "A" * 21 + "\n"])
async def test_a_malformed_session_id_is_refused(harness: Harness, name: str) -> None:
    for call in (harness.broker.wait(name), harness.broker.cancel(name)):
        with pytest.raises(BrokerError) as refused:
            await call
        assert Code.REQUEST_INVALID is refused.value.code


async def test_a_cancelled_request_ends_and_no_turn_is_woken(harness: Harness) -> None:
    asked = await harness.ask_link()
    browser = harness.browser()
    callback = await harness.way_back(asked, browser)
    assert await harness.broker.cancel(asked.auth_session_id)
    assert not await harness.broker.cancel(asked.auth_session_id)
    page = await browser.follow(callback)
    while page.location is not None:
        page = await browser.follow()
    assert page.status >= 400
    assert (await harness.browser().open(asked.authorization_url)).status >= 400
    assert "expired" == (await harness.broker.wait(asked.auth_session_id)).status
    assert await harness.broker.pending(turn()) is None
    assert await harness.grant() is None
    assert [] == await harness.events(count=0)
    assert 0 == harness.idp.count("authorization_code")


async def test_a_completed_request_cannot_be_cancelled(harness: Harness) -> None:
    asked = await harness.ask_link()
    await harness.connect(asked)
    assert not await harness.broker.cancel(asked.auth_session_id)
    assert isinstance(await harness.ask(), Ready)


async def test_cancelling_wins_over_a_browser_that_presses_the_button_meanwhile(harness: Harness, monkeypatch) -> None:
    asked = await harness.ask_link()
    lapse, ticket = Finish.lapse, asked.authorization_url.rpartition("/")[2]

    async def pressed_first(self: Finish, held: Any, **more: Any) -> bool:
        monkeypatch.undo()
        await harness.parts.pages.service.depart(ticket)
        return await lapse(self, held, **more)

    monkeypatch.setattr(Finish, "lapse", pressed_first)
    assert await harness.broker.cancel(asked.auth_session_id)
    assert "expired" == (await harness.session(asked)).status
    assert await harness.broker.pending(turn()) is None


@pytest.mark.rule("12.5.8")
@pytest.mark.parametrize(
    "other",
    [
        turn(instance="another thread"),
        turn(agent="another agent"),
        turn(BOB),
        turn(user=None, team=None),
        Turn("planner", turn().instance_key, "Swarm/other", origin=turn().origin, auth=turn().auth),
    ],
    ids=["instance", "agent", "subject", "nobody", "swarm"],
)
async def test_pending_shows_a_turn_only_its_own_requests(harness: Harness, other: Turn) -> None:
    asked = [await harness.ask_link(app) for app in ("mail", "files")]
    block = await harness.broker.pending(turn())
    assert block is not None
    assert "auth.pending" == block["type"]
    assert [each.auth_session_id for each in asked] == [item["authSessionId"] for item in block["items"]]
    assert await harness.broker.pending(other) is None


async def test_pending_ends_with_the_session(harness: Harness) -> None:
    asked = await harness.ask_link()
    await harness.connect(asked)
    assert await harness.broker.pending(turn()) is None
    await harness.ask_link("files")
    harness.clock.advance(601)
    assert await harness.broker.pending(turn()) is None


async def test_a_waiting_consumer_is_woken_at_once(harness: Harness, monkeypatch) -> None:
    """Without its polling: only the notifier can have woken it."""
    monkeypatch.setattr("oauthbroker.events.waits.POLL_SECONDS", 3600)
    asked = await harness.ask_link()
    waiting = asyncio.create_task(harness.broker.events.lease("planner", wait=3600))
    outcome = asyncio.create_task(harness.broker.wait(asked.auth_session_id, timeout=3600))
    await asyncio.sleep(0.05)
    await harness.connect(asked)
    assert asked.auth_session_id in (await within(SOON, waiting)).id
    assert "completed" == (await within(SOON, outcome)).status


async def test_a_consumer_in_another_process_is_woken_within_a_second(
    identity_provider: IdentityProvider, tmp_path: Path
) -> None:
    clock, apps = TestClock(), [user_app(identity_provider)]
    async with (
        running(identity_provider, apps, clock=clock, store=file_store(tmp_path, clock)) as here,
        running(identity_provider, apps, clock=clock, store=file_store(tmp_path, clock)) as there,
    ):
        asked = await here.ask_link()
        waiting = asyncio.create_task(there.broker.events.lease("planner", wait=3600))
        outcome = asyncio.create_task(there.broker.wait(asked.auth_session_id, timeout=3600))
        await asyncio.sleep(0.05)
        await here.connect(asked)
        begin = time.monotonic()
        assert asked.auth_session_id in (await within(SOON, waiting)).id
        assert "completed" == (await within(SOON, outcome)).status
        assert time.monotonic() - begin < SOON
        assert isinstance(await there.ask(), Ready)


async def test_a_ring_between_looking_and_waiting_is_heard() -> None:
    notifier = Notifier()
    heard = notifier.listen()
    notifier.notify()
    await within(SOON, notifier.wait(3600, heard))
    with pytest.raises(TimeoutError):
        await within(0.05, notifier.wait(3600, notifier.listen()))


async def test_a_grant_that_comes_while_the_relay_is_busy_is_not_late(harness: Harness, monkeypatch) -> None:
    """The relay's next round would come by itself, but only after half a minute."""
    queues, busy, go_on = type(harness.parts.queues), asyncio.Event(), asyncio.Event()
    enqueue = queues.enqueue

    async def slow(self: Queues, event: Any, **how: Any) -> bool:
        busy.set()
        await go_on.wait()
        return await enqueue(self, event, **how)

    monkeypatch.setattr(queues, "enqueue", slow)
    links = [await harness.ask_link(app) for app in ("mail", "files")]
    await harness.connect(links[0])
    await within(SOON, busy.wait())
    await harness.connect(links[1])
    go_on.set()
    for link in links:
        delivery = await within(SOON, harness.broker.events.lease("planner", wait=3600))
        assert link.auth_session_id in delivery.id
        await delivery.ack()


async def test_on_granted_acknowledges_what_the_callback_took(harness: Harness) -> None:
    asked, heard = await harness.ask_link(), asyncio.Queue[str]()

    async def take(delivery: EventLease) -> None:
        await heard.put(delivery.id)

    async with harness.broker.on_granted("planner", take):
        await harness.connect(asked)
        assert asked.auth_session_id in await within(SOON, heard.get())
        await asyncio.sleep(0.1)
    harness.clock.advance(3600)
    assert [] == await harness.events(count=0)
    assert heard.empty()


async def test_on_granted_logs_a_callback_that_fails_and_gives_its_event_back(harness: Harness) -> None:
    asked, attempts = await harness.ask_link(), asyncio.Queue[int]()

    async def refuse_once(delivery: EventLease) -> None:
        await attempts.put(delivery.attempt)
        if delivery.attempt == 1:
            raise RuntimeError("not now")

    async with harness.broker.on_granted("planner", refuse_once):
        await harness.connect(asked)
        assert 1 == await within(SOON, attempts.get())
        with pytest.raises(TimeoutError):
            await within(0.5, attempts.get())
        harness.clock.advance(2)
        assert 2 == await within(SOON, attempts.get())
    failed = [line for line in harness.log.getvalue().splitlines() if "the callback of on_granted failed" in line]
    assert 1 == len(failed), failed
    assert '"agent": "planner", "error": "RuntimeError"' in failed[0]
    assert "not now" not in failed[0]


async def test_on_granted_outlives_a_store_that_fails_for_a_moment(harness: Harness, monkeypatch) -> None:
    asked, heard = await harness.ask_link(), asyncio.Queue[str]()
    queues = type(harness.parts.queues)
    lease = queues.lease

    async def failing(self: Queues, agent: str) -> EventLease | None:
        monkeypatch.setattr(queues, "lease", lease)
        raise BrokerError(Code.STORE_UNAVAILABLE)

    async def take(delivery: EventLease) -> None:
        await heard.put(delivery.id)

    monkeypatch.setattr(queues, "lease", failing)
    async with harness.broker.on_granted("planner", take):
        await until(lambda: queues.lease is lease)
        await harness.connect(asked)
        assert asked.auth_session_id in await within(SOON, heard.get())


async def test_a_callback_that_is_cut_off_keeps_its_event_for_later(harness: Harness) -> None:
    asked, begun = await harness.ask_link(), asyncio.Event()

    async def never_ends(delivery: EventLease) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with harness.broker.on_granted("planner", never_ends):
        await harness.connect(asked)
        await within(SOON, begun.wait())
    assert await harness.broker.events.lease("planner") is None
    harness.clock.advance(61)
    delivery = await harness.broker.events.lease("planner")
    assert delivery is not None
    assert (2, f"evt-{asked.auth_session_id}-auth.granted") == (delivery.attempt, delivery.id)


@pytest.mark.case("94")
async def test_an_event_that_cannot_be_handled_becomes_a_dead_letter_and_the_token_is_ready_anyway(
    harness: Harness,
) -> None:
    poisoned = await harness.ask_link(of=turn(instance="an unknown thread"))
    await harness.ask_link(of=turn(instance="healthy"))
    await harness.connect(poisoned)
    healthy = []
    for _ in range(10):
        while (delivery := await harness.broker.events.lease("planner", wait=0)) is not None:
            if delivery.event.target.instance_key == "healthy":
                healthy.append(delivery.id)
                await delivery.ack()
            else:
                await delivery.nack()
        await asyncio.sleep(0.02)
        harness.clock.advance(200 if healthy else 0)
    assert 1 == len(healthy)
    (dead,) = await harness.broker.events.dead("planner")
    assert f"evt-{poisoned.auth_session_id}-auth.granted" == dead["eventId"]
    assert isinstance(await harness.ask(of=turn(instance="an unknown thread")), Ready)


async def test_a_consumer_goes_on_after_it_met_another_process(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    queues, heard, met, done = type(harness.parts.queues), list[str](), list[str](), asyncio.Event()
    lease = queues.lease

    async def once(self: Queues, agent: str) -> EventLease | None:
        if not met:
            met.append(agent)
            raise Conflict
        return await lease(self, agent)

    async def hear(delivery: EventLease) -> None:
        heard.append(delivery.id)
        done.set()

    monkeypatch.setattr(queues, "lease", once)
    async with harness.broker.on_granted("planner", hear):
        asked = await harness.ask_link()
        assert 200 == (await harness.connect(asked)).status
        async with asyncio.timeout(60):
            await done.wait()
    assert ["planner"] == met
    assert granted_event_ids(asked) == heard
