"""A circuit opens for a reason, for a time, for one app; afterwards one call at a time tries again."""

from __future__ import annotations

import asyncio

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.refresh.circuit import Circuits, OpenCircuit
from oauthbroker.refresh.suspects import ALL, SEVERAL
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


def test_the_first_pause_of_a_limited_rate_is_a_second_at_most(circuits: Circuits, clock: TestClock) -> None:
    circuits.failed("mail", BUSY)
    assert refusal(circuits) is not None
    clock.advance(1)
    assert None is refusal(circuits)


def test_pauses_grow_to_five_seconds_and_no_further(circuits: Circuits, clock: TestClock) -> None:
    """So that a provider that is back is noticed soon."""
    pauses = []
    for _ in range(14):
        circuits.failed("mail", DOWN)
        pauses.append(circuits.pause("mail"))
        clock.advance(pauses[-1])
        circuits.check("mail")
    assert [0, 0] == pauses[:2]
    assert 0.5 <= pauses[2] <= 1
    assert all(2.5 <= pause <= 5 for pause in pauses[-4:])


def test_pauses_of_one_grant_grow_to_fifteen_seconds_where_the_provider_fails(
    circuits: Circuits, clock: TestClock
) -> None:
    pauses = []
    for _ in range(14):
        circuits.failed("mail", DOWN, "bob", own=True)
        pauses.append(circuits.pause("mail", "bob"))
        clock.advance(pauses[-1])
    assert [0, 0] == pauses[:2]
    assert all(7.5 <= pause <= 15 for pause in pauses[-4:])


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
        async with circuits.permit(app, wait=wait):
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
        async with circuits.permit("mail", wait=1):
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


CIRCUIT_KINDS = [OURS, DOWN, BUSY, BrokerError(Code.PROVIDER_UNREACHABLE, retry_after_seconds=3600)]


@pytest.mark.parametrize("error", CIRCUIT_KINDS)
def test_twenty_sick_grants_pause_no_healthy_one_in_any_order(
    circuits: Circuits, clock: TestClock, error: BrokerError
) -> None:
    """Not even in a process that knows of none that works."""
    for _ in range(50):
        for number in range(20):
            circuits.failed("mail", error, f"sick-{number}", own=True)
        assert 0 == circuits.pause("mail", "healthy")
        clock.advance(1)
    circuits.worked("mail", "healthy")
    for number in range(20):
        circuits.failed("mail", error, f"sick-{number}", own=True)
    for number in range(ALL - 1):
        circuits.failed("mail", error, f"sick-too-{number}", own=True)
    assert 0 == circuits.pause("mail", "healthy"), "the first twenty are known to fail alone"


@pytest.mark.parametrize("error", CIRCUIT_KINDS)
def test_when_very_many_fail_and_none_works_the_others_are_spared_for_a_second(
    circuits: Circuits, clock: TestClock, error: BrokerError
) -> None:
    news = [circuits.failed("mail", error, f"{number}", own=True) for number in range(ALL)]
    assert 1 == news.count("app")
    assert "app" == news[SEVERAL - 1]
    assert {""} == set(news[SEVERAL:])
    assert 0 < circuits.pause("mail", "healthy") <= 1
    clock.advance(1)
    circuits.check("mail", "healthy")
    circuits.worked("mail", "healthy")
    assert 0 == circuits.pause("mail", "another")


def test_failures_that_lie_far_apart_do_not_concern_all(circuits: Circuits, clock: TestClock) -> None:
    for number in range(3 * ALL):
        circuits.failed("mail", BUSY, f"{number}", own=True)
        clock.advance(2)
    assert 0 == circuits.pause("mail", "healthy")


def test_the_trial_goes_first_to_a_grant_that_did_not_fail(circuits: Circuits, clock: TestClock) -> None:
    circuits.worked("mail", "healthy")
    for number in range(ALL):
        circuits.failed("mail", DOWN, f"{number}", own=True)
    clock.advance(1)
    assert circuits.pause("mail", "0") > 1
    assert 0 == circuits.pause("mail", "healthy")
    clock.advance(5)
    assert 0 == circuits.pause("mail", "0"), "it comes, if no other does"


def test_a_grant_that_fails_alone_and_has_the_trial_prolongs_nothing(circuits: Circuits, clock: TestClock) -> None:
    circuits.failed("mail", DOWN, "sick", own=True)
    circuits.worked("mail", "healthy")
    for number in range(ALL):
        circuits.failed("mail", DOWN, f"{number}", own=True)
    clock.advance(1)
    circuits.failed("mail", DOWN, "sick", own=True)
    assert 0 == circuits.pause("mail", "healthy")


