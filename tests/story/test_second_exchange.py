"""Meta's tokens: the first one is exchanged for one that lasts, which is itself exchanged for the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.meta_app import LASTING_SECONDS as LASTING
from tests.kit.meta_app import meta_app
from tests.kit.running_broker import Harness, running, stored_grant, turn

DAY = 86_400


class Stage:
    """Brokers with the app `mail` at a provider like Meta's. Nothing runs in the background."""

    def __init__(self, idp: IdentityProvider, clock: TestClock, stack: AsyncExitStack) -> None:
        self.idp, self.clock, self.stack = idp, clock, stack

    async def play(self, store: Any = None, *, renews: bool = True) -> Harness:
        app = meta_app(self.idp, renews=renews)
        made = running(self.idp, [app], clock=self.clock, store=store, background=False)
        return await self.stack.enter_async_context(made)

    async def consent(self, harness: Harness) -> None:
        page = await harness.connect(await harness.ask_link())
        assert 200 == page.status, page.text


@pytest.fixture
async def stage(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        yield Stage(identity_provider, test_clock, stack)


async def token(harness: Harness) -> str:
    result = await harness.ask()
    assert isinstance(result, Ready), result
    assert not result.degraded
    return result.access_token.reveal()


async def test_the_first_token_is_exchanged_in_the_background_and_by_the_next_call(stage: Stage) -> None:
    harness = await stage.play()
    await stage.consent(harness)
    assert (await stored_grant(harness)).exchange_due
    first = (await stored_grant(harness)).token.access_token
    assert 1 == await harness.parts.background_refresh.recover()
    grant = await stored_grant(harness)
    assert (False, LASTING) == (grant.exchange_due, grant.token.lifetime_seconds)
    assert first != grant.token.access_token
    assert 0 == await harness.parts.background_refresh.recover()
    assert grant.token.access_token.reveal() == await token(harness)
    assert 1 == stage.idp.count("exchange")
    assert not grant.unfinished or grant.outbox


async def test_a_lasting_token_is_exchanged_by_a_call_in_the_second_half_of_its_life(stage: Stage) -> None:
    harness = await stage.play()
    await stage.consent(harness)
    lasting = await token(harness)
    stage.clock.advance(29 * DAY)
    assert lasting == await token(harness)
    stage.clock.advance(2 * DAY)
    later = await token(harness)
    assert (1, True) == (stage.idp.count("exchange_again"), later != lasting)
    assert later == await token(harness)
    assert stage.clock.now() + timedelta(days=60) == (await stored_grant(harness)).ends.at


@pytest.mark.parametrize("fault", ["refused", "down", "lost", "limited", "odd", "empty", "error"])
async def test_a_second_exchange_that_fails_leaves_the_first_token_in_use_and_is_tried_again(
    stage: Stage, fault: str
) -> None:
    harness = await stage.play()
    script = stage.idp.script.exchange
    match fault:
        case "refused":
            script.answer(400, {"error": {"message": "no", "type": "OAuthException", "code": 2}}, times=3)
        case "down":
            script.answer(503, times=3)
        case "lost":
            script.close_after_accept(times=3)
        case "limited":
            script.busy(1, times=3)
        case "odd":
            script.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", times=3)
        case "empty":
            script.answer(200, {}, times=3)
        case "error":
            script.answer(500, {"error": "server_error"}, times=3)
    await stage.consent(harness)
    first = (await stored_grant(harness)).token.access_token.reveal()
    assert first == await token(harness)
    assert first == await token(harness)
    assert (await stored_grant(harness)).exchange_due
    for _ in range(12):
        stage.clock.advance(120)
        await harness.parts.background_refresh.recover()
    assert LASTING == (await stored_grant(harness)).token.lifetime_seconds, harness.log.getvalue()
    assert first != await token(harness)


async def test_a_token_that_is_not_a_day_old_is_not_exchanged(stage: Stage) -> None:
    harness = await stage.play()
    await stage.consent(harness)
    lasting = await harness.ask()
    assert isinstance(lasting, Ready)
    rejected = await harness.broker.oauth(turn()).report_rejected("mail", lasting.access_token)
    assert isinstance(rejected, AuthorizationRequired), rejected
    assert 0 == stage.idp.count("exchange_again")


async def test_without_a_way_to_refresh_a_lasting_token_is_used_to_its_end_and_the_user_is_told_before(
    stage: Stage,
) -> None:
    harness = await stage.play(renews=False)
    await stage.consent(harness)
    lasting = await token(harness)
    assert (await stored_grant(harness)).token.refresh_token is None
    stage.clock.advance(59 * DAY)
    assert lasting == await token(harness)
    assert 1 == await harness.parts.expiring.run_pass()
    stage.clock.advance(2 * DAY)
    assert isinstance(await harness.ask(), AuthorizationRequired)


async def test_two_hosts_exchange_once(stage: Stage) -> None:
    first = await stage.play()
    second = await stage.play(store=first.store)
    await stage.consent(first)
    tokens = await asyncio.gather(*(token(each) for each in (first, second) * 5))
    assert (1, 1) == (len(set(tokens)), stage.idp.count("exchange"))


async def test_an_exchange_that_was_lost_with_its_process_is_settled_by_the_next(stage: Stage) -> None:
    """The intent is sealed before the request, so a dead process leaves a grant that another one exchanges."""
    first = await stage.play()
    await stage.consent(first)
    hold = stage.idp.script.exchange.hang(after_work=True)
    call = asyncio.ensure_future(first.ask())
    while not stage.idp.count("exchange"):
        await asyncio.sleep(0.01)
    assert (await stored_grant(first)).refresh_state.intent is not None
    call.cancel()
    hold.release()
    stage.clock.advance(600)
    second = await stage.play(store=first.store)
    await second.parts.background_refresh.recover()
    assert LASTING == (await stored_grant(second)).token.lifetime_seconds


async def test_the_secret_in_the_query_is_in_no_log_error_audit_or_metric(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The harness sweeps log, audit, metrics and pages for canaries; here are those of the libraries, too."""
    caplog.set_level("DEBUG")
    harness = await stage.play()
    stage.idp.script.exchange.answer(400, {"error": {"message": "no", "code": 1}}, times=1)
    stage.idp.script.exchange.close_after_accept(times=1)
    stage.idp.script.exchange.redirect("https://elsewhere.example/", times=1)
    await stage.consent(harness)
    secret = harness.broker.bundle.apps["mail"].client.client_secret
    assert secret is not None
    for _ in range(8):
        await harness.ask()
        stage.clock.advance(300)
    assert stage.idp.count("exchange") >= 3
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("idp")]
    assert not [line for line in ours if secret.reveal() in line]
    assert secret.reveal() not in harness.log.getvalue()


async def test_the_app_that_no_longer_says_how_asks_the_user_at_the_end(stage: Stage) -> None:
    harness = await stage.play()
    await stage.consent(harness)
    lasting = await token(harness)
    app = harness.broker.bundle.apps["mail"]
    plain = replace(app, habits=replace(app.habits, second_exchange=None, refresh_with=None))
    made = running(stage.idp, [plain], clock=stage.clock, store=harness.store, background=False)
    second = await stage.stack.enter_async_context(made)
    stage.clock.advance(40 * DAY)
    assert lasting == await token(second)
    stage.clock.advance(21 * DAY)
    result = await second.ask()
    assert isinstance(result, AuthorizationRequired | Failed), result
    assert not isinstance(result, Failed) or result.code is not Code.BROKER_UNREACHABLE
