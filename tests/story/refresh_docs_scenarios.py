"""Rows of docs/refresh-results.md that are about tokens, tools, people, disks and clocks."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import Ready, TokenResult
from oauthbroker.repository.repository import Repository
from tests.kit.running_broker import ALICE, Harness
from tests.story.refresh_docs import (
    HOUR,
    LIMITS,
    SHORT,
    another,
    disk_of,
    disturbed,
    during_a_refresh,
    ended,
    lives,
    report,
    requests,
    shows,
    without_refresh_token,
)


@shows("the token lives long enough", tool="`ready`")
async def long_enough(harness: Harness) -> list[TokenResult]:
    first = await harness.connected()
    harness.clock.advance(HOUR - 301)
    answer = await harness.ask()
    assert (first.access_token, 0) == (answer.access_token, requests(harness))
    return [answer]


@shows("it expires soon, or has expired", tool="`ready` with a new token")
async def about_to_end(harness: Harness) -> list[TokenResult]:
    first = await lives(harness)
    answer = await harness.ask()
    assert (True, 1) == (first.access_token != answer.access_token, requests(harness))
    return [answer]


@shows("it expires soon, or has expired")
async def has_ended(harness: Harness) -> list[TokenResult]:
    first = await ended(harness)
    answer = await harness.ask(min_ttl_seconds=1800)
    assert (True, 1) == (first.access_token != answer.access_token, requests(harness))
    return [answer]


@shows("another caller has refreshed it meanwhile, in this process or another", tool="`ready` with that token")
async def refreshed_here(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    answers = await asyncio.gather(harness.ask(), harness.ask())
    assert answers[0].access_token == answers[1].access_token
    assert 1 == requests(harness)
    return [answers[1]]


@shows("another caller has refreshed it meanwhile, in this process or another")
async def refreshed_elsewhere(harness: Harness) -> list[TokenResult]:
    """The caller has seen the old token and waits for the lease while the other one is asked for a new one."""
    await ended(harness)
    hanging = harness.idp.script.refresh.hang(after_work=True)
    async with another(harness) as other:
        theirs = asyncio.create_task(other.ask())
        await hanging.arrived()
        ours = asyncio.create_task(harness.ask())
        await asyncio.sleep(0.05)
        assert not ours.done()
        hanging.release()
        assert (await theirs).access_token == (await ours).access_token
    assert 1 == requests(harness)
    return [await ours]


@shows(
    "another caller is refreshing it, and is not done within five times `limits.providerSeconds`",
    tool="`error` `refreshInProgress`, `retryable`, `retryAfterSeconds`",
)
async def too_long(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    hasty = another(harness, Limits(provider_seconds=0.1))
    async with hasty as other, Repository(harness.store).provider_lease(GrantKey("mail", ALICE)):
        answer = await other.ask()
    assert 0 == requests(harness)
    return [answer]


@shows("there is no refresh token; the token lives", tool="`ready`, `degraded`")
async def none_and_alive(harness: Harness) -> list[TokenResult]:
    await without_refresh_token(harness, left=SHORT)
    return [await harness.ask()]


@shows("there is no refresh token; the token has expired", tool="`authorization_required` `expired`", user="a link")
async def none_and_ended(harness: Harness) -> list[TokenResult]:
    await without_refresh_token(harness, left=0)
    return [await harness.ask()]


@shows(
    "the disk is full before the request was sent; the token has expired",
    tool="`error` `storeUnavailable`, `retryable`",
)
async def disk_full(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    disk_of(harness).refuses = 1_000
    answer = await harness.ask()
    disk_of(harness).refuses = 0
    assert 0 == requests(harness)
    return [answer]


@shows("the disk fails once the provider has answered", tool="`ready` with the new token, from memory")
async def disk_fails(harness: Harness) -> list[TokenResult]:
    await ended(harness)

    def fail(found: dict[str, Any]) -> dict[str, Any]:
        disk_of(harness).refuses = 1
        return found

    harness.idp.script.refresh.alter(fail)
    answer = await harness.ask()
    assert harness.idp.is_alive(answer.access_token.reveal())
    return [answer]


@shows("the grant was revoked during the refresh", tool="`authorization_required` `revoked`", user="a link")
async def revoked_meanwhile(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    return [await during_a_refresh(harness, lambda: harness.broker.revoke("mail", subject=ALICE))]


@shows("the user connected again during the refresh", tool="`ready` with the token of the new connection")
async def connected_meanwhile(harness: Harness) -> list[TokenResult]:
    await ended(harness)

    async def connect_again() -> None:
        page = await harness.connect(await harness.ask(switch_account=True))
        assert 200 == page.status

    answer = await during_a_refresh(harness, connect_again)
    assert isinstance(answer, Ready)
    grant = await harness.grant()
    assert grant is not None
    assert grant.token is not None
    assert answer.access_token == grant.token.access_token
    assert 2 == len(harness.idp.families("client-mail"))
    return [answer]


@shows("a tool reports that the API refused the token", tool="`ready` with a new token")
async def reported(harness: Harness) -> list[TokenResult]:
    first = await harness.connected()
    answer = await report(harness, first)
    assert isinstance(answer, Ready)
    assert answer.access_token != first.access_token
    return [answer]


@shows("another tool reports the same token, after it was replaced", tool="`ready` with the token that replaced it")
async def reported_again(harness: Harness) -> list[TokenResult]:
    first = await harness.connected()
    second = await report(harness, first)
    answer = await report(harness, first)
    assert isinstance(second, Ready)
    assert isinstance(answer, Ready)
    assert (second.access_token, 1) == (answer.access_token, requests(harness))
    return [answer]


@shows(
    "a grant's tokens are reported more than `limits.rejectionsPerHour` times",
    tool="`error` `rateLimited`, `retryable`, `retryAfterSeconds`",
)
async def reported_too_often(harness: Harness) -> list[TokenResult]:
    answer: TokenResult = await harness.connected()
    for _ in range(LIMITS.rejections_per_hour + 1):
        assert isinstance(answer, Ready)
        answer = await report(harness, answer)
    assert LIMITS.rejections_per_hour == requests(harness)
    assert isinstance(await harness.ask(), Ready)
    return [answer]


@shows("a token is reported, and the provider gives the same token again", tool="`error` `tokenUnchanged`")
async def reported_and_given_again(harness: Harness) -> list[TokenResult]:
    first = await harness.connected()
    harness.idp.script.refresh.fields(access_token=first.access_token.reveal(), id_token=None)
    return [await report(harness, first)]


@shows("a token is reported, and the provider is down", tool="`error` `providerUnreachable`, `retryable`")
async def reported_while_it_is_down(harness: Harness) -> list[TokenResult]:
    first = await harness.connected()
    disturbed(harness, "gone")
    return [await report(harness, first)]


@shows("a token is reported, and there is no refresh token", tool="`authorization_required` `revoked`", user="a link")
async def reported_without_refresh_token(harness: Harness) -> list[TokenResult]:
    return [await report(harness, await without_refresh_token(harness, left=HOUR))]


@shows(
    "a token is reported, and its refresh token is dead too",
    tool="`authorization_required` `expired`; then `authorization_required` `expired` for every caller",
    user="a link",
)
async def reported_with_dead_refresh_token(harness: Harness) -> list[TokenResult]:
    first = await harness.connected()
    harness.idp.script.refresh.refuse("invalid_grant")
    return [await report(harness, first), await harness.ask()]


@shows("the machine's clock was set back, so that the token's expiry is unknown", tool="`ready` with a new token")
async def clock_set_back(harness: Harness) -> list[TokenResult]:
    first = await harness.connected()
    harness.clock.set(harness.clock.now() - timedelta(days=1))
    answer = await harness.ask()
    assert (True, 1) == (first.access_token != answer.access_token, requests(harness))
    return [answer]


@shows(
    "the caller was cancelled while it waited", tool="nothing; the refresh continues, and the next call gets `ready`"
)
async def cancelled(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    hanging = harness.idp.script.refresh.hang(after_work=True)
    caller = asyncio.create_task(harness.ask())
    await hanging.arrived()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert caller.cancelled()
    hanging.release()
    answer = await harness.ask()
    assert 1 == requests(harness)
    return [answer]
