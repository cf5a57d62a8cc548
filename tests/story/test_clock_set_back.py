"""The machine's clock is set back by a day: a deadline that was set before keeps nothing and gives nothing that long."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.errors import BrokerError, Code
from oauthbroker.queues import Delivery
from oauthbroker.repository import Repository
from oauthbroker.results import Failed, Ready
from oauthbroker.resume import locator_of
from oauthbroker.testing import IdentityProvider
from tests.faults.broker_kit import Process
from tests.house import ALICE, turn, user_app
from tests.story.revocation_kit import Start, ask, connected
from tests.story.test_recovery import comes_back

DAY = timedelta(days=1)


@pytest.fixture
async def process(start: Start, identity_provider: IdentityProvider) -> Process:
    return start([user_app(identity_provider)])


def set_back(process: Process, provider: Any = None) -> None:
    """The machine's clock, and the provider's where it dates what it issues anew."""
    process.clock.set(process.clock.now() - DAY)
    if provider is not None:
        provider.clock.set(provider.clock.now() - DAY)


async def leased(process: Process) -> Delivery:
    delivery = await process.broker.events.lease("planner")
    assert delivery is not None
    return delivery


@pytest.mark.parametrize("settled", ["never", "nack"])
async def test_an_event_that_was_leased_or_put_off_before_is_free(
    process: Process, identity_provider: IdentityProvider, settled: str
) -> None:
    await connected(process, identity_provider)
    await process.house.relay.once()
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
    held = await Repository(process.store).session(locator_of(asked.auth_session_id))
    assert held is not None
    claimed = held.record.claimed("who died", process.clock.now() + timedelta(seconds=60))
    await Repository(process.store).save_session(claimed, expect=held.generation)
    set_back(process)
    await process.house.flows.sweep.once()
    assert "failed" == (await process.broker.wait(asked.auth_session_id, 0)).status


async def test_a_link_that_was_made_before_is_over(process: Process, identity_provider: IdentityProvider) -> None:
    asked = await ask(process)
    set_back(process, identity_provider)
    assert 200 != (await process.browser().open(asked.authorization_url)).status
    assert "expired" == (await process.broker.wait(asked.auth_session_id, 0)).status
    assert await process.broker.pending(turn()) is None
    anew = await ask(process)
    assert asked.auth_session_id != anew.auth_session_id
    assert 200 == await comes_back(process, identity_provider, anew)
    await process.house.flows.sweep.once()
    assert isinstance(await ask(process), Ready)


async def test_a_turn_that_was_begun_before_is_over(process: Process) -> None:
    begun = await process.broker.turns.begin(turn())
    guest = await process.broker.turns.admit(begun.token.reveal())
    set_back(process)
    with pytest.raises(BrokerError) as refused:
        await process.broker.turns.admit(begun.token.reveal())
    assert Code.TURN_ENDED is refused.value.code
    answer = await process.broker.oauth_for(guest).get_access_token("mail")
    assert isinstance(answer, Failed)
    assert Code.TURN_ENDED is answer.code
    assert 1 == await process.broker.turns.sweep()


async def test_a_visit_that_was_begun_before_is_over(process: Process) -> None:
    visits = process.broker.people.visits
    arrival = await visits.enter("somebody", "")
    assert await visits.admit(arrival.cookie.reveal(), "admin") is not None
    set_back(process)
    assert await visits.admit(arrival.cookie.reveal(), "admin") is None
    assert 1 == await visits.sweep()


async def test_a_provider_that_refused_before_is_asked_again(
    process: Process, identity_provider: IdentityProvider
) -> None:
    await connected(process, identity_provider)
    identity_provider.script.revoke.answer(401, {"error": "invalid_client"})
    assert "refused" == await process.broker.grants.revoke("mail", ALICE)
    set_back(process)
    await process.house.relay.revocations()
    assert 0 == identity_provider.living_tokens("client-mail", "alice")


async def test_rejections_that_were_counted_before_keep_nobody_from_a_renewal(
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
