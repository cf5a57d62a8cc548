"""Runs of flow tools that wait for a consent: durable, and they go on by themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from oauthbroker.flowtools.running.ports import Effect
from oauthbroker.flowtools.running.requests import BrokerRequests
from oauthbroker.testing import IdentityProvider, TestClock
from tests.story.flow_kit import WAIT, ConsentWorld, consent_world

pytestmark = pytest.mark.rule("run-waits")


@pytest.fixture
async def here(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ConsentWorld]:
    monkeypatch.setattr(
        "oauthbroker.flowtools.specification.spec.is_public_url", lambda _: True
    )  # the API is on loopback
    async with consent_world(identity_provider, test_clock, tmp_path) as made:
        yield made


async def test_a_run_waits_for_a_consent_and_goes_on_after_it_by_itself(here: ConsentWorld) -> None:
    async with here.resuming():
        result = await here.call()
        assert ("waiting", ["one"]) == (result.state, here.world.texts())
        assert result.authorization is not None
        await here.harness.connect(result.authorization)
        assert "succeeded" == (await here.ended(result.run)).state
    assert (["one", "two"], 1) == (here.world.texts(), len(here.api.requests))
    assert ["waiting", "succeeded"] == [entry[2] for entry in here.world.audit()]
    assert "succeeded" == (await here.call()).state
    assert 1 == len(here.api.requests)


async def test_another_process_goes_on_with_a_run_whose_consent_came_meanwhile(here: ConsentWorld) -> None:
    result = await here.call()
    assert result.authorization is not None
    await here.harness.connect(result.authorization)
    here.opened()
    async with here.resuming():
        assert "succeeded" == (await here.ended(result.run)).state
    assert (["one", "two"], 1) == (here.world.texts(), len(here.api.requests))


async def test_the_repeated_call_of_a_waiting_run_asks_with_the_same_link(here: ConsentWorld) -> None:
    first, second = await here.call(), await here.call()
    assert ("waiting", "waiting", first.run) == (first.state, second.state, second.run)
    assert first.authorization is not None
    assert second.authorization is not None
    assert first.authorization.authorization_url == second.authorization.authorization_url
    await here.harness.connect(first.authorization)
    assert "succeeded" == (await here.call()).state
    assert (["one", "two"], 1) == (here.world.texts(), len(here.api.requests))


async def test_the_link_is_not_stored_and_stands_in_no_text(here: ConsentWorld, tmp_path: Path) -> None:
    result = await here.call()
    assert result.authorization is not None
    link = result.authorization.authorization_url
    ticket = link.rpartition("/")[2].encode()
    assert [] == [path for path in tmp_path.rglob("*") if path.is_file() and ticket in path.read_bytes()]
    assert link not in repr(result)


async def test_a_run_whose_user_declines_fails_and_opens_no_other_link(here: ConsentWorld) -> None:
    async with here.resuming():
        result = await here.call()
        assert result.authorization is not None
        await here.harness.connect(result.authorization, deny=True)
        found = await here.ended(result.run)
    assert ("failed", "consentRefused", "providerDenied") == (found.state, found.code, found.message)
    assert ([], []) == (here.api.requests, [each async for each in _pending(here)])


async def test_a_run_whose_event_was_lost_finds_its_consent_at_its_deadline(
    here: ConsentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oauthbroker.flowtools.running.resuming._Resumer.on_granted", AsyncMock())
    result = await here.call()
    assert result.authorization is not None
    await here.harness.connect(result.authorization)
    here.pass_deadline()
    async with here.resuming(seconds=0.1):
        assert "succeeded" == (await here.ended(result.run)).state


async def test_the_end_of_the_block_waits_for_a_run_that_sends(
    here: ConsentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests need the broker, which ends after the block."""
    sends, may = threading.Event(), threading.Event()
    send = BrokerRequests.send

    def slow(requests: BrokerRequests, effect: Effect) -> Any:
        sends.set()
        assert may.wait(WAIT)
        return send(requests, effect)

    monkeypatch.setattr(BrokerRequests, "send", slow)
    result = await here.call()
    assert result.authorization is not None
    await here.harness.connect(result.authorization)
    async with here.resuming(seconds=0.1):
        assert await asyncio.to_thread(sends.wait, WAIT)
        asyncio.get_running_loop().call_later(0.2, may.set)
    assert "succeeded" == here.world.runs.find(str(result.run)).state
    assert 1 == len(here.api.requests)


async def test_a_run_whose_link_expired_fails_at_its_deadline(here: ConsentWorld) -> None:
    result = await here.call()
    assert result.authorization is not None
    due = here.world.runs.find(str(result.run)).due or 0.0
    assert 0 < due - result.authorization.expires_at.timestamp() <= 60
    here.harness.clock.advance(3600)
    here.pass_deadline()
    async with here.resuming(seconds=0.1):
        found = await here.ended(result.run)
    assert ("failed", "consentRefused") == (found.state, found.code)


async def _pending(here: ConsentWorld) -> AsyncIterator[Any]:
    for each in await here.harness.broker.sessions.list(status="pending"):
        yield each
