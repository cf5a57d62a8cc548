"""A grant that ends by itself: its end is read, kept and shown, and `auth.expiring` comes once before it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.grants.import_lines import validate
from oauthbroker.model.connect_links import connect_link
from oauthbroker.model.token_results import Ready
from oauthbroker.observability.metrics import Metric
from oauthbroker.testing import Browser, IdentityProvider, TestClock, connect_through
from oauthbroker.testing.browser import Page
from tests.kit.running_broker import ALICE, Harness, running, stored_grant, user_app

DAY = 86_400


class Stage:
    """Brokers with the app `mail`, on one store where a test wants two. Nothing runs in the background."""

    def __init__(self, idp: IdentityProvider, clock: TestClock, stack: AsyncExitStack) -> None:
        self.idp, self.clock, self.stack = idp, clock, stack

    async def play(self, store: Any = None, **habits: Any) -> Harness:
        app = user_app(self.idp)
        app = replace(app, habits=replace(app.habits, **habits))
        made = running(self.idp, [app], clock=self.clock, store=store, background=False)
        return await self.stack.enter_async_context(made)


@pytest.fixture
async def stage(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        yield Stage(identity_provider, test_clock, stack)


async def noticed(harness: Harness) -> list[dict[str, Any]]:
    """Return the notices that leave now."""
    await harness.parts.expiring.run_pass()
    await harness.parts.relay.once()
    found = list[dict[str, Any]]()
    while (event := await harness.event(wait=0)) is not None:
        found.append(event)
    return [event for event in found if event["type"] == "auth.expiring"]


async def opened_page(browser: Browser, link: str) -> Page:
    """A person clicks the link of a notice; the connect page."""
    assert 303 == (await browser.open(link)).status
    return await browser.follow()


async def test_the_end_of_a_refresh_token_is_announced_seven_days_before_it(stage: Stage) -> None:
    harness = await stage.play()
    stage.idp.script.token.fields(refresh_token_expires_in=100 * DAY)
    await harness.connected()
    end = (await stored_grant(harness)).ends.at
    assert stage.clock.now() + timedelta(days=100) == end
    assert [] == await noticed(harness)
    stage.clock.advance(93 * DAY - 60)
    assert [] == await noticed(harness)
    stage.clock.advance(120)
    (event,) = await noticed(harness)
    assert end.isoformat().startswith(event["payload"]["endsAt"].removesuffix("Z"))
    assert {"oauthAppRef", "provider", "subject", "authSessionId", "grantId", "endsAt", "connectUrl"} == set(
        event["payload"]
    )
    assert [] == await noticed(harness), "once"
    assert 1 == harness.broker.metrics.value(Metric.GRANTS_ENDING, "mail")
    (summary,) = [grant async for grant in harness.broker.grants.list()]
    assert event["payload"]["endsAt"] == summary.endsAt


@pytest.mark.parametrize(
    ("left", "notices"), [(7 * DAY + 1, 0), (7 * DAY, 1), (1, 1), (0, 0)], ids=["early", "first", "last", "over"]
)
async def test_a_notice_is_given_from_the_first_moment_on_and_not_at_the_end(
    stage: Stage, left: int, notices: int
) -> None:
    harness = await stage.play()
    stage.idp.script.token.fields(refresh_token_expires_in=100 * DAY)
    await harness.connected()
    stage.clock.set((await stored_grant(harness)).ends.at - timedelta(seconds=left))
    assert notices == len(await noticed(harness))


async def test_a_refresh_without_a_statement_moves_no_end_and_a_later_statement_is_a_new_end(stage: Stage) -> None:
    harness = await stage.play()
    stage.idp.script.token.fields(refresh_token_expires_in=20 * DAY)
    await harness.connected()
    first = (await stored_grant(harness)).ends
    stage.clock.advance(19 * DAY)
    assert 1 == len(await noticed(harness))
    stage.idp.script.refresh.fields(refresh_token_expires_in=DAY + 3)
    assert isinstance(await harness.ask(), Ready)
    assert (first.at, True) == ((kept := (await stored_grant(harness)).ends).at, bool(kept.notice)), (
        "the rest of the same end"
    )
    assert [] == await noticed(harness)
    stage.clock.advance(3600)
    assert isinstance(await harness.ask(), Ready)
    assert first.at == (await stored_grant(harness)).ends.at, "nothing was said"
    stage.clock.advance(3600)
    stage.idp.script.refresh.fields(refresh_token_expires_in=20 * DAY)
    assert isinstance(await harness.ask(), Ready)
    assert stage.clock.now() + timedelta(days=20) == (await stored_grant(harness)).ends.at
    stage.clock.advance(19 * DAY)
    assert 1 == len(await noticed(harness)), "another end, another notice"


async def test_no_refresh_puts_the_end_of_a_consent_off(stage: Stage) -> None:
    harness = await stage.play()
    stage.idp.script.token.fields(authorization_expires_in=30 * DAY, refresh_token_expires_in=10 * DAY)
    await harness.connected()
    granted = stage.clock.now()
    for _ in range(5):
        stage.clock.advance(5 * DAY)
        stage.idp.script.refresh.fields(refresh_token_expires_in=10 * DAY)
        assert isinstance(await harness.ask(), Ready)
    assert granted + timedelta(days=30) == (await stored_grant(harness)).ends.at


async def test_an_app_says_how_long_a_consent_lasts_and_another_consent_begins_anew(stage: Stage) -> None:
    """Google ends the refresh tokens of clients that are in testing after seven days."""
    harness = await stage.play(refresh_token_days=7)
    await harness.connected(scopes=["read"])
    granted = stage.clock.now()
    stage.clock.advance(3 * DAY)
    assert isinstance(await harness.ask(scopes=["read"]), Ready)
    assert granted + timedelta(days=7) == (await stored_grant(harness)).ends.at
    await harness.connected(scopes=["read", "write"])
    assert stage.clock.now() + timedelta(days=7) == (await stored_grant(harness)).ends.at, "a step-up is a consent"


@pytest.mark.parametrize("odd", [0, -1, True, "soon", "", None, [], {}, 1e300, "9" * 20, 10**18, float("1e9"), "-7"])
async def test_an_odd_end_loses_no_consent_and_gives_no_notice(stage: Stage, odd: Any) -> None:
    harness = await stage.play()
    stage.idp.script.token.fields(refresh_token_expires_in=odd)
    await harness.connected()
    assert (await stored_grant(harness)).ends is None
    stage.clock.advance(400 * DAY)
    assert [] == await noticed(harness)


async def test_the_link_of_a_notice_opens_a_session_when_it_is_followed_and_ends_with_the_next_consent(
    stage: Stage,
) -> None:
    harness = await stage.play()
    stage.idp.script.token.fields(refresh_token_expires_in=20 * DAY)
    await harness.connected()
    while await harness.event(wait=0):
        pass
    stage.clock.advance(19 * DAY)
    (event,) = await noticed(harness)
    link, sessions = event["payload"]["connectUrl"], harness.repository.sessions
    assert not [it async for it in sessions() if it.record.open], "no session waits yet"
    for wrong in (
        link[:-1] + ("a" if link[-1] != "a" else "b"),
        link[:-6],
        link + "a",
        link.replace("again/", "again/%00"),
    ):
        assert (await harness.browser().open(wrong)).status == Code.STATE_UNKNOWN.status, wrong
    browser = harness.browser()
    page = await opened_page(browser, link)
    assert 200 == page.status
    opened = [it.record async for it in sessions() if it.record.open]
    assert [("expired", event["payload"]["subject"])] == [(it.reason, it.subject) for it in opened]
    assert 200 == (await opened_page(harness.browser(), link)).status
    assert 1 == len([it async for it in sessions() if it.record.open]), "the second click finds the same session"
    before = await stored_grant(harness)
    stage.idp.script.token.fields(refresh_token_expires_in=20 * DAY)
    done = await connect_through(browser, stage.idp, connect_link(harness.origin, opened[0].ticket), "alice")
    assert 200 == done.status, done.text
    after = await stored_grant(harness)
    assert (before.id, before.created_at) == (after.id, after.created_at), "the grant is kept"
    assert stage.clock.now() + timedelta(days=20) == after.ends.at
    assert Code.STATE_UNKNOWN.status == (await harness.browser().open(link)).status


async def test_two_hosts_give_one_notice(stage: Stage) -> None:
    first = await stage.play()
    second = await stage.play(store=first.store)
    stage.idp.script.token.fields(refresh_token_expires_in=20 * DAY)
    await first.connected()
    stage.clock.advance(19 * DAY)
    given = await asyncio.gather(*(each.parts.expiring.run_pass() for each in (first, second, first, second)))
    assert 1 == sum(given)
    assert 1 == len(await noticed(second))


async def test_a_notice_and_its_mark_are_one_write(stage: Stage) -> None:
    """A process that dies at the write has done neither, and the next one gives the notice, with the same id."""
    harness = await stage.play()
    stage.idp.script.token.fields(refresh_token_expires_in=20 * DAY)
    await harness.connected()
    stage.clock.advance(19 * DAY)
    before = await stored_grant(harness)
    await harness.parts.expiring.run_pass()
    after = await stored_grant(harness)
    assert ((), False) == (tuple(each for each in before.outbox if "expiring" in each.id), bool(before.ends.notice))
    (event,) = (each for each in after.outbox if "expiring" in each.id)
    assert after.ends.notice
    async with harness.repository.pair(before.key):  # the store forgets it, as after a loss of power
        newest = await harness.repository.grant(before.key)
        assert newest is not None
        await harness.repository.save_grant(before, expect=newest.generation)
    assert [event.id] == [each["eventId"] for each in await noticed(harness)]


async def test_a_grant_that_no_conversation_waits_for_is_told_to_the_operator(stage: Stage) -> None:
    harness = await stage.play()
    end = (stage.clock.now() + timedelta(days=10)).isoformat()
    line = {"app": "mail", "subject": ALICE, "refreshToken": "r-1", "refreshTokenExpiresAt": end}
    checked = validate(BytesIO(json.dumps(line).encode()), harness.broker.bundle.apps, stage.clock.now())
    assert "imported" == await harness.broker.grants.importing.import_grant(checked.incoming[0])
    stage.clock.advance(9 * DAY + 60)
    assert [] == await noticed(harness)
    assert 1 == harness.log.getvalue().count("a grant ends soon, and no conversation waits for it")
    assert (await stored_grant(harness)).ends.notice