def test_grants_that_failed_may_try_as_soon_as_another_one_has_worked(circuits: Circuits, clock: TestClock) -> None:
    """Perhaps the provider is back. The time that it named to one of them stands."""
    for _ in range(8):
        circuits.failed("mail", DOWN, "bob", own=True)
    circuits.failed("mail", asked_to_wait(90), "carol", own=True)
    assert circuits.pause("mail", "bob") > 0
    circuits.worked("mail", "alice")
    assert (0, 90) == (circuits.pause("mail", "bob"), circuits.pause("mail", "carol"))
    circuits.failed("mail", DOWN, "bob", own=True)
    circuits.worked("mail", "alice")
    assert circuits.pause("mail", "bob") > 0, "once"


@pytest.mark.parametrize("failure", [BUSY, BrokerError(Code.PROVIDER_UNREACHABLE, retry_after_seconds=90)])
def test_a_grant_that_the_provider_asked_to_wait_does_so_also_after_another_one_has_worked(
    circuits: Circuits, failure: BrokerError
) -> None:
    """It spoke of that account: by 429, also where it named no time, or by a time with any answer."""
    circuits.failed("mail", failure, "bob", own=True)
    circuits.worked("mail", "alice")
    assert circuits.pause("mail", "bob") > 0


def test_a_success_passes_over_a_failed_grant_whose_circuit_was_evicted(
    monkeypatch: pytest.MonkeyPatch, clock: TestClock
) -> None:
    monkeypatch.setattr("oauthbroker.refresh.circuit._MOST_OWN", 1)
    circuits = Circuits(clock)
    for grant in ("evicted", "bob"):
        for _ in range(3):
            circuits.failed("mail", DOWN, grant, own=True)
    circuits.worked("mail", "alice")
    assert 0 == circuits.pause("mail", "bob")


@pytest.mark.parametrize(("failure", "places"), [(DOWN, 32), (BUSY, 16)])
async def test_only_too_many_requests_halve_the_places_of_an_app(
    circuits: Circuits, failure: BrokerError, places: int
) -> None:
    async with circuits.permit("mail", wait=1):
        circuits.failed("mail", failure, "bob", own=True)
    assert places == circuits._limits["mail"].number


def test_the_open_circuits_are_those_of_apps_and_then_of_grants(circuits: Circuits, clock: TestClock) -> None:
    circuits.failed("files", OURS)
    circuits.failed("mail", asked_to_wait(90), "bob", own=True)
    circuits.failed("mail", asked_to_wait(9), "carol", own=True)
    clock.advance(10)
    assert [
        OpenCircuit(app="files", grant="", code=Code.APP_MISCONFIGURED, seconds_left=20, failures=1),
        OpenCircuit(app="mail", grant="bob", code=Code.PROVIDER_RATE_LIMITED, seconds_left=80, failures=1),
    ] == circuits.open_now()


def test_an_app_whose_pause_is_over_counts_as_open_no_longer(circuits: Circuits, clock: TestClock) -> None:
    circuits.failed("files", OURS)
    circuits.failed("mail", DOWN)
    assert ["files"] == circuits.open_for()
    clock.advance(30)
    assert [] == circuits.open_for()


