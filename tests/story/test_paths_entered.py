"""Bound the folders of the package that the four main paths enter: a reader of the path has to know each of them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oauthbroker.model.token_results import Ready
from oauthbroker.observability import tracing
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.paths_entered import entering
from tests.kit.running_broker import Harness, file_store, running, turn, user_app
from tests.story.api.kit import TOOLS, Callers

ASK = {"oauthAppRef": "OAuthApp/mail"}
BELOW_ALL = {"core", "model", "observability"}
RECORDS = {"audit", "records", "repository", "store"}
WARM = BELOW_ALL | RECORDS - {"records"} | {"tokens"}
REFRESH = BELOW_ALL | RECORDS | {"tokens", "refresh", "protocol"}
CALLBACK = BELOW_ALL | RECORDS | {"web", "wiring", "authorization", "protocol", "refresh"}
OVER_HTTP = BELOW_ALL | RECORDS | {"tokens", "access", "web"}


@pytest.fixture
async def harness(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Harness]:
    """A broker on files, without background work, in a process without OpenTelemetry."""
    monkeypatch.delitem(sys.modules, tracing._API, raising=False)
    apps, store = [user_app(identity_provider)], file_store(tmp_path, test_clock)
    async with running(
        identity_provider, apps, clock=test_clock, store=store, tools=TOOLS, background=False
    ) as harness:
        yield harness


async def test_a_warm_token_call_enters_seven_folders(harness: Harness) -> None:
    await harness.connected()
    oauth = harness.broker.oauth(turn())
    for _ in range(2):  # the second time, the answer is prepared
        assert isinstance(await oauth.get_access_token("mail"), Ready)
    with entering() as entered:
        assert isinstance(await oauth.get_access_token("mail"), Ready)
    assert WARM == set(entered), entered


async def test_a_callback_enters_twelve_folders_up_to_the_grant(harness: Harness) -> None:
    asked, browser = await harness.ask_link(), harness.browser()
    back = await harness.way_back(asked, browser)
    with entering() as entered:
        page = await browser.follow(back)
    assert page.status < 400
    assert await harness.grant() is not None
    assert CALLBACK == set(entered), entered


async def test_a_refresh_enters_ten_folders(harness: Harness) -> None:
    first = await harness.connected()
    harness.clock.advance(3600)
    oauth = harness.broker.oauth(turn())
    with entering() as entered:
        ready = await oauth.get_access_token("mail")
    assert isinstance(ready, Ready)
    assert ready.access_token != first.access_token
    assert REFRESH == set(entered), entered


async def test_a_token_over_http_takes_ten_folders_the_first_time(harness: Harness) -> None:
    await harness.connected()
    caller = await (await Callers.of(harness)).tool()
    _ = harness.broker.asgi.app  # built when it is first used
    with entering() as entered:
        answer = await caller.post("/v1/tokens", ASK, allow=["access token"])
    assert 200 == answer.status
    assert OVER_HTTP == set(entered) - {"broker", "wiring"}, entered  # by which this test reaches the application
