"""A CredentialApp on two hosts with one database: one link, one refusal, and a key that counts at once on both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oauthbroker.repository.repository import PAIR_WAIT_SECONDS
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit import postgres
from tests.kit.running_broker import Harness
from tests.story.hosts_kit import hosts
from tests.story.keys_kit import GOOD, NEWER, KeyApi, asked_for, key_app, sent, type_key

DATABASE = "keys"
CALLERS = 25  # on each host


@pytest.fixture
async def both(
    postgres_server: postgres.Server,
    api: KeyApi,
    tmp_path: Path,
    identity_provider: IdentityProvider,
    test_clock: TestClock,
) -> AsyncIterator[list[Harness]]:
    postgres_server.new_database(DATABASE)
    url, apps = postgres_server.url(DATABASE), [key_app(api)]
    async with hosts(2, url, tmp_path, identity_provider, test_clock, apps=apps) as found:
        yield found


async def test_two_hosts_give_one_link_and_note_one_refusal(both: list[Harness], api: KeyApi) -> None:
    first, second = both
    asked = await asyncio.gather(*(asked_for(host, api) for host in both for _ in range(CALLERS)))
    assert 1 == len({it.authorization_url for it in asked})
    assert "is connected" in (await type_key(second, asked[0], GOOD)).text
    assert {200} == {(await sent(host, api)).status_code for host in both}
    del api.keys[GOOD]
    before = [it.path for it in api.seen].count("/me")
    refused = await asyncio.gather(*(sent(host, api) for host in both for _ in range(CALLERS)))
    assert {"keyRejected"} == {it.reason for it in refused}
    assert 1 == len({it.authorization_url for it in refused})
    assert before + 2 >= [it.path for it in api.seen].count("/me"), "once on each host"
    assert "is connected" in (await type_key(first, refused[0], NEWER)).text
    for host in both:
        assert 200 == (await sent(host, api)).status_code
        assert NEWER == api.seen[-1].headers["x-api-key"]


async def test_a_session_claimed_by_a_host_that_died_is_typed_at_the_other(both: list[Harness], api: KeyApi) -> None:
    first, second = both
    asked = await asked_for(first, api)
    versioned = await first.repository.session(asked.auth_session_id.removeprefix("as-"))
    assert versioned is not None
    assert await first.parts.finish.claim(versioned, 60.0) is not None
    second.clock.advance(61 + PAIR_WAIT_SECONDS)
    assert "is connected" in (await type_key(second, asked, GOOD)).text
    assert 200 == (await sent(first, api)).status_code
