"""Brokers that died, met or were slow: unfinished work is finished once, by the next broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.authorization.finish import Finish
from oauthbroker.authorization.waiting_sessions import WaitingSessions
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.repository.repository import Conflict, Repository
from oauthbroker.store.format.port import Entry, Key
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.stores import open_keyring
from tests.kit.broker_process import AFTER_CLAIMS, Process, ask, complete, granted_event_ids, outcome
from tests.kit.running_broker import ALICE, BOB, user_app

Start = Callable[[], Process]


class PowerCut(BaseException):
    """The broker stops here."""


@pytest.fixture
async def start(identity_provider: IdentityProvider, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a broker on the same files; its relay and sweeper run when the test says so."""
    ring, started = open_keyring(tmp_path), list[Process]()
    apps = [user_app(identity_provider), user_app(identity_provider, "files")]

    def one() -> Process:
        process = Process.start(tmp_path / "store", ring, apps, identity_provider.clock.now())
        started.append(process)
        return process

    yield one
    for process in started:
        await process.die()


async def cut_in_commit(
    process: Process, idp: IdentityProvider, asked: AuthorizationRequired, monkeypatch: Any
) -> None:
    """The power goes between the grant and everything after it."""

    async def cut(*_: Any) -> None:
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(WaitingSessions, "complete_all", cut)
        with pytest.raises(PowerCut):
            await complete(process, idp, asked)


async def cut_in_exchange(
    process: Process, idp: IdentityProvider, asked: AuthorizationRequired, monkeypatch: Any
) -> None:
    """The power goes between the claim and the grant."""

    async def cut(*_: Any) -> None:
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(Finish, "verify", cut)
        with pytest.raises(PowerCut):
            await complete(process, idp, asked)


@pytest.mark.case("36", "93")
@pytest.mark.rule("12.5.6-6")
async def test_a_grant_without_its_end_is_finished_at_the_next_start(start, identity_provider, monkeypatch):
    first = start()
    asked, other = await ask(first), await ask(first, instance="other thread")
    await cut_in_commit(first, identity_provider, asked, monkeypatch)
    assert ("pending", None) == await outcome(first, asked)
    second = start()
    assert isinstance(await ask(second), Ready)
    await second.tend()
    assert ("completed", None) == await outcome(second, asked) == await outcome(second, other)
    await second.drain()
    assert sorted(granted_event_ids(asked, other)) == sorted(second.heard.received)
    assert {"due": 0, "events": 0} == await second.counts(("due", "events"))
    assert 1 == identity_provider.count("authorization_code")


@pytest.mark.case("36")
async def test_a_broken_exchange_fails_when_its_claim_has_run_out_and_the_person_may_start_again(
    start, identity_provider, monkeypatch
):
    first = start()
    asked = await ask(first)
    await cut_in_exchange(first, identity_provider, asked, monkeypatch)
    second = start()
    await second.tend()
    assert ("pending", None) == await outcome(second, asked)  # the claim's process may still be at work
    again = await ask(second)
    assert isinstance(again, AuthorizationRequired)
    assert again.auth_session_id != asked.auth_session_id  # a claimed link leads nowhere
    await second.tend(after=AFTER_CLAIMS)
    assert ("failed", Code.EXCHANGE_UNCERTAIN) == await outcome(second, asked)
    await second.drain()
    assert [f"evt-{asked.auth_session_id}-auth.failed"] == second.heard.received
    assert await second.grant("mail", ALICE) is None
    second.clock.set(identity_provider.clock.now())
    assert 200 == await complete(second, identity_provider, again)
    assert isinstance(await ask(second), Ready)


@pytest.mark.case("93")
async def test_two_brokers_that_recover_the_same_session_do_it_once(start, identity_provider, monkeypatch):
    first = start()
    asked = await ask(first)
    await cut_in_commit(first, identity_provider, asked, monkeypatch)
    brokers = [start() for _ in range(4)]
    await asyncio.gather(*(broker.tend() for broker in brokers))
    await asyncio.gather(*(broker.drain() for broker in brokers))
    assert granted_event_ids(asked) == [event for broker in brokers for event in broker.heard.received]
    assert ("completed", None) == await outcome(first, asked)


async def test_a_claimer_that_is_only_slow_is_not_recovered_into_a_second_grant(start, identity_provider, monkeypatch):
    """Its claim ran out and its session was ended before its tokens came: nothing is stored."""
    slow, other = start(), start()
    asked = await ask(slow)
    verify = Finish.verify

    async def slowly(self: Finish, *args: Any) -> Any:
        verified = await verify(self, *args)
        await other.tend(after=AFTER_CLAIMS)
        return verified

    monkeypatch.setattr(Finish, "verify", slowly)
    assert await complete(slow, identity_provider, asked) >= 400
    assert ("failed", Code.EXCHANGE_UNCERTAIN) == await outcome(slow, asked)
    assert await slow.grant("mail", ALICE) is None
    await slow.tend()
    await slow.drain()
    assert [f"evt-{asked.auth_session_id}-auth.failed"] == slow.heard.received
    assert 0 == identity_provider.living_tokens("client-mail", "alice")  # what came back was revoked, not kept


async def test_a_grant_that_was_revoked_meanwhile_wakes_no_other_turn(start, identity_provider, monkeypatch):
    first = start()
    asked, other = await ask(first), await ask(first, instance="other thread")
    await cut_in_commit(first, identity_provider, asked, monkeypatch)
    assert await first.broker.revoke("mail", subject=ALICE)
    second = start()
    await second.tend()
    assert ("completed", None) == await outcome(second, asked)
    assert ("pending", None) == await outcome(second, other)
    await second.drain()
    assert [*granted_event_ids(asked), f"evt-{asked.auth_session_id}-auth.revoked"] == second.heard.received


