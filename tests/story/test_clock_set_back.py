"""The machine's clock is set back by a day: a deadline that was set before keeps nothing and gives nothing that long."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.events.port import EventLease
from oauthbroker.model.connect_links import locator_of
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.records.refresh_state import Intent
from oauthbroker.repository.repository import Repository
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from oauthbroker.tokens.grant_uses import WRITE_SECONDS
from oauthbroker.wiring import running as wired_running
from tests.kit.broker_process import Process, ask, complete, connected
from tests.kit.running_broker import ALICE, running, turn, user_app
from tests.story.revocation_kit import Start, grant_of

DAY = timedelta(days=1)


@pytest.fixture
async def process(start: Start, identity_provider: IdentityProvider) -> Process:
    return start([user_app(identity_provider)])


def set_back(process: Process, provider: Any = None) -> None:
    """The machine's clock, and the provider's where it dates new tokens."""
    process.clock.set(process.clock.now() - DAY)
    if provider is not None:
        provider.clock.set(provider.clock.now() - DAY)


async def leased(process: Process) -> EventLease:
    delivery = await process.broker.events.lease("planner")
    assert delivery is not None
    return delivery


@pytest.mark.parametrize("settled", ["never", "nack"])
async def test_an_event_that_was_leased_or_put_off_before_is_free(
    process: Process, identity_provider: IdentityProvider, settled: str
) -> None:
    await connected(process, identity_provider)
    await process.parts.relay.once()
    first = await leased(process)
    if settled == "nack":
        assert await first.nack()
    assert await process.broker.events.lease("planner") is None
    set_back(process)
    again = await leased(process)
    assert (first.id, 2) == (again.id, again.attempt)
    assert await again.ack()


async def test_a_claim_whose_process_died_before_is_settled(process: Process) -> None:
    asked = await ask(process)
    versioned = await Repository(process.store).session(locator_of(asked.auth_session_id))
    assert versioned is not None
    claimed = versioned.record.claimed("who died", process.clock.now() + timedelta(seconds=60))
    await Repository(process.store).save_session(claimed, expect=versioned.generation)
    set_back(process)
    await process.parts.sweep.once()
    assert "failed" == (await process.broker.wait(asked.auth_session_id, 0)).status


@pytest.mark.case("59")
async def test_an_imported_token_that_was_stored_before_is_refreshed(
    process: Process, identity_provider: IdentityProvider
) -> None:
    """Its lifetime at issue is unknown, and so is its end from then on."""
    ready = await connected(process, identity_provider)
    repository, grant = Repository(process.store), await grant_of(process)
    versioned = await repository.grant(GrantKey("mail", ALICE))
    assert versioned is not None
    assert grant.token is not None
    imported = replace(grant, token=replace(grant.token, lifetime_seconds=None))
    await repository.save_grant(imported, expect=versioned.generation)
    again = await ask(process)
    assert isinstance(again, Ready)
    assert ready.access_token == again.access_token
    set_back(process, identity_provider)
    fresh = await ask(process)
    assert isinstance(fresh, Ready)
    assert ready.access_token != fresh.access_token
    assert identity_provider.is_alive(fresh.access_token)


async def test_a_link_that_was_made_before_is_over(process: Process, identity_provider: IdentityProvider) -> None:
    asked = await ask(process)
    set_back(process, identity_provider)
    assert 200 != (await process.browser().open(asked.authorization_url)).status
    assert "expired" == (await process.broker.wait(asked.auth_session_id, 0)).status
    assert await process.broker.pending(turn()) is None
    anew = await ask(process)
    assert asked.auth_session_id != anew.auth_session_id
    assert 200 == await complete(process, identity_provider, anew)
    await process.parts.sweep.once()
    assert isinstance(await ask(process), Ready)


async def test_a_turn_that_was_begun_before_is_over(process: Process) -> None:
    begun = await process.broker.turns.begin(turn())
    token_holder = await process.broker.turns.admit(begun.token.reveal())
    set_back(process)
    with pytest.raises(BrokerError) as refused:
        await process.broker.turns.admit(begun.token.reveal())
    assert Code.TURN_ENDED is refused.value.code
    answer = await process.broker.oauth_for(token_holder).get_access_token("mail")
    assert isinstance(answer, Failed)
    assert Code.TURN_ENDED is answer.code
    assert 1 == await process.broker.turns.sweep()


async def test_a_browser_session_that_was_begun_before_is_over(process: Process) -> None:
    browser_sessions = process.parts.browser_sessions
    arrival = await browser_sessions.enter("somebody", "")
    assert await browser_sessions.admit(arrival.cookie.reveal(), "admin") is not None
    set_back(process)
    assert await browser_sessions.admit(arrival.cookie.reveal(), "admin") is None
    assert 1 == await browser_sessions.sweep()


async def test_a_provider_that_refused_before_is_asked_again(
    process: Process, identity_provider: IdentityProvider
) -> None:
    await connected(process, identity_provider)
    identity_provider.script.revoke.answer(401, {"error": "invalid_client"})
    assert "refused" == await process.broker.grants.revoke("mail", ALICE)
    set_back(process)
    await process.parts.bulk_revocation.run_pass()
    assert 0 == identity_provider.living_tokens("client-mail", "alice")


async def test_rejections_counted_before_do_not_block_a_refresh(
    process: Process, identity_provider: IdentityProvider
) -> None:
    ready = await connected(process, identity_provider)
    for _ in range(100):
        answer = await process.broker.oauth(turn()).report_rejected("mail", ready.access_token)
        if not isinstance(answer, Ready):
            break
        ready = answer
    assert isinstance(answer, Failed)
    assert Code.RATE_LIMITED is answer.code
    set_back(process, identity_provider)
    for _ in range(2):
        answer = await process.broker.oauth(turn()).report_rejected("mail", ready.access_token)
        assert isinstance(answer, Ready)
        ready = answer


async def test_a_session_that_ended_before_is_kept_as_long_as_any_other_one(
    process: Process, identity_provider: IdentityProvider
) -> None:
    """Its outcome can still be asked for; but not for a day more."""
    asked = await ask(process)
    await complete(process, identity_provider, asked, deny=True)
    await process.tend()
    keep = Limits().keep_finished_seconds
    set_back(process)
    await process.parts.sweep.once()
    assert "failed" == (await process.broker.wait(asked.auth_session_id, 0)).status
    process.clock.advance(keep - 1)
    await process.parts.sweep.once()
    assert 1 == await process.store.count("sessions")
    process.clock.advance(2)
    await process.parts.sweep.once()
    assert 0 == await process.store.count("sessions")


async def test_a_grant_that_is_used_is_written_down_at_its_own_pace(
    process: Process, identity_provider: IdentityProvider
) -> None:
    await connected(process, identity_provider)
    uses = process.parts.uses
    assert 1 == await uses.write()
    set_back(process, identity_provider)
    process.clock.advance(WRITE_SECONDS + 1)
    await ask(process)
    assert 1 == await uses.write()
    grant = await grant_of(process)
    kept = await process.parts.uses.last(grant.id)
    assert kept is not None
    assert process.clock.now() == kept.at


async def test_an_answer_that_was_lost_before_is_settled_soon(
    process: Process, identity_provider: IdentityProvider
) -> None:
    """By the background: it looks again without being asked."""
    await connected(process, identity_provider)
    repository, grant = Repository(process.store), await grant_of(process)
    versioned = await repository.grant(GrantKey("mail", ALICE))
    assert versioned is not None
    lost = replace(grant, refresh_state=replace(grant.refresh_state, intent=Intent("who died", process.clock.now())))
    await repository.save_grant(lost, expect=versioned.generation)
    set_back(process, identity_provider)
    assert 1 == await process.parts.background_refresh.recover()
    assert (await grant_of(process)).refresh_state.intent is None


LOOPS = {
    "sweep", "relay", "turns", "browsersessions", "uses", "tombstones", "API keys", "revocations", "refreshes left open", "refreshes ahead", "facts left open",
    "markers", "checkpoint of the audit log",
}  # fmt: skip


@pytest.mark.case("59")
@pytest.mark.parametrize("step", [-DAY, DAY], ids=["back", "forward"])
async def test_every_loop_of_the_background_goes_on_after_a_step_of_the_clock(
    identity_provider: IdentityProvider, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch, step: timedelta
) -> None:
    rounds, once = Counter[str](), wired_running.Running._try

    async def counted(harness: wired_running.Running, task: str, work: Any) -> None:
        rounds[task] += 1
        await once(harness, task, work)

    async def all_seen() -> None:
        async with asyncio.timeout(60):
            while not rounds.keys() >= LOOPS:
                await asyncio.sleep(0.01)

    monkeypatch.setattr(wired_running.Running, "_try", counted)
    monkeypatch.setattr(wired_running, "UPKEEP_SECONDS", 0.02)
    async with running(
        identity_provider, [user_app(identity_provider)], clock=test_clock, limits=Limits(sweep_seconds=0.02)
    ):
        await all_seen()
        test_clock.set(test_clock.now() + step)
        rounds.clear()
        await all_seen()


HOUR = timedelta(hours=1)
CLOCK_STEPS = {
    "back by a day": [-DAY],
    "back by an hour": [-HOUR],
    "forward by a day and back": [DAY, -DAY],
    "back by a day twice": [-DAY, -DAY],
}
TERMINAL = {
    "invalid_grant": ("invalid_grant", 400),
    "invalid_client": ("invalid_client", 401),
    "unauthorized_client": ("unauthorized_client", 400),
    "unclear": ("invalid_request", 400),
}


@pytest.mark.sample(12)
@pytest.mark.case("59")
@pytest.mark.parametrize("steps", CLOCK_STEPS.values(), ids=CLOCK_STEPS)
@pytest.mark.parametrize("imported", [False, True], ids=["issued", "imported"])
@pytest.mark.parametrize("answer", [*TERMINAL, "revoked"])
async def test_a_dead_token_is_never_ready_as_a_whole_one_after_the_provider_has_refused(
    process: Process,
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    answer: str,
    imported: bool,
    steps: list[timedelta],
) -> None:
    """Real time passes at the provider. Our clock makes its steps, and every step is followed by token calls."""
    await connected(process, identity_provider)
    if imported:
        await as_imported(process)
    if answer == "revoked":
        identity_provider.revoke_all("client-mail")
    else:
        error, status = TERMINAL[answer]
        identity_provider.script.refresh.refuse(error, status, times=FOREVER)
    for step in steps:
        process.clock.set(process.clock.now() + step)
        assert not await is_fooled(process, identity_provider), step
    for _ in range(32):
        process.clock.advance(2900)
        test_clock.advance(2900)
        assert not await is_fooled(process, identity_provider)


async def as_imported(process: Process) -> None:
    repository = Repository(process.store)
    versioned = await repository.grant(GrantKey("mail", ALICE))
    assert versioned is not None
    assert versioned.record.token is not None
    imported = replace(versioned.record, token=replace(versioned.record.token, lifetime_seconds=None))
    await repository.save_grant(imported, expect=versioned.generation)


async def is_fooled(process: Process, identity_provider: IdentityProvider) -> bool:
    """Return whether a call is answered with a dead token and without a word of doubt. A call that asks for a minimum
    lifetime never gets a dead one."""
    usual, demanding = await ask(process), await ask(process, min_ttl_seconds=60)
    whole = [usual] if isinstance(usual, Ready) and not usual.degraded else []
    ready = [*whole, *([demanding] if isinstance(demanding, Ready) else [])]
    return not all(identity_provider.is_alive(each.access_token) for each in ready)
