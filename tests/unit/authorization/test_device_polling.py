"""The polls for a device code: when each comes, who may ask, and what every answer makes of the session."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.authorization.device_polling import (
    BUSY_SECONDS,
    LONGEST_BACKOFF,
    PROVIDER_CALLS,
    SLOW_DOWN_SECONDS,
    Polling,
)
from oauthbroker.authorization.device_tokens import DeviceTokens
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.owner_check import OwnerFacts
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.settings import Limits
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.protocol.network.transport import TransportFailed
from oauthbroker.records import Attempt, AuthSession
from oauthbroker.records.auth_session import Claim
from oauthbroker.records.device_authorization import Device
from tests.kit.samples import NOW, app_with, session_with
from tests.kit.waiting import until
from tests.unit.authorization.finish_kit import FinishWorld, moved_on

LOCATOR, INTERVAL, SWEEP = "L" * 22, 5, 37
APP = app_with(revocation=Revocation(kind="rfc7009", reach="token"))
TOKENS = {"access_token": "at-new", "token_type": "bearer", "refresh_token": "rt-new", "expires_in": 600}


def says(error: str) -> tuple[int, dict[str, Any]]:
    return 400, {"error": error}


PENDING = says("authorization_pending")


class World(FinishWorld):
    """The polls of one process, with a scripted provider."""

    def __init__(self, **more: Any) -> None:
        super().__init__(APP)
        self.answers = list[Any]()
        self.polls = list[float]()
        self.during: Any = None
        self.unknown: BrokerError | None = None
        self.apps = {"mail": APP}
        self.polling = self.process(**more)

    def process(self, **more: Any) -> Polling:
        """Return the polls of one more process on this store."""
        others: Any = self
        return Polling(
            repository=self.repository, tokens=DeviceTokens(asker=others, discovery=others, clock=self.clock), finish=self.finish, apps=self.apps,
            clock=self.clock, limits=Limits(provider_seconds=7, sweep_seconds=SWEEP), log=self.log, **more,
        )  # fmt: skip

    async def endpoints(self, app: App) -> Any:
        if self.unknown is not None:
            raise self.unknown
        return app.endpoints

    async def ask(self, app: App, request: Any, *, kind: str) -> ProviderResponse:
        sent = request(app)
        assert ("poll", "dc") == (kind, sent.form["device_code"].reveal())
        self.polls.append((self.clock.now() - NOW).total_seconds())
        if self.during is not None:
            await self.during()
        answer = self.answers.pop(0) if self.answers else PENDING
        if isinstance(answer, BaseException):
            raise answer
        status, members = answer
        body = json.dumps(members).encode()
        return ProviderResponse(
            status=status, content_type="application/json", retry_after=60 if status == 429 else None, body=body
        )

    async def begin(self, polling: Polling | None = None, device: Any = (), **changes: Any) -> AuthSession:
        """Store a session with a device code, and watch it."""
        fields = {
            "code": Secret("dc"), "user_code": "ABCD", "verification_uri": "https://acme.example/device",
            "verification_uri_complete": None, "interval": INTERVAL, "next_poll_at": NOW + timedelta(seconds=INTERVAL),
        }  # fmt: skip
        code = Device(**{**fields, **dict(device)})
        versioned = await self.put(device=code, attempt=Attempt.none(), **changes)
        (polling or self.polling).watch(versioned.record)
        return versioned.record

    async def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.polling.once()

    async def through(self, seconds: int) -> list[float]:
        """Run the polls of so many seconds, one after the other."""
        for _ in range(seconds):
            await self.after(1)
        return self.polls


@pytest.fixture
def world() -> World:
    return World()


# When a poll comes


async def test_the_first_poll_waits_for_the_interval_and_later_ones_keep_to_it(world: World) -> None:
    await world.begin()
    assert [5, 10, 15] == await world.through(16)
    assert (await world.session()).open


async def test_a_provider_that_asks_for_it_is_polled_five_seconds_slower_from_then_on(world: World) -> None:
    await world.begin()
    world.answers = [says("slow_down"), PENDING, says("slow_down")]
    assert [5, 15, 25, 40] == await world.through(41)
    device = (await world.session()).device
    assert device is not None
    assert INTERVAL + 2 * SLOW_DOWN_SECONDS == device.interval


async def test_a_session_is_polled_for_once_however_often_it_is_watched(world: World) -> None:
    session = await world.begin()
    for _ in range(3):
        world.polling.watch(session)
    await world.after(INTERVAL)
    assert [5] == world.polls


@pytest.mark.parametrize("changes", [{"status": "completed"}, {"device": None}], ids=["ended", "no device code"])
async def test_a_session_that_waits_for_no_device_code_is_not_watched(world: World, changes: Any) -> None:
    world.polling.watch(session_with(**changes))
    await world.after(INTERVAL)
    assert [] == world.polls


GONE: dict[str, dict[str, Any]] = {
    "ended": {"status": "completed"},
    "claimed": {"claim": Claim("x", NOW + timedelta(hours=1))},
    "expired": {"expires_at": NOW + timedelta(seconds=INTERVAL)},
}


@pytest.mark.parametrize("name", GONE)
async def test_a_session_that_does_not_wait_any_longer_is_not_asked_about(world: World, name: str) -> None:
    session = await world.begin()
    versioned = await world.repository.session(LOCATOR)
    assert versioned is not None
    await world.repository.save_session(replace(session, **GONE[name]), expect=versioned.generation)
    assert [] == await world.through(40)


async def test_a_session_whose_app_is_gone_is_not_asked_about(world: World) -> None:
    await world.begin()
    world.apps.clear()
    assert [] == await world.through(40)


async def test_an_app_that_has_changed_ends_the_session(world: World) -> None:
    await world.begin(config_digest="old")
    assert [] == await world.through(INTERVAL)
    assert "expired" == (await world.session()).status


async def test_no_poll_comes_after_the_end_of_the_code(world: World) -> None:
    await world.begin(expires_at=NOW + timedelta(seconds=12))
    assert [5, 10] == await world.through(40)


async def test_a_clock_that_was_set_far_back_delays_no_poll(world: World) -> None:
    await world.begin(device={"next_poll_at": NOW + timedelta(days=3)}, expires_at=NOW + timedelta(days=4))
    await world.after(0)
    assert [0] == world.polls


async def test_a_next_poll_is_never_awaited_longer_than_the_code_lives(world: World) -> None:
    await world.begin(device={"next_poll_at": NOW + timedelta(minutes=50)})
    assert [] == await world.through(599)


# Who may ask


async def test_the_next_poll_is_stored_before_one_is_sent_so_that_no_other_process_asks_meanwhile(world: World) -> None:
    other = world.process()
    await world.begin()
    other.watch(await world.session())

    async def meanwhile() -> None:
        device = (await world.session()).device
        assert device is not None
        assert (NOW + timedelta(seconds=INTERVAL + INTERVAL + 7), True) == (device.next_poll_at, device.unsure)
        world.during = None
        await other.once()

    world.during = meanwhile
    await world.after(INTERVAL)
    assert [5] == world.polls


async def test_the_process_that_heard_goes_on_and_another_takes_over_when_it_is_long_overdue(world: World) -> None:
    other = world.process()
    await world.begin()
    other.watch(await world.session())
    await world.after(INTERVAL)
    for _ in range(INTERVAL + 7 - 1):
        world.clock.advance(1)
        await other.once()
    assert [5] == world.polls
    world.clock.advance(1)
    await other.once()
    assert [5, 17] == world.polls


@pytest.mark.parametrize("fails", ["lease", "writable"])
async def test_a_pair_that_another_process_holds_is_tried_again_a_second_later(
    world: World, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float]()

    @asynccontextmanager
    async def held(*_: Any, wait: float) -> Any:
        waits.append(wait)
        raise BrokerError(Code.STORE_LOCKED)
        yield

    async def locked(*_: Any) -> None:
        raise BrokerError(Code.STORE_LOCKED)

    await world.begin()
    with monkeypatch.context() as patch:
        if fails == "lease":
            patch.setattr(type(world.repository), "provider_lease", held)
        else:
            patch.setattr(world.repository, "check_writable", locked)
        await world.after(INTERVAL)
    assert ([], [BUSY_SECONDS] if fails == "lease" else []) == (world.polls, waits)
    assert [6] == await world.through(2)
    assert "" == world.text.getvalue()


@pytest.mark.parametrize("error", [BrokerError(Code.STORE_UNAVAILABLE), RuntimeError("rt-secret")])
async def test_a_fault_is_logged_without_its_text_and_the_session_is_polled_later(
    world: World, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise error

    await world.begin()
    with monkeypatch.context() as patch:
        patch.setattr(world.repository, "session", broken)
        await world.after(INTERVAL)
    assert 1 == world.text.getvalue().count("a device code could not be asked about")
    assert "rt-secret" not in world.text.getvalue()
    assert ("storeUnavailable" if isinstance(error, BrokerError) else "RuntimeError") in world.text.getvalue()
    assert [INTERVAL + SWEEP] == await world.through(SWEEP)


# The answers


async def test_tokens_become_a_grant_and_no_poll_follows(world: World) -> None:
    await world.begin()
    world.answers = [(200, TOKENS)]
    assert [5] == await world.through(60)
    grant = await world.grant()
    assert grant is not None
    assert grant.token is not None
    assert ("device_code", "completed") == (grant.flow, (await world.session()).status)
    assert NOW + timedelta(seconds=INTERVAL + 600) == grant.token.expires_at


async def test_the_claim_of_a_session_outlives_six_calls_of_the_provider(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = list[float]()
    claim = type(world.finish).claim

    async def noted(self: Any, versioned: Any, seconds: float, **more: Any) -> Any:
        claims.append(seconds)
        return await claim(self, versioned, seconds, **more)

    monkeypatch.setattr(type(world.finish), "claim", noted)
    await world.begin()
    world.answers = [(200, TOKENS)]
    await world.after(INTERVAL)
    assert [PROVIDER_CALLS * 7] == claims


ENDS: dict[str, tuple[Any, str, Code | None, str | None, bool]] = {
    "the user declined": (says("access_denied"), "failed", Code.PROVIDER_DENIED, "auth.denied", False),
    "the code has expired": (says("expired_token"), "expired", None, None, False),
    "our client is wrong": (says("invalid_client"), "failed", Code.APP_MISCONFIGURED, "auth.failed", False),
    "the code is unknown": (says("invalid_grant"), "failed", Code.EXCHANGE_FAILED, "auth.failed", False),
    "tokens of a wrong kind": (
        (200, {**TOKENS, "token_type": "mac"}), "failed", Code.TOKEN_RESPONSE_INVALID, "auth.failed", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
async def test_a_final_answer_ends_the_session(world: World, name: str) -> None:
    answer, status, failure, event, has_tokens = ENDS[name]
    await world.begin()
    world.answers = [answer]
    assert [5] == await world.through(60)
    session = await world.session()
    assert (status, failure) == (session.status, session.failure)
    assert event == (session.outbox.type if session.outbox is not None else None)
    assert ([["rt-new", "at-new"]] if has_tokens else []) == world.revoked_texts()
    is_told = failure not in {None, Code.PROVIDER_DENIED}
    assert is_told is ("a device code came to nothing" in world.text.getvalue())


async def test_an_expired_code_has_an_event_where_they_are_wanted() -> None:
    world = World(expired_events=True)
    await world.begin()
    world.answers = [says("expired_token")]
    await world.after(INTERVAL)
    session = await world.session()
    assert session.outbox is not None
    assert "auth.expired" == session.outbox.type


async def test_tokens_of_another_account_are_revoked_and_end_the_session(world: World) -> None:
    world.facts = OwnerFacts(user_identity="acme:user:2")
    await world.begin()
    world.answers = [(200, TOKENS)]
    await world.after(INTERVAL)
    assert (Code.SUBJECT_MISMATCH, None) == ((await world.session()).failure, await world.grant())
    assert [["rt-new", "at-new"]] == world.revoked_texts()


@pytest.mark.parametrize("reason", ["ended", "storeUnavailable"])
async def test_tokens_that_come_too_late_are_revoked_and_named_in_the_log(
    world: World, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ended() -> None:
        versioned = await world.repository.session(LOCATOR)
        assert versioned is not None
        await world.repository.save_session(moved_on(versioned), expect=versioned.generation)

    async def unavailable(*_: Any, **__: Any) -> Any:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    await world.begin()
    world.answers = [(200, TOKENS)]
    if reason == "ended":
        world.during = ended
    else:
        monkeypatch.setattr(type(world.finish), "claim", unavailable)
    await world.after(INTERVAL)
    assert ([["rt-new", "at-new"]], None) == (world.revoked_texts(), await world.grant())
    assert "tokens came too late to be kept" in world.text.getvalue()
    assert ("stateUsed" if reason == "ended" else reason) in world.text.getvalue()


# Lost answers


LOST = TransportFailed("lost", sent=True)
UNSENT = TransportFailed("no route", sent=False)


async def test_each_failure_in_a_row_doubles_the_interval_up_to_a_minute_and_an_answer_ends_that(world: World) -> None:
    await world.begin(expires_at=NOW + timedelta(hours=1))
    world.answers = [LOST] * 6 + [PENDING, LOST]
    at = [5]
    for wait in (10, 20, 40, LONGEST_BACKOFF, LONGEST_BACKOFF, LONGEST_BACKOFF, INTERVAL, 10):
        at.append(at[-1] + wait)
    assert at == await world.through(at[-1] + 4)
    assert 5 == world.text.getvalue().count("could not say whether a device code is used")  # one a minute


async def test_a_provider_with_a_longer_interval_than_a_minute_is_polled_no_sooner(world: World) -> None:
    await world.begin(
        device={"interval": 90, "next_poll_at": NOW + timedelta(seconds=90)}, expires_at=NOW + timedelta(hours=1)
    )
    world.answers = [LOST, LOST]
    assert [90, 180, 270] == await world.through(271)


async def test_a_provider_may_ask_for_a_longer_wait(world: World) -> None:
    await world.begin()
    world.answers = [(429, {})]
    assert [5, 65] == await world.through(66)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([LOST, says("invalid_grant")], Code.EXCHANGE_UNCERTAIN),
        ([LOST, PENDING, says("invalid_grant")], Code.EXCHANGE_FAILED),
        ([UNSENT, says("invalid_grant")], Code.EXCHANGE_FAILED),
        ([PENDING, UNSENT, says("invalid_grant")], Code.EXCHANGE_FAILED),
        ([PENDING, LOST, says("invalid_grant")], Code.EXCHANGE_UNCERTAIN),
        ([PENDING, (429, {}), says("invalid_grant")], Code.EXCHANGE_FAILED),
        ([PENDING, LOST, UNSENT, says("invalid_grant")], Code.EXCHANGE_UNCERTAIN),
    ],
)
async def test_a_code_that_is_used_after_a_lost_answer_is_uncertain(world: World, answers: Any, expected: Code) -> None:
    await world.begin()
    world.answers = list(answers)
    await world.through(300)
    assert expected is (await world.session()).failure


@pytest.mark.parametrize(
    ("code", "polls"), [(Code.APP_MISCONFIGURED, 2), (Code.PROVIDER_UNREACHABLE, 2), (Code.MCP_UNSUPPORTED, 0)]
)
async def test_metadata_that_is_gone_ends_no_code(world: World, code: Code, polls: int) -> None:
    await world.begin()
    world.unknown = BrokerError(code)
    await world.after(INTERVAL)
    assert ([], bool(polls)) == (world.polls, (await world.session()).open)
    world.unknown = None
    assert polls == len(await world.through(15))


# The loop


async def test_closing_waits_for_a_poll_under_way_and_starts_no_other(world: World) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        begun.set()
        await may_end.wait()

    await world.begin()
    world.during, world.answers = slow, [(200, TOKENS)]
    world.clock.advance(INTERVAL)
    once = asyncio.ensure_future(world.polling.once())
    await begun.wait()
    once.cancel()
    with pytest.raises(asyncio.CancelledError):
        await once
    closing = asyncio.ensure_future(world.polling.close())
    await asyncio.sleep(0)
    assert not closing.done()
    may_end.set()
    await closing
    assert "completed" == (await world.session()).status
    await world.begin(locator="M" * 22, ticket=Secret("M" * 22 + "t" * 43))
    assert [5] == await world.through(10)


async def test_a_running_loop_polls_for_sessions_that_are_due_and_new_ones(world: World) -> None:
    loop = asyncio.ensure_future(world.polling.run())
    await asyncio.sleep(0)
    await world.begin()
    world.clock.advance(INTERVAL)
    try:
        await until(lambda: len(world.polls) == 1)
    finally:
        loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop
