"""A circuit opens for a reason, for a time, for one app; afterwards one call at a time tries again."""

from __future__ import annotations

import asyncio

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.refresh.circuit import Circuits
from oauthbroker.testing import TestClock

DOWN = BrokerError(Code.PROVIDER_UNREACHABLE)
BUSY = BrokerError(Code.PROVIDER_RATE_LIMITED)
OURS = BrokerError(Code.APP_MISCONFIGURED)


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def circuits(clock: TestClock) -> Circuits:
    return Circuits(clock)


def refusal(circuits: Circuits, app: str = "mail") -> BrokerError | None:
    try:
        circuits.check(app)
    except BrokerError as error:
        return error
    return None


@pytest.mark.parametrize(
    "failures, opened",
    [
        ([DOWN], False),
        ([DOWN, DOWN], False),
        ([DOWN, DOWN, DOWN], True),
        ([BUSY], True),
        ([OURS], True),
        ([BrokerError(Code.PROVIDER_UNREACHABLE, retry_after_seconds=9)], True),
        ([BrokerError(Code.REAUTH_REQUIRED)] * 10, False),
        ([DOWN, DOWN, BrokerError(Code.REAUTH_REQUIRED), DOWN], False),
        ([BrokerError(Code.TOKEN_RESPONSE_INVALID)] * 10, False),
    ],
)
def test_what_opens_it(circuits: Circuits, failures: list[BrokerError], opened: bool) -> None:
    for failure in failures:
        circuits.failed("mail", failure)
    found = refusal(circuits)
    assert opened is (found is not None)
    if found is not None:
        assert failures[-1].code is found.code
        assert found.retryable is (found.retry_after_seconds is not None)
    assert None is refusal(circuits, "files")


def test_a_pause_that_was_asked_for_is_kept_to_the_second(circuits: Circuits, clock: TestClock) -> None:
    circuits.failed("mail", BrokerError(Code.PROVIDER_RATE_LIMITED, retry_after_seconds=90))
    clock.advance(89)
    found = refusal(circuits)
    assert found is not None
    assert (Code.PROVIDER_RATE_LIMITED, 1) == (found.code, found.retry_after_seconds)
    clock.advance(1)
    assert None is refusal(circuits)


def test_pauses_grow_to_a_minute_and_no_further(circuits: Circuits, clock: TestClock) -> None:
    pauses = []
    for _ in range(14):
        circuits.failed("mail", DOWN)
        pauses.append(circuits.pause("mail"))
        clock.advance(pauses[-1])
        circuits.check("mail")
    assert [0, 0] == pauses[:2]
    assert 0.5 <= pauses[2] <= 1
    assert all(30 <= pause <= 60 for pause in pauses[-4:])


def test_after_the_pause_one_call_tries_and_the_others_wait_for_its_result(
    circuits: Circuits, clock: TestClock
) -> None:
    circuits.failed("mail", OURS)
    clock.advance(30)
    assert None is refusal(circuits)
    assert None is not refusal(circuits)
    circuits.worked("mail")
    assert None is refusal(circuits)


def test_a_trial_that_is_never_heard_of_again_does_not_close_the_way_for_ever(
    circuits: Circuits, clock: TestClock
) -> None:
    circuits.failed("mail", OURS)
    clock.advance(30)
    assert None is refusal(circuits)
    clock.advance(31)
    assert None is refusal(circuits)


def test_only_the_opening_is_news(circuits: Circuits) -> None:
    assert ["app", "", "app"] == [circuits.failed("mail", error) for error in (OURS, OURS, BUSY)]


async def test_an_app_has_a_row_of_its_own(circuits: Circuits) -> None:
    """Thirty-two at a time; a call that waits too long is told so, and another app has its own row."""
    inside, leave = 0, asyncio.Event()

    async def call(app: str, wait: float) -> None:
        nonlocal inside
        async with circuits.turn(app, wait=wait):
            inside += 1
            await leave.wait()

    calls = [asyncio.create_task(call("mail", 5)) for _ in range(40)]
    await asyncio.sleep(0.05)
    assert 32 == inside
    with pytest.raises(BrokerError) as refused:
        await call("mail", 0.01)
    assert (Code.PROVIDER_UNREACHABLE, 1) == (refused.value.code, refused.value.retry_after_seconds)
    other = asyncio.create_task(call("files", 0.01))
    await asyncio.sleep(0.05)
    assert 33 == inside
    leave.set()
    await asyncio.gather(*calls, other)
    assert 41 == inside


async def test_who_was_in_the_row_when_it_opened_does_not_go_on(circuits: Circuits) -> None:
    circuits.failed("mail", OURS)
    with pytest.raises(BrokerError) as refused:
        async with circuits.turn("mail", wait=1):
            raise AssertionError
    assert Code.APP_MISCONFIGURED is refused.value.code


def test_one_grants_own_trouble_stops_that_grant_alone(circuits: Circuits, clock: TestClock) -> None:
    news = []
    for _ in range(5):
        news.append(circuits.failed("mail", OURS, "bob", own=True))
        clock.advance(circuits.pause("mail", "bob"))
    assert ["grant", "", "", "", ""] == news
    circuits.failed("mail", OURS, "bob", own=True)
    assert circuits.pause("mail", "bob") > 0
    assert 0 == circuits.pause("mail", "alice")
    assert "app" == circuits.failed("mail", OURS, "alice", own=True), "two grants: now it is the app's"
    assert circuits.pause("mail", "carol") > 0


def test_a_success_in_between_tells_that_it_was_the_grants_own(circuits: Circuits) -> None:
    circuits.failed("mail", OURS, "bob", own=True)
    circuits.worked("mail", "carol")
    assert "grant" == circuits.failed("mail", OURS, "alice", own=True)
    assert 0 == circuits.pause("mail", "carol")


def asked_to_wait(seconds: int) -> BrokerError:
    return BrokerError(Code.PROVIDER_RATE_LIMITED, retry_after_seconds=seconds)


@pytest.mark.case("56")
def test_a_pause_that_was_asked_of_one_grant_is_kept_to_the_second_by_that_grant_alone(
    circuits: Circuits, clock: TestClock
) -> None:
    assert "grant" == circuits.failed("mail", asked_to_wait(900), "bob", own=True)
    assert (900, 0) == (circuits.pause("mail", "bob"), circuits.pause("mail", "alice"))
    clock.advance(899)
    assert "" == circuits.failed("mail", asked_to_wait(900), "bob", own=True)
    assert (900, 0) == (circuits.pause("mail", "bob"), circuits.pause("mail", "alice"))
    clock.advance(900)
    assert 0 == circuits.pause("mail", "bob")


@pytest.mark.case("56")
@pytest.mark.parametrize(("seconds_between", "whose"), [(0, "app"), (59, "app"), (61, "grant"), (3600, "grant")])
def test_a_pause_that_was_asked_of_several_grants_in_a_short_time_is_the_apps(
    circuits: Circuits, clock: TestClock, seconds_between: float, whose: str
) -> None:
    circuits.failed("mail", asked_to_wait(30), "bob", own=True)
    clock.advance(seconds_between)
    assert whose == circuits.failed("mail", asked_to_wait(600), "alice", own=True)
    assert 600 == circuits.pause("mail", "alice")
    assert (600 if whose == "app" else 0) == circuits.pause("mail", "carol")


@pytest.mark.case("56")
def test_an_accounts_own_limit_says_nothing_of_the_providers_health(circuits: Circuits, clock: TestClock) -> None:
    for _ in range(10):
        circuits.failed("mail", BUSY, "bob", own=True)
        clock.advance(61)
    assert "" == circuits.failed("mail", DOWN), "the first of three in a row"
    assert 0 == circuits.pause("mail", "alice")


@pytest.mark.case("56")
def test_an_app_that_was_asked_to_wait_stays_so_until_a_call_has_worked(circuits: Circuits, clock: TestClock) -> None:
    for grant in ("bob", "alice"):
        circuits.failed("mail", asked_to_wait(600), grant, own=True)
    clock.advance(601)
    circuits.check("mail", "carol")
    assert "" == circuits.failed("mail", asked_to_wait(600), "carol", own=True)
    assert 600 == circuits.pause("mail", "dave"), "the trial was told the same: no other call has to find out"
    clock.advance(601)
    circuits.worked("mail", "carol")
    assert "grant" == circuits.failed("mail", asked_to_wait(600), "carol", own=True)
    assert 0 == circuits.pause("mail", "dave")


async def test_a_trial_that_never_reached_the_provider_does_not_count(circuits: Circuits, clock: TestClock) -> None:
    circuits.failed("mail", OURS)
    clock.advance(30)
    with pytest.raises(RuntimeError):
        async with circuits.turn("mail", wait=1):
            raise RuntimeError("our own disk")
    assert None is refusal(circuits)


@pytest.mark.parametrize("trouble", [OURS, DOWN])
def test_one_account_with_its_own_errors_does_not_open_the_circuit_for_all(
    circuits: Circuits, trouble: BrokerError
) -> None:
    circuits.failed("mail", BUSY, "alice's", own=True)
    for _ in range(4):
        circuits.failed("mail", trouble, "bob's", own=True)
    assert refusal(circuits) is None
    circuits.failed("mail", trouble, "carol's", own=True)
    assert refusal(circuits) is not None


@pytest.mark.parametrize("leaves", ["by itself", "cancelled", "with an error of ours"])
async def test_one_turn_at_a_time_tries_and_gives_its_place_back(
    circuits: Circuits, clock: TestClock, leaves: str
) -> None:
    """Calls that are refused meanwhile, calls that were under way before it opened, and trials that last long."""
    leave = {name: asyncio.Event() for name in ("before", "trial")}
    inside = list[str]()

    async def call(name: str) -> None:
        async with circuits.turn("mail", wait=1):
            inside.append(name)
            await leave[name].wait()
            if leaves == "with an error of ours" and name == "trial":
                raise RuntimeError

    async def refused() -> bool:
        try:
            async with circuits.turn("mail", wait=1):
                return False
        except BrokerError:
            return True

    before = asyncio.create_task(call("before"))
    await asyncio.sleep(0)
    circuits.failed("mail", OURS)
    clock.advance(30)
    trial = asyncio.create_task(call("trial"))
    await asyncio.sleep(0)
    assert [True, True] == [await refused() for _ in range(2)]
    leave["before"].set()
    await before
    assert await refused(), "who leaves and did not try gives no place back"
    clock.advance(300)
    assert await refused(), "the trial is still under way"
    assert circuits.pause("mail") > 0
    if leaves == "cancelled":
        trial.cancel()
    leave["trial"].set()
    await asyncio.gather(trial, return_exceptions=True)
    assert not await refused()
    assert ["before", "trial"] == inside
