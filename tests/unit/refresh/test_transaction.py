"""Each step of the refresh transaction, and each way out of it, on a store in memory and with a scripted provider."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from oauthbroker.audit import RefreshFailed, TokenRefreshed
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.settings import Limits
from oauthbroker.observability.logging import json_log
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.protocol.refresh_call import MaySend, Redeemed
from oauthbroker.protocol.refresh_messages import RefreshRefused
from oauthbroker.records import Grant, RefreshState
from oauthbroker.records.refresh_state import Intent
from oauthbroker.refresh.circuit import Circuits
from oauthbroker.refresh.clients import Clients
from oauthbroker.refresh.job import RefreshJob
from oauthbroker.refresh.retry_store import RetryStore
from oauthbroker.refresh.transaction import RefreshTransaction
from oauthbroker.refresh.writeback import Refreshed, Writeback
from oauthbroker.repository.repository import KINDS, LEASES, Lease, Repository, Reservation, Versioned
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.kit.samples import NOW, app_with, grant_with, token_with
from tests.kit.waiting import until

APP = app_with()
KEY = GrantKey("mail", "acme:user:1")
OLD = grant_with(token=token_with(0, refresh_token=Secret("rt-1")), registration=APP.registration)
FRESH = replace(token_with(3600, refresh_token=Secret("rt-2")), access_token=Secret("at-2"))
ANSWER = Redeemed(token=FRESH, scopes=("read",), refresh_token=Secret("rt-2"), provider_data={})
Step = Callable[[], Awaitable[object]]


async def _nothing() -> None:
    return None


class ScriptedLease:
    """Held for as many looks as the script says."""

    lost = False

    def __init__(self) -> None:
        self.looks, self.held_for, self.then = 0, 100, _nothing

    async def holds(self) -> bool:
        self.looks += 1
        if self.looks > self.held_for:
            await self.then()
            return False
        return True


class WatchedRepository(Repository):
    """A repository whose leases and reads may fail, and that another writer may reach before the intent."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.lease, self.read_fails = ScriptedLease(), 0
        self.lease_fails: BrokerError | None = None
        self.waited, self.reserved = list[tuple[GrantKey, float]](), list[Reservation]()
        self.before_intent: Step = _nothing
        self.on_read: Callable[[int], Awaitable[object]] | None = None
        self.reads = 0

    @asynccontextmanager
    async def provider_lease(self, key: GrantKey, *, wait: float = 0) -> AsyncIterator[Lease]:
        self.waited.append((key, wait))
        if self.lease_fails is not None:
            raise self.lease_fails
        yield cast("Lease", self.lease)

    async def grant(self, key: GrantKey) -> Versioned[Grant] | None:
        self.reads += 1
        if self.on_read is not None:
            await self.on_read(self.reads)
        if self.read_fails:
            raise BrokerError(Code.STORE_UNAVAILABLE)
        return await super().grant(key)

    def reserve_for(self, versioned: Versioned[Grant], *, now: bool = True) -> AbstractAsyncContextManager[Reservation]:
        @asynccontextmanager
        async def reserved() -> AsyncIterator[Reservation]:
            async with super(WatchedRepository, self).reserve_for(versioned, now=now) as reservation:
                assert reservation.held is None, "the space is taken with the intent"
                self.reserved.append(reservation)
                await self.before_intent()
                yield reservation

        return reserved()


class WatchedCircuits(Circuits):
    """Circuits that note their calls."""

    def __init__(self, clock: TestClock) -> None:
        super().__init__(clock)
        self.told, self.waits = list[tuple[str, ...]](), list[float]()

    def permit(self, app: str, grant: str = "", *, wait: float) -> Any:
        self.waits.append(wait)
        self.told.append(("permit", app, grant))
        return super().permit(app, grant, wait=wait)

    def worked(self, app: str, grant: str = "") -> None:
        self.told.append(("worked", app, grant))
        super().worked(app, grant)

    def failed(self, app: str, error: BrokerError, grant: str = "", *, own: bool = False) -> Any:
        self.told.append(("failed", app, grant))
        return super().failed(app, error, grant, own=own)


