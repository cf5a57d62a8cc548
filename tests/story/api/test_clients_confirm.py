"""Owners are confirmed through the clients: by handle with the runtime's key, by code in the turn that asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import pytest

from oauthbroker.client import AuthorizationRequired, BrokerError, Code, Ready, Runtime, SyncRuntime
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.kit.running_broker import Harness
from tests.story.api.clients import listening
from tests.story.binding_kit import (
    ALICE,
    MALLORY,
    came_back,
    code_on,
    confirming_harness,
    handle_on,
    of_alice,
    settings_for,
)


@asynccontextmanager
async def served(
    idp: IdentityProvider, clock: TestClock, binding: Literal["runtimeConfirm", "channelCode"], canaries: Canaries
) -> AsyncIterator[tuple[Harness, str, str]]:
    """The harness, its API's address and a runtime's key."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = settings_for(allowed_hosts=(f"127.0.0.1:{listener.getsockname()[1]}",))
        async with (
            confirming_harness(idp, clock, binding, settings=settings) as harness,
            listening(harness.broker.asgi.api, listener) as url,
        ):
            _, key = await harness.broker.api_keys.create("runtime", ["runtime"])
            canaries.add(key, "API key")
            yield harness, url, key.reveal()


@pytest.mark.case("14b")
async def test_a_handle_is_confirmed_with_the_subject_that_is_logged_in(
    identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries
) -> None:
    async with served(identity_provider, test_clock, "runtimeConfirm", canaries) as (harness, url, key):
        async with Runtime(url, key) as runtime, runtime.turn(of_alice()) as begun:
            asked = await begun.oauth().get_access_token("mail")
            assert isinstance(asked, AuthorizationRequired)
            handle = handle_on(await came_back(harness, asked, harness.browser()))
            with pytest.raises(BrokerError) as unknown:
                await runtime.confirm("x" * len(handle), ALICE)
            assert Code.STATE_UNKNOWN is unknown.value.code
            outcome = await runtime.confirm(handle, ALICE)
            assert ("completed", asked.auth_session_id) == (outcome.status, outcome.auth_session_id)
            assert isinstance(await begun.oauth().get_access_token("mail"), Ready)
        async with Runtime(url, key) as runtime, runtime.turn(of_alice()) as begun:
            other = await begun.oauth().get_access_token("mail", switch_account=True)
            assert isinstance(other, AuthorizationRequired)
            handle = handle_on(await came_back(harness, other, harness.browser()))
            with pytest.raises(BrokerError) as refused:
                await runtime.confirm(handle, MALLORY)
            assert Code.OWNER_BINDING_FAILED is refused.value.code
            assert "failed" == (await runtime.session(other.auth_session_id)).status


async def test_a_code_from_the_conversation_is_relayed_by_its_turn(
    identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries
) -> None:
    """Without `await`: the conversation's handler blocks."""
    async with served(identity_provider, test_clock, "channelCode", canaries) as (harness, url, key):
        runtime = await asyncio.to_thread(SyncRuntime, url, key)
        begun = await asyncio.to_thread(runtime.begin, of_alice())
        asked = await asyncio.to_thread(begun.oauth().get_access_token, "mail")
        assert isinstance(asked, AuthorizationRequired)
        code = code_on(await came_back(harness, asked, harness.browser()))
        outcome = await asyncio.to_thread(runtime.relay_code, begun, code)
        assert ("completed", asked.auth_session_id) == (outcome.status, outcome.auth_session_id)
        with pytest.raises(BrokerError):
            await asyncio.to_thread(begun.oauth().relay_code, code)
        assert isinstance(await asyncio.to_thread(begun.oauth().get_access_token, "mail"), Ready)
        await asyncio.to_thread(runtime.end, begun)
        await asyncio.to_thread(runtime.close)
