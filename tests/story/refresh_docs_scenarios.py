"""Rows of docs/refresh.md that are about tokens, tools, people, disks and clocks."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from oauthbroker.model.results import Ready, TokenResult
from oauthbroker.model.settings import Limits
from oauthbroker.repository.repository import Repository
from tests.kit.running_broker import ALICE, House
from tests.story.refresh_docs import (
    HOUR,
    LIMITS,
    SHORT,
    another,
    disk_of,
    during_a_refresh,
    ended,
    lives,
    report,
    requests,
    shows,
    troubled,
    without_refresh_token,
)


@shows("the token lives long enough")
async def long_enough(house: House) -> list[TokenResult]:
    first = await house.connected()
    house.clock.advance(HOUR - 301)
    answer = await house.ask()
    assert (first.access_token, 0) == (answer.access_token, requests(house))
    return [answer]


@shows("it expires soon, or has expired")
async def about_to_end(house: House) -> list[TokenResult]:
    first = await lives(house)
    answer = await house.ask()
    assert (True, 1) == (first.access_token != answer.access_token, requests(house))
    return [answer]


@shows("it expires soon, or has expired")
async def has_ended(house: House) -> list[TokenResult]:
    first = await ended(house)
    answer = await house.ask(min_ttl_seconds=1800)
    assert (True, 1) == (first.access_token != answer.access_token, requests(house))
    return [answer]


@shows("another caller has refreshed it meanwhile, in this process or another")
async def refreshed_here(house: House) -> list[TokenResult]:
    await ended(house)
    answers = await asyncio.gather(house.ask(), house.ask())
    assert answers[0].access_token == answers[1].access_token
    assert 1 == requests(house)
    return [answers[1]]


@shows("another caller has refreshed it meanwhile, in this process or another")
async def refreshed_elsewhere(house: House) -> list[TokenResult]:
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


@shows("another caller is refreshing it, and is not done within four times `limits.providerSeconds`")
async def too_long(house: House) -> list[TokenResult]:
    await ended(house)
    hasty = another(house, Limits(provider_seconds=0.1))
    async with hasty as other, Repository(house.store).flight("mail", ALICE):
        answer = await other.ask()
    assert 0 == requests(house)
    return [answer]


@shows("there is no refresh token; the token lives")
async def none_and_alive(house: House) -> list[TokenResult]:
    await without_refresh_token(house, left=SHORT)
    return [await house.ask()]


@shows("there is no refresh token; the token has expired")
async def none_and_ended(house: House) -> list[TokenResult]:
    await without_refresh_token(house, left=0)
    return [await house.ask()]


@shows("the disk is full before the request was sent; the token has expired")
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


@shows("the grant was revoked during the refresh")
async def revoked_meanwhile(house: House) -> list[TokenResult]:
    await ended(house)
    return [await during_a_refresh(house, lambda: house.broker.revoke("mail", subject=ALICE))]


@shows("the user connected again during the refresh")
async def connected_meanwhile(house: House) -> list[TokenResult]:
    await ended(house)

    async def connect_again() -> None:
        page = await house.connect(await house.ask(switch_account=True))
        assert 200 == page.status

    answer = await during_a_refresh(house, connect_again)
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


@shows("another tool reports the same token, after it was replaced")
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
    return [await report(house, first), await house.ask()]


@shows("the machine's clock was set back, so that the token's expiry is unknown")
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
