"""docs/refresh.md is held to the product: every row of its table is played, and answers exactly what the page says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import upkeep
from oauthbroker.apps import Limits
from oauthbroker.circuit import Circuits
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.refresh import KEEP_TRYING, PROVIDER_CALLS
from oauthbroker.records import Intent
from oauthbroker.repository import Repository
from oauthbroker.results import AuthorizationRequired, Failed, Ready, TokenResult
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from tests.house import ALICE, House, UnwellStore, running, turn, user_app

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS.joinpath("refresh.md").read_text("utf-8")
NOON = datetime(2026, 2, 1, 12, tzinfo=UTC)
HOUR, SHORT = 3600.0, 200.0  # a token's life, and what is left of it when the page says that it lives
LIMITS = Limits(provider_seconds=0.5)
Words = tuple[str, ...]
Scenario = Callable[[House], Awaitable[list[TokenResult]]]
SCENARIOS: dict[str, list[Scenario]] = {}


def shows(row: str) -> Callable[[Scenario], Scenario]:
    """The scenario plays this row of the page; what it returns is what the row says, in its order."""

    def keep(scenario: Scenario) -> Scenario:
        SCENARIOS.setdefault(row, []).append(scenario)
        return scenario

    return keep


def rows() -> dict[str, tuple[list[Words], str]]:
    """what happened -> (what the tool is told, call by call; what the person sees)"""
    section = PAGE.partition("## What a tool and a person see")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {happened: ([*map(words_of, tool.split("; then"))], person) for happened, tool, person in cells[2:]}


def words_of(cell: str) -> Words:
    return tuple(re.findall(r"`(\w+)`", cell))


def told(answer: TokenResult) -> Words:
    """An answer in the words of the page."""
    match answer:
        case Ready():
            return ("ready", "degraded") if answer.degraded else ("ready",)
        case AuthorizationRequired():
            return ("authorization_required", answer.reason)
        case Failed():
            more = {"retryable": answer.retryable, "retryAfterSeconds": answer.retry_after_seconds is not None}
            return ("error", answer.code.value, *(word for word, said in more.items() if said))


# What the scenarios share


async def lives(house: House) -> Ready:
    """A grant whose token lives, but for less than a call needs."""
    first = await house.connected()
    house.clock.advance(HOUR - SHORT)
    return first


async def ended(house: House) -> Ready:
    first = await house.connected()
    house.clock.advance(HOUR)
    return first


def requests(house: House) -> int:
    return house.idp.count("refresh_token")


async def report(house: House, rejected: Ready) -> TokenResult:
    return await house.broker.oauth(turn()).report_rejected("mail", rejected.access_token)


async def during_a_renewal(house: House, act: Callable[[], Awaitable[Any]]) -> TokenResult:
    """What a call is told while whose renewal was under way `act` happened."""
    hanging = house.idp.script.refresh.hang(after_work=True)
    caller: asyncio.Task[TokenResult] = asyncio.create_task(house.ask())
    await hanging.arrived()
    await act()
    hanging.release()
    return await caller


async def without_refresh_token(house: House, *, left: float) -> Ready:
    house.idp.change("client-mail", issue_refresh=False)
    first = await house.connected()
    house.clock.advance(HOUR - left)
    return first


# The rows


@shows("the token lives long enough")
async def long_enough(house: House) -> list[TokenResult]:
    first = await house.connected()
    house.clock.advance(HOUR - 301)
    answer = await house.ask()
    assert (first.access_token, 0) == (answer.access_token, requests(house))
    return [answer]


@shows("it is about to end, or has ended")
async def about_to_end(house: House) -> list[TokenResult]:
    first = await lives(house)
    answer = await house.ask()
    assert (True, 1) == (first.access_token != answer.access_token, requests(house))
    return [answer]


@shows("it is about to end, or has ended")
async def has_ended(house: House) -> list[TokenResult]:
    first = await ended(house)
    answer = await house.ask(min_ttl_seconds=1800)
    assert (True, 1) == (first.access_token != answer.access_token, requests(house))
    return [answer]


@shows("somebody else has renewed it meanwhile, in this process or another")
async def renewed_here(house: House) -> list[TokenResult]:
    await ended(house)
    answers = await asyncio.gather(house.ask(), house.ask())
    assert answers[0].access_token == answers[1].access_token
    assert 1 == requests(house)
    return [answers[1]]


@shows("somebody else has renewed it meanwhile, in this process or another")
async def renewed_elsewhere(house: House) -> list[TokenResult]:
    """The caller has seen the old token and waits for the lease while the other one is asked for a new one."""
    await ended(house)
    hanging = house.idp.script.refresh.hang(after_work=True)
    async with another(house) as other:
        theirs = asyncio.create_task(other.ask())
        await hanging.arrived()
        ours = asyncio.create_task(house.ask())
        await asyncio.sleep(0.05)
        assert not ours.done()
        hanging.release()
        assert (await theirs).access_token == (await ours).access_token
    assert 1 == requests(house)
    return [await ours]


@shows("somebody else is renewing it, and is not done within four times `limits.providerSeconds`")
async def too_long(house: House) -> list[TokenResult]:
    await ended(house)
    async with Repository(house.store).flight("mail", ALICE):
        answer = await house.ask()
    assert 0 == requests(house)
    return [answer]


TROUBLE = "the provider is slow, down, busy, refuses our client or answers junk; the token lives"


def troubled(house: House, trouble: str, *, times: int | None = 1) -> None:
    refresh = house.idp.script.refresh
    match trouble:
        case "slow":
            refresh.hang(times=times)
        case "gone":
            refresh.close_after_accept(reset=True, times=times)
        case "junk":
            refresh.answer(200, "<html>", times=times)
        case "client":
            refresh.refuse("invalid_client", 401, times=times)
        case "busy":
            refresh.busy("7", 429, times=times)
        case status:
            refresh.answer(int(status), times=times)


def served_meanwhile(trouble: str) -> Scenario:
    async def scenario(house: House) -> list[TokenResult]:
        first = await lives(house)
        troubled(house, trouble)
        answer = await house.ask()
        assert (first.access_token, first.expires_at) == (answer.access_token, answer.expires_at)
        assert 1 == requests(house)
        return [answer]

    return scenario


for each in ("slow", "gone", "500", "503", "busy", "client", "junk"):
    shows(TROUBLE)(served_meanwhile(each))


@shows("the same, and the call named a minimum that the token does not reach")
async def a_minimum_of_its_own(house: House) -> list[TokenResult]:
    await lives(house)
    troubled(house, "500")
    return [await house.ask(min_ttl_seconds=int(SHORT))]


DOWN = "it is down or does not answer in time; the token has ended"


def down(trouble: str) -> Scenario:
    async def scenario(house: House) -> list[TokenResult]:
        await ended(house)
        troubled(house, trouble)
        return [await house.ask()]

    return scenario


for each in ("slow", "gone", "500", "503"):
    shows(DOWN)(down(each))


@shows("it is down, so often that it is left alone for a while")
async def left_alone(house: House) -> list[TokenResult]:
    await ended(house)
    troubled(house, "503", times=FOREVER)
    for _ in range(4):
        answer = await house.ask()
    assert 3 == requests(house)
    return [answer]


@shows("it asks to slow down; the token has ended")
async def busy(house: House) -> list[TokenResult]:
    await ended(house)
    troubled(house, "busy")
    answer = await house.ask()
    assert 7 == answer.retry_after_seconds
    return [answer]


@shows("it refuses our client; the token has ended")
async def refused_client(house: House) -> list[TokenResult]:
    await ended(house)
    troubled(house, "client")
    return [await house.ask()]


@shows("its answer is junk; the token has ended")
async def junk(house: House) -> list[TokenResult]:
    await ended(house)
    troubled(house, "junk")
    first = await house.ask()
    house.clock.advance(2)
    return [first, await house.ask()]


@shows("it says that the refresh token is dead")
async def dead(house: House) -> list[TokenResult]:
    await ended(house)
    house.idp.revoke_all("client-mail", "alice")
    return [await house.ask()]


@shows("it says that the refresh token is dead")
async def dead_while_the_token_lives(house: House) -> list[TokenResult]:
    await lives(house)
    house.idp.script.refresh.refuse("invalid_grant")
    return [await house.ask()]


@shows("it refuses twice, in words that may mean anything")
async def unclear(house: House) -> list[TokenResult]:
    await ended(house)
    house.idp.script.refresh.answer(400, times=2)
    first = await house.ask()
    house.clock.advance(first.retry_after_seconds)
    return [first, await house.ask()]


@shows("its answer was lost, and it forgives the refresh token a second time")
async def lost_and_forgiven(house: House) -> list[TokenResult]:
    house.idp.change("client-mail", reuse_grace=60)
    return await lost(house)


@shows("its answer was lost, and it does not forgive")
async def lost(house: House) -> list[TokenResult]:
    await ended(house)
    house.idp.script.refresh.close_after_accept(after_work=True)
    first = await house.ask()
    house.clock.advance(2)
    return [first, await house.ask()]


@shows("the ID token in its answer is about somebody else")
async def somebody_else(house: House) -> list[TokenResult]:
    await lives(house)
    house.idp.script.refresh.alter_id_token(claims={"sub": "U666666"})
    return [await house.ask(), await house.ask()]


@shows("it gave fewer scopes than before, and the call needs the others")
async def shrunk(house: House) -> list[TokenResult]:
    await ended(house)
    house.idp.script.refresh.fields(scope="read")
    return [await house.ask(scopes=["read", "write"])]


@shows("it gave fewer scopes than before, and the call can do without the others")
async def shrunk_but_enough(house: House) -> list[TokenResult]:
    await ended(house)
    house.idp.script.refresh.fields(scope="read")
    answer = await house.ask(scopes=["read"])
    assert ("read",) == answer.scopes
    return [answer]


@shows("it gave more scopes than the app may have")
async def grown(house: House) -> list[TokenResult]:
    await ended(house)
    house.idp.script.refresh.fields(scope="read write admin everything")
    return [await house.ask(), await house.ask()]


@shows("`minTtlSeconds` is not shorter than the lifetime of its tokens")
async def too_much(house: House) -> list[TokenResult]:
    await house.connected()
    answer = await house.ask(min_ttl_seconds=int(HOUR))
    assert 0 == requests(house)
    return [answer]


@shows("its tokens live shorter than 300 s, and nothing was said about a minimum")
async def short_lived(house: House) -> list[TokenResult]:
    house.idp.change("client-mail", access_lifetime=100)
    first = await house.connected()
    house.clock.advance(49)
    assert first.access_token == (await house.ask()).access_token
    house.clock.advance(2)
    answer = await house.ask()
    assert (True, 1) == (first.access_token != answer.access_token, requests(house))
    return [answer]


@shows("there is no refresh token; the token lives")
async def none_and_alive(house: House) -> list[TokenResult]:
    await without_refresh_token(house, left=SHORT)
    return [await house.ask()]


@shows("there is no refresh token; the token has ended")
async def none_and_ended(house: House) -> list[TokenResult]:
    await without_refresh_token(house, left=0)
    return [await house.ask()]


@shows("the disk is full before anything was sent; the token has ended")
async def disk_full(house: House) -> list[TokenResult]:
    await ended(house)
    disk_of(house).refuses = 1_000
    answer = await house.ask()
    disk_of(house).refuses = 0
    assert 0 == requests(house)
    return [answer]


@shows("the disk fails once the provider has answered")
async def disk_fails(house: House) -> list[TokenResult]:
    await ended(house)

    def fail(found: dict[str, Any]) -> dict[str, Any]:
        disk_of(house).refuses = 1
        return found

    house.idp.script.refresh.alter(fail)
    answer = await house.ask()
    assert house.idp.is_alive(answer.access_token.reveal())
    return [answer]


@shows("the grant was revoked while it was being renewed")
async def revoked_meanwhile(house: House) -> list[TokenResult]:
    await ended(house)
    return [await during_a_renewal(house, lambda: house.broker.revoke("mail", subject=ALICE))]


@shows("somebody connected again while it was being renewed")
async def connected_meanwhile(house: House) -> list[TokenResult]:
    await ended(house)

    async def connect_again() -> None:
        page = await house.connect(await house.ask(switch_account=True))
        assert 200 == page.status

    answer = await during_a_renewal(house, connect_again)
    assert isinstance(answer, Ready)
    grant = await house.grant()
    assert grant is not None
    assert grant.token is not None
    assert answer.access_token == grant.token.access_token
    assert 2 == len(house.idp.families("client-mail"))
    return [answer]


@shows("a tool reports that the API refused the token")
async def reported(house: House) -> list[TokenResult]:
    first = await house.connected()
    answer = await report(house, first)
    assert isinstance(answer, Ready)
    assert answer.access_token != first.access_token
    return [answer]


@shows("another one reports the same token, after it was replaced")
async def reported_again(house: House) -> list[TokenResult]:
    first = await house.connected()
    second = await report(house, first)
    answer = await report(house, first)
    assert isinstance(second, Ready)
    assert isinstance(answer, Ready)
    assert (second.access_token, 1) == (answer.access_token, requests(house))
    return [answer]


@shows("a grant's tokens are reported more than `limits.rejectionsPerHour` times")
async def reported_too_often(house: House) -> list[TokenResult]:
    answer: TokenResult = await house.connected()
    for _ in range(LIMITS.rejections_per_hour + 1):
        assert isinstance(answer, Ready)
        answer = await report(house, answer)
    assert LIMITS.rejections_per_hour == requests(house)
    assert isinstance(await house.ask(), Ready)
    return [answer]


@shows("a token is reported, and the provider is down")
async def reported_while_it_is_down(house: House) -> list[TokenResult]:
    first = await house.connected()
    troubled(house, "gone")
    return [await report(house, first)]


@shows("a token is reported, and there is no refresh token")
async def reported_without_refresh_token(house: House) -> list[TokenResult]:
    return [await report(house, await without_refresh_token(house, left=HOUR))]


@shows("a token is reported, and its refresh token is dead too")
async def reported_with_dead_refresh_token(house: House) -> list[TokenResult]:
    first = await house.connected()
    house.idp.script.refresh.refuse("invalid_grant")
    return [await report(house, first)]


@shows("the machine's clock was set back, so that nobody knows when the token ends")
async def clock_set_back(house: House) -> list[TokenResult]:
    first = await house.connected()
    house.clock.set(house.clock.now() - timedelta(days=1))
    answer = await house.ask()
    assert (True, 1) == (first.access_token != answer.access_token, requests(house))
    return [answer]


@shows("the caller was cancelled while it waited")
async def cancelled(house: House) -> list[TokenResult]:
    await ended(house)
    hanging = house.idp.script.refresh.hang(after_work=True)
    caller = asyncio.create_task(house.ask())
    await hanging.arrived()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert caller.cancelled()
    hanging.release()
    answer = await house.ask()
    assert 1 == requests(house)
    return [answer]


# The page


class LastingStore(UnwellStore):
    """Of two brokers, the one that leaves does not take it along."""

    async def close(self) -> None:
        pass


@pytest.fixture
async def house(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[House]:
    """Nothing runs in the background, and the disk fails when it is told to."""
    app, disk = user_app(identity_provider), LastingStore(test_clock)
    async with running(
        identity_provider, [app], clock=test_clock, store=disk, limits=LIMITS, background=False
    ) as house:
        yield house


def another(house: House) -> Any:
    """Another broker on the same store, as another process would be."""
    apps = house.broker.bundle.apps.values()
    return running(house.idp, apps, clock=house.clock, store=house.store, limits=LIMITS, background=False)


def disk_of(house: House) -> UnwellStore:
    assert isinstance(house.store, UnwellStore)
    return house.store


PLAYED = [
    pytest.param(row, scenario, id=f"{row} {number}")
    for row, scenarios in SCENARIOS.items()
    for number, scenario in enumerate(scenarios)
]


def test_every_row_is_played_and_every_scenario_has_its_row() -> None:
    assert len(rows()) > 30
    assert set(rows()) == set(SCENARIOS)


@pytest.mark.parametrize("row, scenario", PLAYED)
async def test_a_row_of_the_table_is_what_happens(house: House, row: str, scenario: Scenario) -> None:
    expected, person = rows()[row]
    before = [held.record.id async for held in house.repository.sessions()]
    assert [] == before
    assert expected == [told(answer) for answer in await scenario(house)]
    asked = any("authorization_required" in words for words in expected)
    assert ("a link" in person) is asked
    assert (person == "nothing") is not asked
    waiting = [held.record.id async for held in house.repository.sessions() if held.record.status == "pending"]
    assert len(waiting) == (1 if asked else 0)


def test_the_numbers_on_the_page_are_the_numbers_in_the_code() -> None:
    limits, operations = Limits(), DOCS.joinpath("operations.md").read_text("utf-8")
    first, longest = (Intent("", NOON, lost).retry_at.timestamp() - NOON.timestamp() for lost in (0, 100))
    assert (1, 300) == (first, longest)
    assert "1 s, then twice as long each time, up to 5 min" in PAGE
    assert (4, "four times `limits.providerSeconds`" in PAGE) == (PROVIDER_CALLS, True)
    assert f"`limits.rejectionsPerHour` times ({limits.rejections_per_hour})" in PAGE
    assert f"or {limits.default_min_ttl_seconds} s if it says nothing" in PAGE
    assert (10, 30) == (sum(KEEP_TRYING) // 60, max(KEEP_TRYING))
    assert "for ten minutes, the longest pause being half a minute" in operations
    assert (4, "At most four are renewed at once" in PAGE) == (upkeep.AT_ONCE, True)


async def test_a_refused_client_and_three_failures_open_the_circuit_for_as_long_as_the_page_says() -> None:
    clock = TestClock(seed=1)
    circuits = Circuits(clock)
    circuits.failed("mail", BrokerError(Code.APP_MISCONFIGURED))
    assert 30 == circuits.pause("mail")
    assert "a refused client for 30 s, three failures in a row for 1 s" in PAGE
    for _ in range(2):
        circuits.failed("files", BrokerError(Code.PROVIDER_UNREACHABLE))
    assert 0 == circuits.pause("files")
    circuits.failed("files", BrokerError(Code.PROVIDER_UNREACHABLE))
    assert 0 < circuits.pause("files") <= 1
    for _ in range(20):
        circuits.failed("files", BrokerError(Code.PROVIDER_UNREACHABLE))
    assert 30 <= circuits.pause("files") <= 60


async def test_the_tool_of_the_page_does_what_its_test_on_the_page_says(house: House) -> None:
    space: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/refresh.md", "exec"), space)  # noqa: S102 - that is what is tested
    await house.connected()
    await space["test_my_tool_survives_the_night"](house.idp, house.clock, house.broker, turn())
