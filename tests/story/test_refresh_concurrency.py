"""Callers that leave, brokers that meet over one grant, clocks that are wrong: one refresh a generation all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.opened_here import OpenedHere
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import Endpoints
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.refresh.writeback import Writeback
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Entry, Key, Lease, Reservation
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider.faults import Hold, Work
from oauthbroker.testing.provider.http import Answer, Reply
from oauthbroker.testing.stores import open_keyring
from tests.kit.running_broker import ALICE, Harness, global_app, running, turn, user_app

HOUR, DAY = 3600, 86_400


async def expired(harness: Harness) -> Ready:
    """A grant whose token has just ended."""
    first = await harness.connected()
    harness.clock.advance(HOUR)
    return first


def healthy(harness: Harness) -> None:
    """No generation of the one family was redeemed twice, and it lives."""
    (family,) = harness.idp.families("client-mail")
    assert (set(), "") == (set(family.redeemed.values()) - {1}, family.ended_by)


# callers that leave


class WatchedStore(MemoryStore):
    """Calls `reached` at every verb of the port, before and after it."""

    def __init__(self, clock: TestClock) -> None:
        super().__init__(kinds=KINDS, lease_kinds=LEASES, clock=clock)
        self.reached: Callable[[], None] = lambda: None

    async def get(self, key: Key) -> Entry | None:
        await self._pass()
        return await super().get(key)

    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        await self._pass()
        entry = await super().put(key, body, **more)
        await self._pass()
        return entry

    @asynccontextmanager
    async def reserve(self, key: Key, size: int, **more: Any) -> AsyncIterator[Reservation]:
        await self._pass()
        async with super().reserve(key, size, **more) as reservation:
            yield reservation

    @asynccontextmanager
    async def lease(self, key: Key, *, wait: float) -> AsyncIterator[Lease]:
        await self._pass()
        async with super().lease(key, wait=wait) as versioned:
            await self._pass()
            yield versioned

    async def _pass(self) -> None:
        self.reached()
        await asyncio.sleep(0)


@pytest.mark.case("50")
async def test_a_caller_may_be_cancelled_at_any_step_and_the_refresh_is_stored(
    identity_provider: IdentityProvider, test_clock: TestClock
):
    """One request for each token that ended, however early or late its caller left."""
    store = WatchedStore(test_clock)
    app, left = user_app(identity_provider), None
    async with running(identity_provider, [app], clock=test_clock, store=store, background=False) as harness:
        await harness.connected()
        for number in range(100):
            harness.clock.advance(HOUR)
            caller = asyncio.create_task(harness.ask())
            store.reached = cancel_after(number, caller)
            (left,) = await asyncio.gather(caller, return_exceptions=True)
            store.reached = lambda: None
            answer = await harness.ask()
            grant = await harness.grant()
            assert isinstance(answer, Ready), number
            assert grant is not None
            assert grant.token is not None
            assert (answer.access_token, None) == (grant.token.access_token, grant.refresh_state.intent)
            assert harness.idp.is_alive(answer.access_token)
            assert number + 1 == harness.idp.count("refresh_token")
            if not isinstance(left, asyncio.CancelledError):
                break
        assert isinstance(left, Ready)
        assert number > 10  # there is much to wait for
        healthy(harness)


def cancel_after(number: int, caller: asyncio.Task[Any]) -> Callable[[], None]:
    passed = 0

    def reached() -> None:
        nonlocal passed
        passed += 1
        if passed > number:
            caller.cancel()

    return reached


@pytest.mark.case("50")
@pytest.mark.parametrize("after_work", [False, True], ids=["before the provider refreshed", "after it"])
async def test_callers_whose_patience_ends_leave_the_refresh_to_the_next_one(harness: Harness, after_work: bool):
    await expired(harness)
    hold = harness.idp.script.refresh.hang(after_work=after_work)
    callers = [asyncio.wait_for(harness.ask(), timeout=0.05) for _ in range(5)]
    left = await asyncio.gather(*callers, return_exceptions=True)
    assert {TimeoutError} == {type(each) for each in left}
    late = asyncio.create_task(harness.ask())
    await asyncio.sleep(0.01)
    hold.release()
    assert isinstance(await late, Ready)
    assert 1 == harness.idp.count("refresh_token")
    healthy(harness)


@pytest.mark.case("50")
async def test_a_broker_that_is_left_in_mid_refresh_stores_it_first(
    identity_provider: IdentityProvider, test_clock: TestClock
):
    store = WatchedStore(test_clock)
    app = user_app(identity_provider)
    async with running(identity_provider, [app], clock=test_clock, store=store) as harness:
        await expired(harness)
        hold = harness.idp.script.refresh.hang(after_work=True)
        caller = asyncio.create_task(harness.ask())
        await hold.arrived()
        caller.cancel()
        asyncio.get_running_loop().call_later(0.05, hold.release)
    store._opened_here = OpenedHere()  # a second look
    grant = await harness.grant()
    assert grant is not None
    assert grant.token is not None
    assert grant.token.refresh_token is not None
    assert (None, 2) == (grant.refresh_state.intent, harness.idp.generation_of(grant.token.refresh_token))


# late answers


@pytest.mark.case("61")
async def test_a_late_report_of_an_older_token_refreshes_the_one_that_has_ended_since(harness: Harness):
    first = await expired(harness)
    assert isinstance(await harness.ask(), Ready)
    harness.clock.advance(HOUR)
    answer = await harness.broker.oauth(turn()).report_rejected("mail", first.access_token)
    assert isinstance(answer, Ready)
    assert harness.idp.is_alive(answer.access_token)
    assert 2 == harness.idp.count("refresh_token")


@pytest.mark.case("53")
async def test_the_reason_is_that_of_now_even_where_a_link_of_before_still_leads_there(harness: Harness):
    await expired(harness)
    harness.idp.script.refresh.close_after_accept(after_work=True)
    assert "error" == (await harness.ask()).status
    harness.clock.advance(2)
    uncertain = await harness.ask_link()
    await harness.broker.revoke("mail", subject=ALICE)
    revoked = await harness.ask_link()
    assert ("refreshUncertain", "revoked") == (uncertain.reason, revoked.reason)
    assert uncertain.authorization_url == revoked.authorization_url


# brokers that meet


class Lockless(FileStore):
    """A store whose provider leases lapse at once: another broker may have each of them at any time. `lost` says whether
    this broker has noticed it."""

    lost = False

    async def holds(self) -> bool:
        return not self.lost

    @asynccontextmanager
    async def lease(self, key: Key, *, wait: float) -> AsyncIterator[Lease]:
        if key.kind == "provider":
            yield self
            return
        async with super().lease(key, wait=wait) as versioned:
            yield versioned


@dataclass(frozen=True)
class HeldRefusal:
    """The provider takes its time to say that it does not know this token."""

    hold: Hold

    async def __call__(self, work: Work) -> Reply:
        await self.hold.wait()
        return Answer(400, (("content-type", "application/json"),), b'{"error": "invalid_grant"}')


@pytest.fixture
async def two(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Harness, Harness]]:
    """Two brokers on one folder, and a grant whose token has just ended."""
    kind, app, ring = getattr(request, "param", FileStore), user_app(identity_provider), open_keyring(tmp_path)
    stores = [kind(tmp_path / "store", ring, kinds=KINDS, lease_kinds=LEASES, clock=test_clock) for _ in range(2)]
    first, second = (
        running(identity_provider, [app], clock=test_clock, store=store, background=False) for store in stores
    )
    async with first as one, second as other:
        await expired(one)
        yield one, other


@pytest.mark.case("46", "51")
async def test_a_call_that_waits_for_another_process_gets_the_same_token(two: tuple[Harness, Harness]):
    one, other = two
    hold = one.idp.script.refresh.hang(after_work=True)
    asking = [asyncio.create_task(one.ask())]
    await hold.arrived()
    asking += [asyncio.create_task(harness.ask()) for harness in (one, other, other)]
    await asyncio.sleep(0.05)
    hold.release()
    answers = await asyncio.gather(*asking)
    assert 1 == len({answer.access_token.reveal() for answer in answers})
    assert 1 == one.idp.count("refresh_token")
    healthy(one)


@pytest.mark.case("51")
@pytest.mark.parametrize("two", [Lockless], indirect=True)
async def test_a_no_to_the_old_token_counts_nothing_when_another_process_has_rotated_it(two: tuple[Harness, Harness]):
    """Its no is late and about yesterday: the newer generation wins, and no user has to agree again."""
    one, other = two
    hold = Hold()
    one.idp.script.refresh._steps.add(HeldRefusal(hold), 1)
    asking = asyncio.create_task(one.ask())
    await hold.arrived()
    one.clock.advance(2)  # what the first broker left open is made good by the second one
    newer = await other.ask()
    assert isinstance(newer, Ready)
    hold.release()
    reported = await asking
    assert isinstance(reported, Ready)
    assert newer.access_token == reported.access_token == (await one.ask()).access_token
    grant = await one.grant()
    assert grant is not None
    assert ("", None) == (grant.refresh_state.ended, grant.refresh_state.intent)
    assert 2 == one.idp.count("refresh_token")
    healthy(one)


@pytest.mark.case("51")
@pytest.mark.parametrize("two", [Lockless], indirect=True)
@pytest.mark.parametrize("after_work", [False, True], ids=["before the provider refreshed", "after it"])
async def test_a_zombie_whose_intent_was_superseded_commits_nothing(two: tuple[Harness, Harness], after_work: bool):
    one, other = two
    one.idp.change("client-mail", reuse_grace=60)
    hold = one.idp.script.refresh.hang(after_work=after_work)
    asking = asyncio.create_task(one.ask())
    await hold.arrived()
    one.clock.advance(2)
    newer = await other.ask()
    assert isinstance(newer, Ready)
    before = await other.grant()
    hold.release()
    reported = await asking
    assert isinstance(reported, Ready)
    assert newer.access_token == reported.access_token
    after = await one.grant()
    assert after is not None
    assert before == replace(after, replaced=()) == replace(await other.grant() or after, replaced=())
    assert 0 == one.idp.count("revoke")  # a late answer may share its family with the kept tokens
    assert 1 == len(after.replaced), "so that it is revoked with them"


@pytest.mark.case("51")
@pytest.mark.parametrize("two", [Lockless], indirect=True)
@pytest.mark.parametrize("others", ["nothing", "a refusal"])
async def test_a_holder_that_was_frozen_after_the_provider_rotated_keeps_the_new_token(
    two: tuple[Harness, Harness], others: str
):
    """Its lease has lapsed, and the next holder may have sent the old token, in vain."""
    one, other = two
    hold = one.idp.script.refresh.hang(after_work=True)
    asking = asyncio.create_task(one.ask())
    await hold.arrived()
    if others == "a refusal":
        one.idp.script.refresh.refuse("invalid_grant")
        one.clock.advance(2)
        assert not isinstance(await other.ask(), Ready)
    hold.release()
    reported = await asking
    assert isinstance(reported, Ready), reported
    assert reported.access_token == (await other.ask()).access_token
    grant = await one.grant()
    assert grant is not None
    assert grant.token is not None
    assert grant.token.refresh_token is not None
    assert ("", None) == (grant.refresh_state.ended, grant.refresh_state.intent)
    assert 2 == one.idp.generation_of(grant.token.refresh_token)
    healthy(one)


@pytest.mark.case("51")
@pytest.mark.parametrize("two", [Lockless], indirect=True)
@pytest.mark.parametrize("second", ["an answer", "a refusal"])
async def test_of_two_answers_the_one_to_the_later_request_is_kept_and_a_later_refusal_takes_none_away(
    two: tuple[Harness, Harness], second: str
):
    one, other = two
    one.idp.change("client-mail", reuse_grace=60)
    early = one.idp.script.refresh.hang(after_work=True)
    first = asyncio.create_task(one.ask())
    await early.arrived()
    one.clock.advance(2)
    late = Hold()
    refused = HeldRefusal(late)
    if second == "a refusal":
        one.idp.script.refresh._steps.add(refused, 1)
    else:
        late = one.idp.script.refresh.hang(after_work=True)
    then = asyncio.create_task(other.ask())
    await late.arrived()
    early.release()
    reported = await first
    assert isinstance(reported, Ready), reported
    late.release()
    newer = await then
    assert isinstance(newer, Ready), newer
    assert (newer.access_token != reported.access_token) is (second == "an answer")
    grant = await one.grant()
    assert grant is not None
    assert grant.token is not None
    assert (newer.access_token, "", None) == (
        grant.token.access_token,
        grant.refresh_state.ended,
        grant.refresh_state.intent,
    )


@pytest.mark.case("51")
@pytest.mark.parametrize("two", [Lockless], indirect=True)
async def test_a_holder_that_has_lost_its_lease_sends_nothing(two: tuple[Harness, Harness]):
    one, _ = two
    assert isinstance(one.store, Lockless)
    one.store.lost = True
    answer = await one.ask()
    assert ("error", "refreshInProgress") == (answer.status, answer.code)
    grant = await one.grant()
    assert grant is not None
    assert (0, None) == (one.idp.count("refresh_token"), grant.refresh_state.intent)
    one.store.lost = False
    assert isinstance(await one.ask(), Ready)
    healthy(one)


@pytest.mark.case("51")
@pytest.mark.parametrize("two", [Lockless], indirect=True)
async def test_a_holder_that_loses_its_lease_after_the_first_of_two_requests_sends_no_second(
    two: tuple[Harness, Harness], monkeypatch: pytest.MonkeyPatch
):
    """The newer refresh token is refused, and the next holder may have redeemed the older one meanwhile."""
    one, _ = two
    assert isinstance(one.store, Lockless)
    grant = await one.grant()
    assert grant is not None
    spare = Secret("a newer one that the provider does not know")
    await one.change_grant(refresh_state=replace(grant.refresh_state, spare=spare))
    monkeypatch.setattr(
        Lockless, "lost", property(lambda store: store is one.store and one.idp.count("refresh_token") > 0)
    )
    answer = await one.ask()
    assert ("error", "refreshInProgress") == (answer.status, answer.code)
    grant = await one.grant()
    assert grant is not None
    assert (1, None, "") == (one.idp.count("refresh_token"), grant.refresh_state.intent, grant.refresh_state.ended)
    monkeypatch.setattr(Lockless, "lost", False)
    assert isinstance(await one.ask(), Ready)
    healthy(one)


@pytest.mark.case("51")
@pytest.mark.parametrize("two", [Lockless], indirect=True)
@pytest.mark.parametrize("silent_at", [1, 2], ids=["before the intent", "right before the request"])
async def test_a_store_that_does_not_say_whether_the_lease_is_held_lets_nothing_be_sent(
    two: tuple[Harness, Harness], silent_at: int, monkeypatch: pytest.MonkeyPatch
):
    one, asked = two[0], list[int]()

    async def silent(self: Lockless) -> bool:
        asked.append(1)
        if len(asked) == silent_at:
            raise BrokerError(Code.STORE_UNAVAILABLE)
        return True

    monkeypatch.setattr(Lockless, "holds", silent)
    answer = await one.ask()
    assert ("error", "storeUnavailable") == (answer.status, answer.code)
    grant = await one.grant()
    assert grant is not None
    assert (0, None) == (one.idp.count("refresh_token"), grant.refresh_state.intent)
    assert isinstance(await one.ask(), Ready)
    healthy(one)


@pytest.mark.case("51")
@pytest.mark.parametrize("two", [Lockless], indirect=True)
@pytest.mark.parametrize("between", ["has sealed its intent", "has stored its token"])
async def test_a_holder_reads_the_grant_again_right_before_it_sends_and_leaves_a_token_that_another_has_sent(
    two: tuple[Harness, Harness], between: str, monkeypatch: pytest.MonkeyPatch
):
    """It was frozen after it had sealed its intent, and does not know that its lease has lapsed."""
    one, other = two
    hold = one.idp.script.refresh.hang(after_work=True) if between == "has sealed its intent" else None
    begin, under_way = Writeback.begin, list[asyncio.Task[Any]]()

    async def frozen(self: Writeback, *given: Any, **more: Any) -> Any:
        begun = await begin(self, *given, **more)
        if self is one.running.parts.writeback:
            one.clock.advance(2)
            under_way.append(asyncio.create_task(other.ask()))
            await (under_way[0] if hold is None else hold.arrived())
        return begun

    monkeypatch.setattr(Writeback, "begin", frozen)
    answer = await one.ask()
    if hold is not None:
        assert ("error", "refreshInProgress") == (answer.status, answer.code)
        hold.release()
    newer = await under_way[0]
    assert isinstance(newer, Ready)
    if hold is None:
        assert isinstance(answer, Ready)
        assert newer.access_token == answer.access_token
    assert 1 == one.idp.count("refresh_token")
    grant = await one.grant()
    assert grant is not None
    assert ("", None) == (grant.refresh_state.ended, grant.refresh_state.intent)
    healthy(one)


# a revoke or a login before the intent is sealed


@pytest.fixture
async def looking(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    """A harness whose app learns its endpoints from its provider, which takes time before anything is sealed."""
    app = user_app(identity_provider)
    app = replace(app, endpoints=Endpoints(issuer=app.endpoints.issuer, user_info_url=app.endpoints.user_info_url))
    async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
        yield harness


async def about_to_begin(harness: Harness) -> tuple[asyncio.Task[Any], Hold]:
    """Start a tool's call whose refresh has read the grant and waits for the provider's metadata."""
    await harness.connected()
    harness.clock.advance(DAY + 1)
    hold = harness.idp.script.discovery.hang()
    asking = asyncio.create_task(harness.ask())
    await hold.arrived()
    return asking, hold


@pytest.mark.case("53")
async def test_a_revoke_before_anything_is_sealed_leaves_nothing_to_refresh(looking: Harness):
    asking, hold = await about_to_begin(looking)
    revoking = asyncio.create_task(looking.broker.revoke("mail", subject=ALICE))
    while not (grant := await looking.grant()) or not grant.revoked:
        await asyncio.sleep(0.002)
    hold.release()
    answer, was_alive = await asyncio.gather(asking, revoking)
    assert isinstance(answer, AuthorizationRequired)
    assert ("revoked", True) == (answer.reason, was_alive)
    assert 0 == looking.idp.count("refresh_token")


@pytest.mark.case("53")
async def test_a_revoke_before_the_call_leaves_nothing_to_refresh(harness: Harness):
    await expired(harness)
    await harness.broker.revoke("mail", subject=ALICE)
    answer = await harness.ask()
    assert isinstance(answer, AuthorizationRequired)
    assert ("revoked", 0) == (answer.reason, harness.idp.count("refresh_token"))


# clocks


@pytest.mark.case("59")
async def test_a_lifetime_counts_from_when_its_request_was_sent(harness: Harness):
    await expired(harness)
    sent_at, hold = harness.clock.now(), harness.idp.script.refresh.hang(after_work=True)
    asking = asyncio.create_task(harness.ask())
    await hold.arrived()
    harness.clock.advance(90)
    hold.release()
    answer = await asking
    assert isinstance(answer, Ready)
    assert sent_at + timedelta(seconds=HOUR) == answer.expires_at


@pytest.mark.case("59")
@pytest.mark.parametrize("jumps", [(DAY,), (-DAY,), (DAY, -DAY), (-DAY, DAY), (DAY, -2 * DAY, DAY)], ids=repr)
async def test_a_wall_clock_that_jumps_costs_one_refresh_a_generation(harness: Harness, jumps: tuple[int, ...]):
    """Before and after each jump all callers ask often: no fresh token is refreshed."""
    await harness.connected()
    for jump in jumps:
        await asyncio.gather(*(harness.ask() for _ in range(5)))
        before = harness.idp.count("refresh_token")
        harness.clock.set(harness.clock.now() + timedelta(seconds=jump))
        for _ in range(3):
            answers = await asyncio.gather(*(harness.ask() for _ in range(5)))
            assert {"ready"} == {answer.status for answer in answers}
            assert 1 == len({answer.access_token.reveal() for answer in answers})
        assert harness.idp.count("refresh_token") <= before + 1
        assert harness.idp.is_alive(answers[0].access_token)
        assert answers[0].expires_at <= harness.clock.now() + timedelta(seconds=HOUR)
    assert 1 <= harness.idp.count("refresh_token")
    healthy(harness)


@pytest.mark.case("59")
@pytest.mark.parametrize("off", [600, -600], ids=["ten minutes ahead", "ten minutes behind"])
async def test_a_provider_whose_clock_is_wrong_is_asked_once_a_token(test_clock: TestClock, canaries, off: int):
    """Only its own tokens' lifetimes count, never a moment of its clock."""
    theirs = TestClock(test_clock.now() + timedelta(seconds=off))
    with IdentityProvider(clock=theirs, canaries=canaries) as idp:
        app = global_app(idp, "mail", habits=user_app(idp, "mail").habits.__class__())
        async with running(idp, [app], clock=test_clock, background=False) as harness:
            link = await harness.ask_link()
            assert 200 == (await harness.connect(link)).status
            for number in range(1, 4):
                for clock in (test_clock, theirs):
                    clock.advance(HOUR - 200)
                answers = [await harness.ask() for _ in range(4)]
                assert {"ready"} == {answer.status for answer in answers}
                assert test_clock.now() + timedelta(seconds=HOUR) == answers[-1].expires_at
                assert number == idp.count("refresh_token")
            healthy(harness)


@pytest.mark.case("51")
@pytest.mark.parametrize("two", [Lockless], indirect=True)
async def test_a_refusal_while_another_attempt_is_under_way_is_reported_as_temporary(two: tuple[Harness, Harness]):
    """Its word is about the old token, and the other attempt may bring the new one."""
    one, other = two
    one.idp.change("client-mail", reuse_grace=60)
    early = Hold()
    one.idp.script.refresh._steps.add(HeldRefusal(early), 1)
    first = asyncio.create_task(one.ask())
    await early.arrived()
    one.clock.advance(2)
    late = one.idp.script.refresh.hang(after_work=True)
    then = asyncio.create_task(other.ask())
    await late.arrived()
    early.release()
    reported = await first
    assert isinstance(reported, Failed), reported
    assert (Code.REFRESH_IN_PROGRESS, True) == (reported.code, reported.retryable)
    late.release()
    assert isinstance(await then, Ready)
    assert isinstance(await one.ask(), Ready)