async def test_grants_that_failed_last_hold_half_of_the_places(circuits: Circuits) -> None:
    """Their calls may hang. The others need not wait for them."""
    leave, inside = asyncio.Event(), list[str]()

    async def call(grant: str) -> None:
        async with circuits.permit("mail", grant, wait=5):
            inside.append(grant)
            await leave.wait()

    for number in range(40):
        circuits.failed("mail", DOWN, f"sick-{number % 30}", own=True)
    sick = [asyncio.create_task(call(f"sick-{number}")) for number in range(30)]
    await asyncio.sleep(0)
    healthy = [asyncio.create_task(call(f"healthy-{number}")) for number in range(16)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert (16, 16) == (sum("sick" in each for each in inside), sum("healthy" in each for each in inside))
    leave.set()
    await asyncio.gather(*sick, *healthy)
    assert 46 == len(inside)


def test_a_changed_app_forgets_all_troubles(circuits: Circuits) -> None:
    circuits.failed("mail", OURS, "bob", own=True)
    circuits.failed("mail", OURS)
    circuits.reset("mail")
    assert 0 == circuits.pause("mail", "bob")


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
def test_an_accounts_own_limit_says_nothing_of_the_providers_health(circuits: Circuits, clock: TestClock) -> None:
    for _ in range(10):
        circuits.failed("mail", BUSY, "bob", own=True)
        clock.advance(61)
    assert "" == circuits.failed("mail", DOWN), "the first of three in a row"
    assert 0 == circuits.pause("mail", "alice")


async def test_a_trial_that_never_reached_the_provider_does_not_count(circuits: Circuits, clock: TestClock) -> None:
    circuits.failed("mail", OURS)
    clock.advance(30)
    with pytest.raises(RuntimeError):
        async with circuits.permit("mail", wait=1):
            raise RuntimeError("our own disk")
    assert None is refusal(circuits)


@pytest.mark.parametrize("leaves", ["by itself", "cancelled", "with an error of ours"])
async def test_one_turn_at_a_time_tries_and_gives_its_place_back(
    circuits: Circuits, clock: TestClock, leaves: str
) -> None:
    """Calls that are refused meanwhile, calls that were under way before it opened, and trials that last long."""
    leave = {name: asyncio.Event() for name in ("before", "trial")}
    inside = list[str]()

    async def call(name: str) -> None:
        async with circuits.permit("mail", wait=1):
            inside.append(name)
            await leave[name].wait()
            if leaves == "with an error of ours" and name == "trial":
                raise RuntimeError

    async def refused() -> bool:
        try:
            async with circuits.permit("mail", wait=1):
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


async def test_who_comes_while_one_tries_is_told_to_come_back_as_soon_as_that_may_be_over(
    circuits: Circuits, clock: TestClock
) -> None:
    """The trial of a turn ends within seconds. Callers who were told half a minute would miss the provider's return."""
    for _ in range(3):
        circuits.failed("mail", DOWN)
    clock.advance(30)
    async with circuits.permit("mail", wait=1):
        with pytest.raises(BrokerError) as reported:
            circuits.check("mail")
    assert 1 == reported.value.retry_after_seconds


def test_a_success_ends_the_count_of_the_grants_own_failures(circuits: Circuits) -> None:
    for _ in range(2):
        for _ in range(2):
            circuits.failed("mail", DOWN, "one", own=True)
        assert 0 == circuits.pause("mail", "one")
        circuits.worked("mail", "one")


def test_further_grants_that_fail_while_all_are_paused_prolong_nothing(circuits: Circuits, clock: TestClock) -> None:
    for number in range(ALL):
        circuits.failed("mail", BUSY, f"{number}", own=True)
    left = circuits.pause("mail", "healthy")
    clock.advance(left / 2)
    for number in range(ALL, 2 * ALL):
        circuits.failed("mail", BUSY, f"{number}", own=True)
    assert left / 2 == pytest.approx(circuits.pause("mail", "healthy"))


def test_each_trial_that_fails_doubles_the_pause_of_all(circuits: Circuits, clock: TestClock) -> None:
    for number in range(ALL):
        circuits.failed("mail", BUSY, f"{number}", own=True)
    for number, longest in enumerate((2.0, 4.0, 8.0)):
        clock.advance(longest)
        circuits.failed("mail", BUSY, f"trial-{number}", own=True)
        assert longest / 2 <= circuits.pause("mail", "healthy") <= longest


@pytest.mark.parametrize(("after", "pause"), [(1.5, 0.5), (2.0, 4.0)])
def test_a_failure_at_the_very_end_of_the_pause_is_one_of_a_trial(after: float, pause: float) -> None:
    class Longest(TestClock):
        def jitter(self, low: float, high: float) -> float:
            return high

    clock = Longest()
    circuits = Circuits(clock)
    for number in range(ALL):
        circuits.failed("mail", BUSY, f"{number}", own=True)
    clock.advance(1)
    circuits.failed("mail", BUSY, "trial", own=True)
    clock.advance(after)
    circuits.failed("mail", BUSY, "another trial", own=True)
    assert pause == circuits.pause("mail", "healthy")


@pytest.mark.parametrize(("failures", "pauses"), [(1, False), (2, False), (3, True)])
def test_a_grant_pauses_after_its_third_failure_in_a_row(circuits: Circuits, failures: int, pauses: bool) -> None:
    for _ in range(failures):
        circuits.failed("mail", DOWN, "sick", own=True)
    assert pauses is (circuits.pause("mail", "sick") > 0)
