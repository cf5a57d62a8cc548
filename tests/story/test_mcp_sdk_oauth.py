"""A server of the `mcp` SDK with an authorization server of its own, which is the SDK's too: from its address alone to a
tool's result."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import AuthorizationRequired, Failed
from oauthbroker.testing import IdentityProvider, TestClock, leave
from tests.kit.cli import free_port
from tests.kit.running_broker import Harness, file_store, running
from tests.story.mcp_apps_kit import app_at, call_tool
from tests.story.mcp_kit import served
from tests.story.mcp_sdk_kit import Sessions, sdk_server

ROOT = Path(__file__).parents[2]


@dataclass
class Stage:
    """The server, and the app that knows its address alone."""

    idp: IdentityProvider
    clock: TestClock
    port: int
    sessions: Sessions = field(default_factory=Sessions)
    busy: int = 0  # with this status the token endpoint answers while it is not 0
    turned_away: int = 0

    def before(self, app: Any) -> Any:
        """Return the application behind a token endpoint that may be busy."""

        async def answers(scope: Any, receive: Any, send: Any) -> None:
            if not (self.busy and scope["type"] == "http" and scope["path"] == "/token"):
                await app(scope, receive, send)
                return
            self.turned_away += 1
            await send({"type": "http.response.start", "status": self.busy, "headers": [(b"retry-after", b"1")]})
            await send({"type": "http.response.body", "body": b""})

        return answers

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def broker(self, folder: Path) -> Any:
        store = file_store(folder, self.clock)
        return running(self.idp, [app_at(self.url)], clock=self.clock, store=store, background=False)

    async def call(self, harness: Harness, *, may_ask: bool = False) -> str:
        """Call the tool as a host does whose user consents at once."""

        async def show(result: AuthorizationRequired) -> None:
            assert may_ask, "the user was asked again"
            browser = harness.browser()
            page = await leave(browser, result.authorization_url)
            while page.next_url is not None:
                page = await browser.follow(page.next_url)
            assert 200 == page.status, page.text

        return await call_tool(harness.broker, self.url, show)


@pytest.fixture
async def stage(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Stage]:
    made = Stage(identity_provider, test_clock, free_port())
    app = made.before(sdk_server(made.sessions, made.port).streamable_http_app())
    async with served(app, made.port):
        yield made


async def test_the_address_of_a_server_leads_to_a_tools_result(stage: Stage, tmp_path: Path) -> None:
    async with stage.broker(tmp_path) as harness:
        assert stage.url == await stage.call(harness, may_ask=True)
        assert stage.url == await stage.call(harness)
    assert 1 == len(stage.sessions.clients)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_refresh_token_survives_a_busy_authorization_server_and_a_restart(
    stage: Stage, tmp_path: Path, status: int
) -> None:
    """The SDK's own provider forgets its tokens then, and the user has to sign in again."""
    async with stage.broker(tmp_path) as harness:
        await stage.call(harness, may_ask=True)
    stage.clock.advance(7200)
    stage.busy = status
    for _ in range(2):
        async with stage.broker(tmp_path) as harness:
            with pytest.raises(BaseExceptionGroup, match="unhandled errors"):
                await stage.call(harness)
            result = await harness.ask("OAuthApp/tickets")
            assert isinstance(result, Failed)
            assert result.retryable
        stage.clock.advance(60)
    assert 0 < stage.turned_away
    stage.busy = 0
    async with stage.broker(tmp_path) as harness:
        assert stage.url == await stage.call(harness)
    assert (1, 1) == (len(stage.sessions.clients), stage.sessions.refreshes)


async def worker(stage: Stage, folder: Path) -> str:
    """Call the tool in a process of its own, which has no browser."""
    orders = [str(folder), stage.url, stage.clock.now().isoformat()]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.story.mcp_worker", *orders, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    out, _ = await process.communicate()
    return out.decode().strip()


@pytest.mark.slow
async def test_tokens_are_refreshed_after_a_restart_and_once_for_several_processes(
    stage: Stage, tmp_path: Path
) -> None:
    async with stage.broker(tmp_path) as harness:
        await stage.call(harness, may_ask=True)
    stage.clock.advance(7200)
    async with stage.broker(tmp_path) as harness:
        assert stage.url == await stage.call(harness)
        assert 1 == stage.sessions.refreshes
        stage.clock.advance(7200)
        async with stage.broker(tmp_path) as other:
            assert [stage.url] * 4 == await asyncio.gather(*(stage.call(each) for each in [harness, other] * 2))
        stage.clock.advance(7200)
        assert [stage.url] * 2 == await asyncio.gather(*(worker(stage, tmp_path) for _ in range(2)))
        assert stage.url == await stage.call(harness)
    assert (1, 3) == (len(stage.sessions.clients), stage.sessions.refreshes)