@pytest.mark.case("93")
async def test_a_later_grant_on_top_does_not_make_the_earlier_one_a_failure(start, identity_provider, monkeypatch):
    first = start()
    asked, other = await ask(first), await ask(first, instance="other thread")
    await cut_in_commit(first, identity_provider, asked, monkeypatch)
    assert 200 == await complete(first, identity_provider, other)
    second = start()
    await second.tend()
    await second.drain()
    assert sorted(granted_event_ids(asked, other)) == sorted(second.heard.received)
    assert ("completed", None) == await outcome(second, asked) == await outcome(second, other)


@pytest.mark.case("93")
@pytest.mark.parametrize("deny", [False, True], ids=["a grant's event", "a session's event"])
async def test_a_relay_between_a_mark_and_its_record_loses_no_event(start, identity_provider, monkeypatch, deny):
    """It finds the mark, sees no record (or one without an event), and must not take the mark for stale."""
    here, there = start(), start()
    asked = await ask(here)
    put: Callable[..., Awaitable[Entry]] = here.store.put
    meanwhile: list[asyncio.Task[int]] = []

    async def watched(key: Key, body: bytes, *, expect: int, **more: Any) -> Entry:
        entry = await put(key, body, expect=expect, **more)
        if key.kind == "due":
            meanwhile.append(asyncio.create_task(there.parts.relay.once()))
            await asyncio.sleep(0.1)
        return entry

    monkeypatch.setattr(here.store, "put", watched)
    await complete(here, identity_provider, asked, deny=deny)
    assert meanwhile
    await asyncio.gather(*meanwhile)
    await there.tend()
    await there.drain()
    kind = "auth.denied" if deny else "auth.granted"
    assert [f"evt-{asked.auth_session_id}-{kind}"] == there.heard.received
    assert {"due": 0, "events": 0} == await there.counts(("due", "events"))


@pytest.mark.case("94", "65")
async def test_a_damaged_record_holds_back_no_other_event(start, identity_provider, tmp_path):
    process = start()
    damaged, healthy = await ask(process), await ask(process, user=BOB)
    assert 200 == await complete(process, identity_provider, damaged)
    key = Repository(process.store).grant_place(GrantKey("mail", ALICE))
    path = tmp_path / "store" / "data" / "grants" / key.name
    assert 200 == await complete(process, identity_provider, healthy, "bob")
    await asyncio.sleep(0.03)
    path.write_bytes(path.read_bytes()[:-1])
    again = start()
    with pytest.raises(BrokerError) as reported:
        await again.parts.relay.once()
    assert Code.RECORD_CORRUPT is reported.value.code
    await again.drain()
    assert granted_event_ids(healthy) == again.heard.received


async def test_a_provider_that_does_not_answer_a_revocation_holds_up_no_event(start, identity_provider):
    process = start()
    revoked, asked = await ask(process), await ask(process, "files")
    assert 200 == await complete(process, identity_provider, revoked)
    hold = identity_provider.script.revoke.hang(times=None)
    revoking = asyncio.create_task(process.broker.revoke("mail", subject=ALICE))
    await identity_provider.wait_for("revoke")
    assert 200 == await complete(process, identity_provider, asked)
    async with asyncio.timeout(60):
        await process.parts.relay.once()
        await process.drain()
    assert granted_event_ids(asked)[0] in process.heard.received
    assert not revoking.done()
    hold.release()
    assert await revoking


async def test_a_revocation_that_the_provider_missed_is_told_later_once(start, identity_provider):
    first = start()
    assert 200 == await complete(first, identity_provider, await ask(first))
    identity_provider.script.revoke.answer(status=503)
    assert await first.broker.revoke("mail", subject=ALICE)
    assert 1 == identity_provider.living_tokens("client-mail")
    second = start()
    await second.tend()
    assert 1 == await second.store.count("due")  # the provider has still to be told
    await second.parts.bulk_revocation.run_pass()
    await second.tend()
    assert 0 == identity_provider.living_tokens("client-mail")
    assert 0 == await second.store.count("due")
    calls = identity_provider.count("revoke")
    await second.parts.bulk_revocation.run_pass()
    assert calls == identity_provider.count("revoke")


@pytest.mark.case("93")
async def test_a_consumer_that_died_is_followed_by_one_that_gets_the_same_event(start, identity_provider):
    first = start()
    asked = await ask(first)
    assert 200 == await complete(first, identity_provider, asked)
    await first.tend()
    lost = await first.broker.events.lease("planner")
    assert lost is not None
    second = start()
    await second.tend()
    await second.drain()
    assert [] == second.heard.received
    await second.tend(after=61)
    await second.drain()
    assert [lost.id] == second.heard.received
    assert not await lost.ack()
    third = start()
    third.clock.advance(7200)
    await third.tend()
    await third.drain()
    assert [] == third.heard.received


async def test_a_store_that_fails_once_in_the_sweep_holds_up_one_session_only(start, monkeypatch):
    process = start()
    for subject in (ALICE, BOB):
        await ask(process, user=subject)
    lapse, failures = Finish.lapse, [BrokerError(Code.STORE_UNAVAILABLE), Conflict()]

    async def failing(self: Finish, held: Any, **more: Any) -> bool:
        if failures:
            raise failures.pop()
        return await lapse(self, held, **more)

    monkeypatch.setattr(Finish, "lapse", failing)
    process.clock.advance(601)
    with pytest.raises(BrokerError):  # the other one met a Conflict, which is nothing to tell of
        await process.parts.sweep.once()
    assert 2 == await process.parts.sweep.once()