class Provider:
    """What the redeemer, the discovery and the fetcher of client credentials answer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.answer: Redeemed | BaseException = ANSWER
        self.fetched: Grant | BrokerError | None = None
        self.unknown: BrokerError | None = None
        self.meanwhile: Step = _nothing
        self.sent, self.begun, self.fetches = list[str](), list[Grant](), list[Versioned[Grant] | None]()
        self.looked_up = list[str]()
        self.pause = asyncio.Event()
        self.pause.set()

    async def redeem(self, app: Any, endpoints: Any, grant: Grant, may_send: MaySend) -> Redeemed | None:
        assert (app.name, endpoints) == ("mail", "endpoints")
        self.begun.append(grant)
        await self.meanwhile()
        (secret, *_) = grant.refresh_tokens
        if not await may_send(secret):
            return None
        self.sent.append(secret.reveal())
        await self.pause.wait()
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def endpoints(self, app: Any) -> Any:
        self.looked_up.append(app.name)
        if self.unknown is not None:
            raise self.unknown
        return "endpoints"

    async def fetch(self, job: RefreshJob, versioned: Versioned[Grant] | None) -> Grant | None:
        self.fetches.append(versioned)
        if isinstance(self.fetched, BrokerError):
            raise self.fetched
        return self.fetched


class World:
    """One grant with an expired token in a store in memory, and a transaction for it."""

    def __init__(self) -> None:
        self.clock, self.log_text = TestClock(NOW, frozen=True), io.StringIO()
        self.log, self.metrics, self.audit = json_log(self.log_text, self.clock), Metrics(), AuditList()
        self.repository = WatchedRepository(MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=self.clock))
        self.circuits, self.clients, self.provider = WatchedCircuits(self.clock), Clients(), Provider(self)
        self.late, self.dropped = list[str | None](), list[object]()
        writeback = Writeback(
            repository=self.repository, drop=self._drop, late=self._late, clock=self.clock, audit=self.audit,
            retry_store=RetryStore(back=Notifier(), clock=self.clock, metrics=self.metrics, log=self.log),
            metrics=self.metrics, log=self.log,
        )  # fmt: skip
        provider: Any = self.provider
        self.transaction = RefreshTransaction(
            repository=self.repository, discovery=provider, redeemer=provider, fetch=provider.fetch,
            writeback=writeback, circuits=self.circuits, clients=self.clients, clock=self.clock,
            limits=Limits(provider_seconds=7), log=self.log,
        )  # fmt: skip
        self.seen: Versioned[Grant] | None = None

    async def _drop(self, app: Any, issued: object) -> bool:
        self.dropped.append(issued)
        return True

    async def _late(self, app: Any, key: GrantKey, *, refresh: Secret | None, **_: Any) -> None:
        self.late.append(refresh.reveal() if refresh is not None else None)

    async def put(self, grant: Grant) -> Versioned[Grant]:
        """Store a version of the grant, as another writer does."""
        there = await Repository.grant(self.repository, KEY)
        return await self.repository.save_grant(grant, expect=there.generation if there is not None else 0)

    async def stored(self) -> Grant:
        there = await Repository.grant(self.repository, KEY)
        assert there is not None
        return there.record

    def job(self, **changes: Any) -> RefreshJob:
        return RefreshJob(**{"app": APP, "key": KEY, "seen": self.seen, **changes})

    async def refresh(self, **changes: Any) -> Refreshed:
        refreshed = await self.transaction.refresh(self.job(**changes))
        assert refreshed.error is None or refreshed.error.__traceback__ is None, "its frames hold tokens"
        return refreshed

    def entries(self) -> list[object]:
        return [entry for _, entry in self.audit.lines]


@pytest.fixture
async def world() -> World:
    world = World()
    world.seen = await world.put(OLD)
    return world


def code_of(refreshed: Refreshed) -> Code | None:
    return refreshed.error.code if refreshed.error is not None else None


def access_of(refreshed: Refreshed) -> str | None:
    token = refreshed.grant.token if refreshed.grant is not None else None
    return token.access_token.reveal() if token is not None else None


# The way that it goes


async def test_a_refresh_stores_and_returns_the_new_token(world: World) -> None:
    refreshed = await world.refresh()
    assert (None, "at-2", ["rt-1"]) == (code_of(refreshed), access_of(refreshed), world.provider.sent)
    stored = await world.stored()
    assert stored == refreshed.grant
    assert None is stored.refresh_state.intent
    assert [TokenRefreshed(app="mail", grant=OLD.id, forced=False)] == world.entries()
    assert 1 == world.metrics.value(Metric.REFRESHES, "mail")
    assert [("permit", "mail", OLD.id), ("worked", "mail", OLD.id)] == world.circuits.told


async def test_the_intent_is_stored_and_the_space_taken_before_the_token_is_sent(world: World) -> None:
    async def look() -> None:
        intent = (await world.stored()).refresh_state.intent
        assert intent is not None
        assert intent == world.provider.begun[0].refresh_state.intent
        assert world.repository.reserved[0].held is not None

    world.provider.meanwhile = look
    assert "at-2" == access_of(await world.refresh())


async def test_the_lease_of_the_pair_is_awaited_for_five_provider_calls_and_the_turn_for_one(world: World) -> None:
    await world.refresh()
    assert [(KEY, 5 * 7)] == world.repository.waited
    assert [7] == world.circuits.waits


@pytest.mark.parametrize(("changes", "forced"), [({}, False), ({"early": True}, True)])
async def test_a_forced_refresh_is_noted_in_grant_and_audit(world: World, changes: Any, forced: bool) -> None:
    await world.refresh(**changes)
    assert ((NOW,) if forced else ()) == (await world.stored()).refresh_state.forced
    assert [TokenRefreshed(app="mail", grant=OLD.id, forced=forced)] == world.entries()


async def test_callers_of_one_process_share_one_refresh(world: World) -> None:
    answers = await asyncio.gather(*(world.refresh() for _ in range(5)))
    assert ["at-2"] * 5 == [access_of(each) for each in answers]
    assert ["rt-1"] == world.provider.sent


async def test_other_pairs_do_not_wait_for_it(world: World) -> None:
    world.provider.pause.clear()
    first = asyncio.ensure_future(world.refresh())
    await until(lambda: world.provider.sent, pause=0)
    assert None is (await world.refresh(key=GrantKey("mail", "acme:user:2"), seen=None)).grant
    world.provider.pause.set()
    assert "at-2" == access_of(await first)


async def test_a_caller_that_is_cancelled_does_not_cancel_the_refresh(world: World) -> None:
    world.provider.pause.clear()
    caller = asyncio.ensure_future(world.refresh())
    await until(lambda: world.provider.sent, pause=0)
    caller.cancel()
    world.provider.pause.set()
    await world.transaction.close()
    assert FRESH == (await world.stored()).token


async def test_a_token_that_is_over_when_it_comes_pauses_its_grant(world: World) -> None:
    world.provider.answer = replace(ANSWER, token=replace(FRESH, expires_at=NOW))
    await world.refresh()
    assert world.circuits.pause("mail", OLD.id) > 0


# (1) Closing


async def test_after_the_close_a_refresh_returns_the_newest_grant_and_begins_nothing(world: World) -> None:
    await world.transaction.close()
    refreshed = await world.refresh()
    assert (Code.BROKER_UNREACHABLE, OLD) == (code_of(refreshed), refreshed.grant)
    assert ([], []) == (world.provider.sent, world.repository.waited)


async def test_a_refresh_that_waits_for_a_place_at_the_close_sends_nothing(world: World) -> None:
    """A long row at a slow provider keeps an ending process for no longer than the calls under way."""
    async with world.circuits.permit("mail", "of another grant", wait=1):
        world.circuits._limits["mail"]._number = 1.0
        waiting = asyncio.ensure_future(world.refresh())
        await until(lambda: world.circuits._limits["mail"]._waiting, pause=0)
        closing = asyncio.ensure_future(world.transaction.close())
        await asyncio.sleep(0)
    await closing
    assert (Code.BROKER_UNREACHABLE, []) == (code_of(await waiting), world.provider.sent)
    assert OLD == await world.stored()


async def test_after_the_close_an_unreadable_store_is_no_exception(world: World) -> None:
    await world.transaction.close()
    world.repository.read_fails = 1
    assert Refreshed(None) == replace(await world.refresh(), error=None)


async def test_the_close_gives_a_token_that_is_not_stored_one_more_try(world: World) -> None:
    """The clock stands still, so without the signal the next try would never come."""
    tries = 0

    async def put(*_: Any, **__: Any) -> Any:
        nonlocal tries
        tries += 1
        raise BrokerError(Code.STORE_UNAVAILABLE)

    async def fails_from_now_on() -> None:
        world.repository.save_grant = put  # type: ignore[method-assign]

    world.provider.meanwhile = fails_from_now_on
    refreshed = await world.refresh()
    assert (Code.STORE_UNAVAILABLE, "at-2", 1) == (code_of(refreshed), access_of(refreshed), tries)
    async with asyncio.timeout(10):
        await world.transaction.close()
    assert 2 == tries


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_work_that_breaks_is_answered_as_an_unavailable_store(world: World) -> None:
    world.provider.answer = RuntimeError("a defect")
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    assert Code.STORE_UNAVAILABLE is code_of(await world.refresh())


# (2) The lease


async def test_a_store_without_leases_is_part_of_the_answer_with_the_grant_as_it_is(world: World) -> None:
    world.repository.lease_fails = BrokerError(Code.STORE_UNAVAILABLE)
    refreshed = await world.refresh()
    assert (Code.STORE_UNAVAILABLE, OLD, []) == (code_of(refreshed), refreshed.grant, world.provider.sent)


async def test_while_another_process_refreshes_a_caller_is_told_to_wait_a_second(world: World) -> None:
    world.repository.lease_fails = BrokerError(Code.STORE_LOCKED)
    refreshed = await world.refresh()
    assert refreshed.error is not None
    assert (Code.REFRESH_IN_PROGRESS, 1) == (refreshed.error.code, refreshed.error.retry_after_seconds)
    assert (OLD, []) == (refreshed.grant, world.provider.sent)


async def test_what_another_process_has_refreshed_meanwhile_is_taken_without_the_lease(world: World) -> None:
    await world.put(replace(OLD, token=FRESH))
    world.repository.lease_fails = BrokerError(Code.STORE_LOCKED)
    refreshed = await world.refresh()
    assert (None, "at-2", []) == (code_of(refreshed), access_of(refreshed), world.provider.sent)


async def test_a_lease_that_is_lost_before_the_intent_stops_the_refresh(world: World) -> None:
    world.repository.lease.held_for = 0
    refreshed = await world.refresh()
    assert (Code.REFRESH_IN_PROGRESS, []) == (code_of(refreshed), world.provider.begun)
    assert await world.stored() == OLD


async def test_a_lease_that_is_lost_to_one_who_has_refreshed_gives_their_token(world: World) -> None:
    async def refreshed_elsewhere() -> None:
        await world.put(replace(OLD, token=FRESH))

    world.repository.lease.held_for, world.repository.lease.then = 0, refreshed_elsewhere
    refreshed = await world.refresh()
    assert (None, "at-2", []) == (code_of(refreshed), access_of(refreshed), world.provider.begun)


# (3) Read again


@pytest.mark.parametrize(
    "newer",
    [replace(OLD, token=FRESH), replace(OLD, revoked=True), replace(OLD, refresh_state=RefreshState(ended="dead"))],
    ids=["refreshed", "revoked", "ended"],
)
async def test_what_came_since_the_caller_looked_is_the_answer(world: World, newer: Grant) -> None:
    await world.put(newer)
    assert Refreshed(newer) == await world.refresh()
    assert [] == world.provider.begun


async def test_a_grant_that_came_where_none_was_seen_is_the_answer(world: World) -> None:
    assert Refreshed(OLD) == await world.refresh(seen=None)
    assert [] == world.provider.begun


async def test_without_a_grant_there_is_nothing_to_refresh(world: World) -> None:
    assert Refreshed(None) == await world.refresh(key=GrantKey("mail", "acme:user:2"), seen=None)
    assert [] == world.provider.begun


@pytest.mark.parametrize(
    "grant", [replace(OLD, token=token_with(0)), replace(OLD, registration="another")], ids=["no token", "no client"]
)
async def test_a_grant_without_a_refresh_token_for_this_client_is_returned_as_it_is(world: World, grant: Grant) -> None:
    world.seen = await world.put(grant)
    assert Refreshed(grant) == await world.refresh()
    assert ([], []) == (world.provider.begun, world.circuits.told)


# The pause


PAUSING = RefreshState(intent=Intent("another", NOW, 5, noticed=True))
RESTING = RefreshState(rests_until=NOW + timedelta(seconds=300))


@pytest.mark.parametrize(
    ("state", "early", "expected"),
    [
        (PAUSING, False, Code.PROVIDER_UNREACHABLE),
        (PAUSING, True, Code.PROVIDER_UNREACHABLE),
        (RESTING, False, Code.REAUTH_REQUIRED),
        (RESTING, True, None),
    ],
)
async def test_a_refresh_token_that_has_to_rest_is_not_sent(
    world: World, state: RefreshState, early: bool, expected: Code | None
) -> None:
    world.seen = await world.put(replace(OLD, refresh_state=state))
    refreshed = await world.refresh(early=early)
    assert expected is code_of(refreshed)
    assert ([] if expected else ["rt-1"]) == world.provider.sent
    if refreshed.error is not None and expected is Code.PROVIDER_UNREACHABLE:
        assert 32 == refreshed.error.retry_after_seconds
    if expected is not None:
        assert [] == world.circuits.told, "it takes no place from those that may ask"


# (10) The circuit, and the endpoints


async def test_an_open_circuit_stops_it_before_anything_is_asked_or_written(world: World) -> None:
    error = BrokerError(Code.PROVIDER_RATE_LIMITED, retry_after_seconds=60)
    world.circuits.pause_one("mail", OLD.id, error)
    refreshed = await world.refresh()
    assert (Code.PROVIDER_RATE_LIMITED, OLD) == (code_of(refreshed), refreshed.grant)
    assert ([], []) == (world.provider.looked_up, world.provider.begun)
    assert await world.stored() == OLD


@pytest.mark.parametrize(
    ("app", "whose"), [(APP, ""), (replace(APP, params={"site": "one"}), OLD.id)], ids=["one host", "its own host"]
)
async def test_endpoints_that_cannot_be_read_count_against_the_app_and_leave_no_intent(
    world: World, app: App, whose: str
) -> None:
    world.provider.unknown = BrokerError(Code.PROVIDER_UNREACHABLE)
    refreshed = await world.refresh(app=app)
    assert (Code.PROVIDER_UNREACHABLE, OLD) == (code_of(refreshed), refreshed.grant)
    assert ("failed", "mail", whose) == world.circuits.told[-1]
    assert await world.stored() == OLD


# (5) The intent


async def test_a_login_before_the_intent_wins_and_nothing_is_sent(world: World) -> None:
    newer = replace(OLD, token=FRESH)

    async def login() -> None:
        await world.put(newer)

    world.repository.before_intent = login
    assert Refreshed(newer) == await world.refresh()
    assert [] == world.provider.begun


# Right before a token is sent


async def revoked(world: World) -> None:
    await world.put((await world.stored()).tombstoned(NOW))


async def another_attempt(world: World) -> None:
    here = await world.stored()
    await world.put(replace(here, refresh_state=here.refresh_state.begun("another", NOW)))


async def another_token(world: World) -> None:
    here = await world.stored()
    assert here.token is not None
    await world.put(replace(here, token=replace(here.token, refresh_token=Secret("rt-9"))))


async def erased(world: World) -> None:
    there = await Repository.grant(world.repository, KEY)
    assert there is not None
    await world.repository.erase_grant(there)


async def lease_lost(world: World) -> None:
    world.repository.lease.held_for = world.repository.lease.looks


@pytest.mark.parametrize("change", [revoked, another_attempt, another_token, erased, lease_lost])
async def test_a_token_is_not_sent_once_its_grant_its_intent_or_the_lease_is_gone(
    world: World, change: Callable[[World], Awaitable[None]]
) -> None:
    async def meanwhile() -> None:
        await change(world)

    world.provider.meanwhile = meanwhile
    refreshed = await world.refresh()
    assert [] == world.provider.sent
    gone = change in {revoked, erased, another_token}
    assert (None if gone else Code.REFRESH_IN_PROGRESS) is code_of(refreshed)
    if change in {another_token, lease_lost}:
        assert None is (await world.stored()).refresh_state.intent, "nothing was sent, so nothing may be spent"


async def test_a_store_that_cannot_tell_whether_to_send_stops_it_and_the_intent_is_taken_back(world: World) -> None:
    async def meanwhile() -> None:
        world.repository.on_read, world.repository.reads = fails_once, 0

    async def fails_once(reads: int) -> None:
        if reads == 1:
            raise BrokerError(Code.STORE_UNAVAILABLE)

    world.provider.meanwhile = meanwhile
    refreshed = await world.refresh()
    assert (Code.STORE_UNAVAILABLE, []) == (code_of(refreshed), world.provider.sent)
    assert refreshed.grant == await world.stored()
    assert None is (await world.stored()).refresh_state.intent


# (7) A refusal


async def test_a_refusal_is_stored_audited_and_counted(world: World) -> None:
    world.provider.answer = RefreshRefused(Code.REAUTH_REQUIRED, spent=False)
    refreshed = await world.refresh()
    assert Code.REAUTH_REQUIRED is code_of(refreshed)
    stored = await world.stored()
    assert stored == refreshed.grant
    assert ("dead", None) == (stored.refresh_state.ended, stored.refresh_state.intent)
    assert [RefreshFailed(app="mail", grant=OLD.id, code="reauthRequired")] == world.entries()
    assert ("failed", "mail", OLD.id) == world.circuits.told[-1]
    assert ("worked", "mail", OLD.id) not in world.circuits.told


async def test_a_silent_provider_leaves_the_intent_because_the_token_may_be_spent(world: World) -> None:
    world.provider.answer = RefreshRefused(Code.PROVIDER_UNREACHABLE, spent=True)
    assert Code.PROVIDER_UNREACHABLE is code_of(await world.refresh())
    intent = (await world.stored()).refresh_state.intent
    assert intent is not None
    assert intent.noticed


async def test_a_revocation_while_the_provider_answers_wins_and_the_new_token_is_revoked(world: World) -> None:
    world.provider.pause.clear()
    refreshing = asyncio.ensure_future(world.refresh())
    await until(lambda: world.provider.sent, pause=0)
    await revoked(world)
    world.provider.pause.set()
    refreshed = await refreshing
    assert refreshed.grant is not None
    assert (True, ["rt-2"]) == (refreshed.grant.revoked, world.late)


# Client credentials


ALONE = app_with(flow="clientCredentials")


async def test_client_credentials_fetch_anew_instead_of_sending_a_refresh_token(world: World) -> None:
    world.provider.fetched = replace(OLD, token=FRESH)
    refreshed = await world.refresh(app=ALONE, early=True)
    assert Refreshed(replace(OLD, token=FRESH)) == refreshed
    assert ([world.seen], []) == (world.provider.fetches, world.provider.begun)
    assert [TokenRefreshed(app="mail", grant=OLD.id, forced=True)] == world.entries()
    assert 1 == world.metrics.value(Metric.REFRESHES, "mail")
    assert [("permit", "mail", OLD.id), ("worked", "mail", OLD.id)] == world.circuits.told


async def test_client_credentials_need_no_grant_before(world: World) -> None:
    await world.refresh(app=ALONE, key=GrantKey("mail", "acme:user:2"), seen=None)
    assert [None] == world.provider.fetches


async def test_client_credentials_are_not_fetched_where_another_caller_was_first(world: World) -> None:
    await world.put(replace(OLD, token=FRESH))
    assert "at-2" == access_of(await world.refresh(app=ALONE))
    assert [] == world.provider.fetches


async def test_client_credentials_that_ended_in_a_revocation_are_no_success(world: World) -> None:
    assert Refreshed(None) == await world.refresh(app=ALONE)
    assert [] == world.entries()
    assert [("permit", "mail", OLD.id)] == world.circuits.told


async def test_client_credentials_that_are_refused_are_audited_and_counted(world: World) -> None:
    world.provider.fetched = BrokerError(Code.APP_MISCONFIGURED)
    refreshed = await world.refresh(app=ALONE)
    assert (Code.APP_MISCONFIGURED, OLD) == (code_of(refreshed), refreshed.grant)
    assert [RefreshFailed(app="mail", grant=OLD.id, code="appMisconfigured")] == world.entries()
    assert 1 == world.metrics.value(Metric.REFRESH_FAILURES, "appMisconfigured")
    assert ["mail"] == world.circuits.open_for()


async def test_client_credentials_keep_to_the_circuit(world: World) -> None:
    world.circuits.pause_one("mail", OLD.id, BrokerError(Code.PROVIDER_RATE_LIMITED, retry_after_seconds=60))
    assert Code.PROVIDER_RATE_LIMITED is code_of(await world.refresh(app=ALONE))
    assert [] == world.provider.fetches
